//! Happens-before: the order between streams, from their fences.
//!
//! Each stream knows up to which moment the others have run before what is queued on it now, and so does the host (a
//! vector clock, Mattern 1989). Moments are counted by fences and synchronisations, for only they tell anything:
//!
//! ```text
//!   moment        1          2                     3
//!   stream 1   ── ▲ f ────── │ ─────────────────── │      f carries {1: 1}
//!   stream 2   ── wait f ─── ▲ g ───────────────── │      g carries {1: 1, 2: 2}
//!   stream 3   ─────────── wait g ──────────────── │      knows of stream 1, too, up to moment 1
//!   host       ────────────────────── synchronize ─┘      knows of all up to moment 3
//! ```

use std::collections::BTreeMap;

use super::Fence;
use gmlake_core::program::StreamId;

/// Up to which moment each stream has run.
type Clock = BTreeMap<StreamId, u64>;

/// A stream, and the moment when it was done with something, as far as the host can say.
pub type LastUse = (StreamId, u64);

/// The order of things on a device.
#[derive(Debug, Clone, Default)]
pub struct Order {
    now: u64,
    streams: BTreeMap<StreamId, Clock>,
    fences: BTreeMap<Fence, Clock>,
    host: Clock,
    /// The moment of the last synchronisation, before which everything has happened.
    synchronised: u64,
}

impl Order {
    /// Now: what is queued before the next fence is queued at this moment.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether all that `stream` had queued at `moment` has happened before what is queued on `later` now.
    pub fn is_before(&self, stream: StreamId, moment: u64, later: StreamId) -> bool {
        let clock = self.streams.get(&later);
        let known = clock.and_then(|clock| clock.get(&stream)).copied().unwrap_or(0);
        stream == later || known > moment || self.has_happened(stream, moment)
    }

    /// Whether the host knows that it has happened.
    pub fn has_happened(&self, stream: StreamId, moment: u64) -> bool {
        self.synchronised > moment || self.host.get(&stream).is_some_and(|&known| known > moment)
    }

    pub(super) fn record(&mut self, fence: Fence, stream: StreamId) {
        self.now += 1;
        let clock = self.streams.entry(stream).or_default();
        clock.insert(stream, self.now);
        self.fences.insert(fence, clock.clone());
    }

    pub(super) fn reached(&mut self, fence: Fence) {
        let clock = self.fences.get(&fence).cloned().unwrap_or_default();
        join(&mut self.host, &clock);
    }

    pub(super) fn wait(&mut self, stream: StreamId, fence: Fence) {
        let clock = self.fences.get(&fence).cloned().unwrap_or_default();
        join(self.streams.entry(stream).or_default(), &clock);
    }

    pub(super) fn forget(&mut self, fence: Fence) {
        let known = self.fences.remove(&fence);
        assert!(known.is_some(), "{fence:?} is dropped, but was not recorded");
    }

    pub(super) fn synchronize(&mut self) {
        self.now += 1;
        self.synchronised = self.now;
    }

    /// Whether no fence is held.
    pub(super) fn is_empty(&self) -> bool {
        self.fences.is_empty()
    }
}

fn join(clock: &mut Clock, other: &Clock) {
    for (&stream, &moment) in other {
        let known = clock.entry(stream).or_default();
        *known = moment.max(*known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: StreamId = StreamId(1);
    const TWO: StreamId = StreamId(2);
    const THREE: StreamId = StreamId(3);

    #[test]
    fn a_wait_orders_what_comes_after_it_and_is_passed_on() {
        let mut order = Order::default();
        let freed = order.now();
        assert!(order.is_before(ONE, freed, ONE) && !order.is_before(ONE, freed, TWO));
        order.record(Fence(0), ONE);
        assert!(!order.is_before(ONE, freed, TWO), "no stream has waited");
        order.wait(TWO, Fence(0));
        assert!(order.is_before(ONE, freed, TWO) && !order.is_before(ONE, order.now(), TWO));
        order.record(Fence(1), TWO);
        order.wait(THREE, Fence(1));
        assert!(order.is_before(ONE, freed, THREE));
        assert!(!order.has_happened(ONE, freed), "the host knows nothing");
    }

    #[test]
    fn the_host_learns_by_asking_and_by_waiting() {
        let mut order = Order::default();
        let freed = order.now();
        order.record(Fence(0), ONE);
        order.reached(Fence(0));
        assert!(order.has_happened(ONE, freed) && order.is_before(ONE, freed, THREE));
        assert!(!order.has_happened(TWO, freed));
        order.synchronize();
        assert!(order.has_happened(TWO, freed) && !order.has_happened(TWO, order.now()));
        order.forget(Fence(0));
        assert!(order.is_empty());
    }
}
