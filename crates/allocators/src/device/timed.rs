//! Measures how long each driver call takes, by the host's clock.

use std::time::Instant;

use super::call::{Amount, Call, DriverCall, PerCall};
use super::watched::Watch;

/// Buckets for each doubling of the time: 3 % apart.
const STEPS: usize = 32;

/// Durations, sorted into buckets that grow with them, so that any number of calls takes the same memory. Count,
/// total and maximum are exact; quantiles are good to 3 %.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// Durations so far.
    pub count: u64,
    /// Their sum in nanoseconds.
    pub total_ns: u64,
    /// The longest in nanoseconds.
    pub max_ns: u64,
    buckets: Vec<u64>,
}

impl Histogram {
    /// Adds `count` durations of together `total_ns` nanoseconds, taken to be equal.
    pub fn record(&mut self, count: u64, total_ns: u64) {
        let Some(each) = total_ns.checked_div(count) else { return };
        self.count += count;
        self.total_ns += total_ns;
        self.max_ns = self.max_ns.max(each);
        let bucket = bucket(each);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += count;
    }

    /// The duration in nanoseconds that a share `q` of all does not exceed; `None` if there are none.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().position(|&count| {
            seen += count;
            seen >= rank
        })?;
        Some(highest(found).min(self.max_ns))
    }
}

/// Below `STEPS` nanoseconds each has its own bucket; above, the leading bits count.
fn bucket(ns: u64) -> usize {
    let Some(octave) = (ns / STEPS as u64).checked_ilog2() else { return ns as usize };
    STEPS * (octave as usize + 1) + ((ns >> octave) as usize - STEPS)
}

/// The longest duration in a bucket.
fn highest(bucket: usize) -> u64 {
    let (octave, step) = (bucket / STEPS, (bucket % STEPS) as u64);
    match octave.checked_sub(1) {
        None => step,
        Some(shift) => ((STEPS as u64 + step) << shift) + ((1 << shift) - 1),
    }
}

/// One call: what it was about, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// The call.
    pub call: Call,
    /// Handles and bytes that it was about.
    pub amount: Amount,
    /// Nanoseconds that it took.
    pub ns: u64,
}

/// Times calls. The last of several watchers is told last before a call and first after it: it times nothing else.
#[derive(Debug, Clone)]
pub struct Timed {
    /// The durations so far. A `map` of several handles counts as this many calls of equal length.
    pub times: PerCall<Histogram>,
    /// Every call by itself, if that is wanted.
    calls: Option<Vec<Observation>>,
    begun: Instant,
}

impl Default for Timed {
    fn default() -> Self {
        Self { times: PerCall::default(), calls: None, begun: Instant::now() }
    }
}

impl Timed {
    /// Keeps each call by itself, too.
    pub fn observing(each: bool) -> Self {
        Self { calls: each.then(Vec::new), ..Self::default() }
    }

    /// Each call so far, in order, if they were kept.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        self.calls.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Nanoseconds spent so far, by call.
    pub fn nanos(&self) -> PerCall<u64> {
        let mut nanos = PerCall::default();
        for (call, times) in self.times.rows() {
            nanos[call] = times.total_ns;
        }
        nanos
    }
}

impl Watch for Timed {
    fn wants_amounts(&self) -> bool {
        self.calls.is_some()
    }

    #[inline]
    fn before(&mut self, _: &DriverCall<'_>) {
        self.begun = Instant::now();
    }

    #[inline]
    fn after(&mut self, done: &DriverCall<'_>) {
        let ns = self.begun.elapsed().as_nanos() as u64;
        self.times[done.call].record(done.count(), ns);
        if let Some(calls) = &mut self.calls {
            calls.push(Observation { call: done.call, amount: done.amount, ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::{Device, SimDevice, Watched};
    use gmlake_core::units::MIB;

    #[test]
    fn quantiles_are_those_of_a_sorted_list_to_three_per_cent() {
        let mut histogram = Histogram::default();
        let mut sorted: Vec<u64> = (0..2000_u64).map(|i| i * i * 37 % 9_000_011).collect();
        sorted.iter().for_each(|&ns| histogram.record(1, ns));
        sorted.sort_unstable();
        for q in [0.01, 0.1, 0.5, 0.9, 0.99, 1.0] {
            let exact = sorted[(q * sorted.len() as f64).ceil() as usize - 1];
            let found = histogram.quantile(q).unwrap();
            assert!(found >= exact && found as f64 <= exact as f64 * 1.04, "{q}: {found} {exact}");
        }
        assert_eq!(histogram.total_ns, sorted.iter().sum::<u64>());
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    proptest! {
        /// One to three calls are enough for every quantile.
        #[test]
        fn quantiles_are_there_and_in_order(
            times in prop::collection::vec((1_u64..5, 0_u64..1 << 40), 1..4),
        ) {
            let mut histogram = Histogram::default();
            times.iter().for_each(|&(count, total_ns)| histogram.record(count, total_ns));
            let each = || times.iter().map(|(count, total_ns)| total_ns / count);
            let [p1, p50, p90, p99, all] =
                [0.01, 0.5, 0.9, 0.99, 1.0].map(|q| histogram.quantile(q).expect("calls"));
            prop_assert!(p1 <= p50 && p50 <= p90 && p90 <= p99 && p99 <= all);
            prop_assert_eq!(Some(all), each().max());
            prop_assert!(each().any(|ns| ns <= p1 && p1 as f64 <= ns as f64 * 1.04));
        }
    }

    #[test]
    fn what_each_call_was_about_is_kept() {
        let mut gpu = Watched::new(SimDevice::new(16 * MIB), Timed::observing(true));
        let at = gpu.reserve(6 * MIB).unwrap();
        let handles = [gpu.create(2 * MIB).unwrap(), gpu.create(4 * MIB).unwrap()];
        gpu.map(at, &handles).unwrap();
        gpu.set_access(at, 6 * MIB).unwrap();
        gpu.unmap(at, 6 * MIB);
        gpu.release(handles[1]);
        let block = gpu.malloc(3 * MIB).unwrap();
        gpu.free(block);
        let seen: Vec<_> = gpu
            .watch
            .take_observations()
            .iter()
            .map(|seen| (seen.call, seen.amount.handles, seen.amount.size / MIB))
            .collect();
        let expected = [
            (Call::AddressReserve, 0, 6),
            (Call::Create, 1, 2),
            (Call::Create, 1, 4),
            (Call::Map, 2, 6),
            (Call::SetAccess, 2, 6),
            (Call::Unmap, 2, 6),
            (Call::Release, 1, 4),
            (Call::MemAlloc, 1, 3),
            (Call::MemFree, 1, 3),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn buckets_join_without_gap_or_overlap() {
        for number in 0..1000 {
            assert_eq!(bucket(highest(number)), number);
            assert_eq!(bucket(highest(number) + 1), number + 1);
        }
        assert_eq!(highest(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn a_map_counts_each_handle() {
        let mut gpu = Watched::new(SimDevice::new(8 * MIB), Timed::default());
        let at = gpu.reserve(4 * MIB).unwrap();
        let handles = [gpu.create(2 * MIB).unwrap(), gpu.create(2 * MIB).unwrap()];
        gpu.map(at, &handles).unwrap();
        gpu.map(at.offset(4 * MIB), &[]).unwrap();
        assert_eq!((gpu.watch.times.create.count, gpu.watch.times.map.count), (2, 2));
        assert!(gpu.create(8 * MIB).is_err());
        assert_eq!(gpu.watch.times.create.count, 3);
        assert_eq!(gpu.watch.nanos().create, gpu.watch.times.create.total_ns);
    }
}
