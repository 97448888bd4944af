//! Measures how long each driver call takes, by the host's clock.

use std::time::Instant;

use super::call::{Call, PerCall};
use super::extents::{Amount, Extents};
use super::{Device, DeviceError, DevicePtr, Fence, HandleId, forward};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

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
    #[must_use]
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

/// Every call by itself, and the sizes that it takes to know what a call is about.
#[derive(Debug, Clone, Default)]
struct Notes {
    calls: Vec<Observation>,
    extents: Extents,
}

/// A device whose calls are timed.
#[derive(Debug, Clone)]
pub struct Timed<D> {
    /// The device itself.
    pub device: D,
    /// The durations so far. A `map` of several handles counts as this many calls of equal length.
    pub times: PerCall<Histogram>,
    notes: Option<Notes>,
}

impl<D> Timed<D> {
    /// A device without a call so far.
    pub fn new(device: D) -> Self {
        Self { device, times: PerCall::default(), notes: None }
    }

    /// The same device, which also keeps each call by itself.
    #[must_use]
    pub fn observing(self, each: bool) -> Self {
        Self { notes: each.then(Notes::default), ..self }
    }

    /// Each call so far, in order, if they were kept.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        self.notes.as_mut().map(|notes| std::mem::take(&mut notes.calls)).unwrap_or_default()
    }

    /// Nanoseconds spent so far, by call.
    #[must_use]
    pub fn nanos(&self) -> PerCall<u64> {
        let mut nanos = PerCall::default();
        for (call, times) in self.times.rows() {
            nanos[call] = times.total_ns;
        }
        nanos
    }

    fn time<T>(
        &mut self,
        call: Call,
        about: impl FnOnce(&mut Extents) -> Amount,
        run: impl FnOnce(&mut D) -> T,
    ) -> T {
        let amount = self.notes.as_mut().map(|notes| about(&mut notes.extents));
        self.time_all(call, 1, amount, run)
    }

    fn time_all<T>(
        &mut self,
        call: Call,
        count: usize,
        amount: Option<Amount>,
        run: impl FnOnce(&mut D) -> T,
    ) -> T {
        let start = Instant::now();
        let result = run(&mut self.device);
        let ns = start.elapsed().as_nanos() as u64;
        self.times[call].record(count as u64, ns);
        if let Some((notes, amount)) = self.notes.as_mut().zip(amount) {
            notes.calls.push(Observation { call, amount, ns });
        }
        result
    }
}

const NOTHING: fn(&mut Extents) -> Amount = |_| Amount { handles: 0, size: 0 };

impl<D: Device> Device for Timed<D> {
    forward!(memory_info, drop_fence, elapse);

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        let about = |_: &mut Extents| Amount { handles: 1, size };
        let at = self.time(Call::MemAlloc, about, |device| device.malloc(size))?;
        if let Some(notes) = &mut self.notes {
            notes.extents.malloc(at, size);
        }
        Ok(at)
    }

    fn free(&mut self, at: DevicePtr) {
        self.time(Call::MemFree, |extents| extents.free(at), |device| device.free(at));
    }

    fn reserve(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        let about = |_: &mut Extents| Amount { handles: 0, size };
        self.time(Call::AddressReserve, about, |device| device.reserve(size))
    }

    fn unreserve(&mut self, at: DevicePtr, size: Bytes) {
        let about = |_: &mut Extents| Amount { handles: 0, size };
        self.time(Call::AddressFree, about, |device| device.unreserve(at, size));
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId, DeviceError> {
        let about = |_: &mut Extents| Amount { handles: 1, size };
        let handle = self.time(Call::Create, about, |device| device.create(size))?;
        if let Some(notes) = &mut self.notes {
            notes.extents.create(handle, size);
        }
        Ok(handle)
    }

    fn release(&mut self, handle: HandleId) {
        let about = |extents: &mut Extents| extents.of(&[handle]);
        self.time(Call::Release, about, |device| device.release(handle));
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<(), DeviceError> {
        let amount = self.notes.as_ref().map(|notes| notes.extents.of(handles));
        self.time_all(Call::Map, handles.len(), amount, |device| device.map(at, handles))?;
        if let Some(notes) = &mut self.notes {
            notes.extents.map(at, handles);
        }
        Ok(())
    }

    fn set_access(&mut self, at: DevicePtr, size: Bytes) -> Result<(), DeviceError> {
        let about = |extents: &mut Extents| extents.within(at, size);
        self.time(Call::SetAccess, about, |device| device.set_access(at, size))
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        let about = |extents: &mut Extents| extents.unmap(at, size);
        self.time(Call::Unmap, about, |device| device.unmap(at, size));
    }

    fn synchronize(&mut self) {
        self.time(Call::Synchronize, NOTHING, Device::synchronize);
    }

    fn fence(&mut self, stream: StreamId) -> Fence {
        self.time(Call::EventRecord, NOTHING, |device| device.fence(stream))
    }

    fn reached(&mut self, fence: Fence) -> bool {
        self.time(Call::EventQuery, NOTHING, |device| device.reached(fence))
    }

    fn stream_wait(&mut self, stream: StreamId, fence: Fence) {
        self.time(Call::StreamWait, NOTHING, |device| device.stream_wait(stream, fence));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SimDevice;
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

    #[test]
    fn what_each_call_was_about_is_kept() {
        let mut gpu = Timed::new(SimDevice::new(16 * MIB)).observing(true);
        let at = gpu.reserve(6 * MIB).unwrap();
        let handles = [gpu.create(2 * MIB).unwrap(), gpu.create(4 * MIB).unwrap()];
        gpu.map(at, &handles).unwrap();
        gpu.set_access(at, 6 * MIB).unwrap();
        gpu.unmap(at, 6 * MIB);
        gpu.release(handles[1]);
        let block = gpu.malloc(3 * MIB).unwrap();
        gpu.free(block);
        let seen: Vec<_> = gpu
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
        let mut gpu = Timed::new(SimDevice::new(8 * MIB));
        let at = gpu.reserve(4 * MIB).unwrap();
        let handles = [gpu.create(2 * MIB).unwrap(), gpu.create(2 * MIB).unwrap()];
        gpu.map(at, &handles).unwrap();
        gpu.map(at.offset(4 * MIB), &[]).unwrap();
        assert_eq!((gpu.times.create.count, gpu.times.map.count), (2, 2));
        assert!(gpu.create(8 * MIB).is_err());
        assert_eq!(gpu.times.create.count, 3);
        assert_eq!(gpu.nanos().create, gpu.times.create.total_ns);
    }
}
