//! The measurements: which combinations, in which order, and what came out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::CalibrationError;
use crate::cuda::{CudaDevice, Queue};
use crate::device::{Call, Device, GRANULE};
use crate::trace::StreamId;
use crate::units::{Bytes, GIB, KIB, MIB};

/// A block of `count` chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Bytes of each chunk.
    pub chunk: Bytes,
    /// How many.
    pub count: u64,
}

/// One combination of call, handles and size, and how long it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The call.
    pub call: &'static str,
    /// Handles that it was about.
    pub handles: u64,
    /// Bytes that it was about.
    pub size: Bytes,
    /// Bytes of each handle.
    pub chunk: Bytes,
    /// Whether the GPU's queue was full.
    pub busy: bool,
    /// How often it was measured.
    pub count: u64,
    /// Tenth percentile in nanoseconds.
    pub p10_ns: u64,
    /// Median in nanoseconds.
    pub p50_ns: u64,
    /// 90th percentile in nanoseconds.
    pub p90_ns: u64,
}

/// Sizes at which `cuMemAlloc`s share pages.
const SMALL_SIZES: [Bytes; 5] = [512, 16 * KIB, 128 * KIB, 512 * KIB, MIB];
/// How many of them are held at once.
const SMALL_BATCH: u32 = 64;
const ALLOC_SIZES: [Bytes; 8] =
    [2 * MIB, 20 * MIB, 32 * MIB, 64 * MIB, 128 * MIB, 512 * MIB, GIB, 2 * GIB];
const RESERVE_SIZES: [Bytes; 4] = [2 * MIB, 512 * MIB, 16 * GIB, 256 * GIB];
/// How often streams are put in order in a round.
const FENCES: u32 = 16;
/// Work that is queued before each call on a busy GPU.
const QUEUED: Duration = Duration::from_millis(8);

/// Identifies a sample: call, handles, size, chunk, busy.
type Key = (Call, u64, Bytes, Bytes, bool);

/// A device, and the times taken on it.
pub(super) struct Bench {
    device: CudaDevice,
    /// The largest block to build.
    most: Bytes,
    times: BTreeMap<Key, Vec<u64>>,
}

impl Bench {
    pub(super) fn new(device: CudaDevice, most: Bytes) -> Self {
        Self { device, most, times: BTreeMap::new() }
    }

    /// Throws the times away.
    pub(super) fn forget(&mut self) {
        self.times.clear();
    }

    /// Measures everything once, or until `over` says so.
    pub(super) fn round(&mut self, over: &dyn Fn() -> bool) -> Result<(), CalibrationError> {
        let most = self.most;
        for size in SMALL_SIZES {
            self.small(size)?;
        }
        for size in ALLOC_SIZES.into_iter().filter(|&size| size <= most) {
            self.alloc(size, None)?;
        }
        for size in RESERVE_SIZES {
            let at = self.time((Call::AddressReserve, 0, size, 0, false), |d| d.reserve(size))?;
            self.time((Call::AddressFree, 0, size, 0, false), |d| d.unreserve(at, size));
        }
        self.order();
        for shape in shapes(self.most) {
            if over() {
                break;
            }
            self.block(shape, None)?;
        }
        self.check()
    }

    /// Some of it again, each call after the queue was filled, until `over` says so.
    pub(super) fn busy_rounds(
        &mut self,
        queue: &mut Queue,
        over: &dyn Fn() -> bool,
    ) -> Result<(), CalibrationError> {
        let shapes = [(2 * MIB, 1), (2 * MIB, 16), (128 * MIB, 1), (512 * MIB, 1)]
            .map(|(chunk, count)| Shape { chunk, count });
        let most = self.most;
        loop {
            for shape in shapes.into_iter().filter(|shape| shape.size() <= most) {
                self.block(shape, Some(queue))?;
                self.alloc(shape.size(), Some(queue))?;
            }
            if over() {
                queue.drain()?;
                return self.check();
            }
        }
    }

    /// The samples, in order of call, size and handles.
    pub(super) fn finish(self) -> Vec<Sample> {
        self.times.into_iter().map(|(key, times)| sample(key, times)).collect()
    }

    fn check(&self) -> Result<(), CalibrationError> {
        self.device.first_error().map_or(Ok(()), |error| Err(error.clone().into()))
    }

    fn time<T>(&mut self, key: Key, run: impl FnOnce(&mut CudaDevice) -> T) -> T {
        let start = Instant::now();
        let result = run(&mut self.device);
        let ns = start.elapsed().as_nanos() as u64;
        self.times.entry(key).or_default().push(ns);
        result
    }

    /// The average over a batch: most calls find room in a page that is there, and some have to get one.
    fn small(&mut self, size: Bytes) -> Result<(), CalibrationError> {
        let mut average = |call: Call, start: Instant| {
            let ns = start.elapsed().as_nanos() as u64 / u64::from(SMALL_BATCH);
            self.times.entry((call, 1, size, size, false)).or_default().push(ns);
        };
        let start = Instant::now();
        let blocks: Result<Vec<_>, _> =
            (0..SMALL_BATCH).map(|_| self.device.malloc(size)).collect();
        average(Call::MemAlloc, start);
        let blocks = blocks?;
        let start = Instant::now();
        blocks.into_iter().for_each(|block| self.device.free(block));
        average(Call::MemFree, start);
        Ok(())
    }

    /// Two streams put in order.
    fn order(&mut self) {
        let (first, second) = (StreamId(0), StreamId(1));
        for _ in 0..FENCES {
            let key = |call| (call, 0, 0, 0, false);
            let fence = self.time(key(Call::EventRecord), |d| d.fence(first));
            self.time(key(Call::StreamWait), |d| d.stream_wait(second, fence));
            self.time(key(Call::EventQuery), |d| d.reached(fence));
            self.device.drop_fence(fence);
        }
    }

    fn alloc(&mut self, size: Bytes, queue: Option<&mut Queue>) -> Result<(), CalibrationError> {
        let mut fill = Fill(queue);
        let busy = fill.now()?;
        let at = self.time((Call::MemAlloc, 1, size, size, busy), |d| d.malloc(size))?;
        fill.now()?;
        self.time((Call::MemFree, 1, size, size, busy), |d| d.free(at));
        Ok(())
    }

    /// Builds a block out of chunks, and takes it down.
    fn block(&mut self, shape: Shape, queue: Option<&mut Queue>) -> Result<(), CalibrationError> {
        let (Shape { chunk, count }, size) = (shape, shape.size());
        let mut fill = Fill(queue);
        let busy = fill.now()?;
        let at = self.time((Call::AddressReserve, 0, size, chunk, busy), |d| d.reserve(size))?;
        let mut handles = Vec::with_capacity(count as usize);
        for _ in 0..count {
            handles.push(self.time((Call::Create, 1, chunk, chunk, busy), |d| d.create(chunk))?);
        }
        fill.now()?;
        self.time((Call::Map, count, size, chunk, busy), |d| d.map(at, &handles))?;
        self.time((Call::SetAccess, count, size, chunk, busy), |d| d.set_access(at, size))?;
        fill.now()?;
        self.time((Call::Unmap, count, size, chunk, busy), |d| d.unmap(at, size));
        for handle in handles {
            self.time((Call::Release, 1, chunk, chunk, busy), |d| d.release(handle));
        }
        self.time((Call::AddressFree, 0, size, chunk, busy), |d| d.unreserve(at, size));
        Ok(())
    }
}

impl Shape {
    /// Bytes in all.
    pub fn size(self) -> Bytes {
        self.chunk * self.count
    }
}

/// A queue to keep full, if there is one.
struct Fill<'q>(Option<&'q mut Queue>);

impl Fill<'_> {
    /// Whether the GPU is busy from here on.
    fn now(&mut self) -> Result<bool, CalibrationError> {
        if let Some(queue) = &mut self.0 {
            queue.fill(QUEUED)?;
        }
        Ok(self.0.is_some())
    }
}

/// The paper's blocks of 512 MiB to 2 GiB in chunks from 2 MiB to 1 GiB, and small ones.
fn shapes(most: Bytes) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for size in [2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB, GIB, 2 * GIB] {
        let mut chunk = GRANULE;
        while chunk <= size.min(GIB) && size <= most {
            shapes.push(Shape { chunk, count: size / chunk });
            chunk *= 2;
        }
    }
    shapes
}

fn sample((call, handles, size, chunk, busy): Key, mut times: Vec<u64>) -> Sample {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let (p10_ns, p50_ns, p90_ns) = (at(0.1), at(0.5), at(0.9));
    let (call, count) = (call.name(), times.len() as u64);
    Sample { call, handles, size, chunk, busy, count, p10_ns, p50_ns, p90_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_hold_the_papers_and_respect_the_memory() {
        let all = shapes(2 * GIB);
        let has = |chunk, count| all.contains(&Shape { chunk, count });
        assert!(has(2 * MIB, 1024) && has(128 * MIB, 16) && has(GIB, 2) && has(GIB, 1));
        assert!(shapes(100 * MIB).iter().all(|shape| shape.size() <= 100 * MIB));
    }

    #[test]
    fn a_sample_is_made_of_order_statistics() {
        let found = sample((Call::Create, 1, 2, 2, false), (0..=100).rev().collect());
        assert_eq!((found.p10_ns, found.p50_ns, found.p90_ns), (10, 50, 90));
        assert_eq!(found.call, "create");
    }
}
