//! The simulated twin of a replay: the same events, the same allocator, a simulated device.
//!
//! Between two events of the replay time passes outside the driver: in the allocator, in checks, until an event is due.
//! The driver zeroes freed memory meanwhile, so the twin's clock is moved on by these *pauses*.

use std::ops::ControlFlow;

use crate::allocator::Allocator;
use crate::device::{Bill, CallLog, Device, Priced, Profile, Result, SimDevice, Watched};
use crate::drive::{OnOom, Replay};
use crate::trace::Trace;

/// What the twin did.
#[derive(Debug, Clone)]
pub(super) struct Twin {
    pub(super) log: CallLog,
    pub(super) bill: Bill,
    /// Price of each training step that was reached, in nanoseconds.
    pub(super) step_ns: Vec<u64>,
    pub(super) peak_used: u64,
}

/// Runs the first `events` events, each after its pause in nanoseconds; without one where none is given.
pub(super) fn simulate(
    trace: &Trace,
    (events, pauses): (usize, &[u64]),
    allocator: &mut dyn Allocator,
    device: SimDevice,
    profile: &Profile,
) -> Result<Twin> {
    let watch = (CallLog::default(), Priced::new(Some(profile.clone())));
    let mut device = Watched::new(device, watch);
    let mut replay = Replay::new(trace, OnOom::Skip).hurried();
    // The bill after this many events.
    let mut bills = vec![0];
    for index in 0..events {
        device.elapse(0, pauses.get(index).copied().unwrap_or(0));
        let flow = replay.advance(index..index + 1, allocator, &mut device, &mut ())?;
        debug_assert_eq!(flow, ControlFlow::Continue(()), "out of memory is skipped");
        bills.push(device.watch.1.bill.nanos.total());
    }
    let reached = trace.steps.iter().filter(|step| step.start < events);
    let step_ns = reached.map(|step| bills[step.end.min(events)] - bills[step.start]).collect();
    let (log, Priced { bill, .. }) = device.watch;
    Ok(Twin { log, bill, step_ns, peak_used: device.device.peak_used() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc_conf::AllocConf;
    use crate::allocator::{self, Environment, Options};
    use crate::trace::{AllocId, Event, EventKind, PoolId, StreamId};
    use crate::units::GIB;

    /// All of an H200 is used once and given back; then 16 GiB are asked for.
    fn asks_for_dirty_memory() -> Trace {
        let event = |kind, alloc, size| {
            let (stream, pool) = (StreamId(0), PoolId::DEFAULT);
            Event { kind, alloc: AllocId(alloc), size, stream, pool }
        };
        let events = vec![
            event(EventKind::Malloc, 0, 139 * GIB),
            event(EventKind::Free, 0, 139 * GIB),
            event(EventKind::Malloc, 1, 16 * GIB),
        ];
        Trace { events, allocs: 2, ..Trace::default() }
    }

    fn driver_ns(pauses: &[u64]) -> u64 {
        let native = allocator::find("native").expect("it is in the list");
        let environment = Environment::new(AllocConf::default());
        let mut native = native.build(&Options::default(), &environment).expect("no options");
        let profile = Profile::open("h200").expect("it is built in");
        let device = SimDevice::new(profile.memory);
        let trace = asks_for_dirty_memory();
        let twin = simulate(&trace, (3, pauses), native.as_mut(), device, &profile);
        twin.expect("there is room").bill.nanos.total()
    }

    #[test]
    fn the_driver_zeroes_memory_in_the_pauses() {
        let without = driver_ns(&[]);
        let with = driver_ns(&[0, 0, 1_000_000_000]);
        // 16 GiB at 413 GiB/s.
        assert!(without > with + 30_000_000, "{without} ns without a pause, {with} ns with one");
        assert_eq!(driver_ns(&[1_000_000_000, 0, 0]), without, "nothing was dirty then");
    }
}
