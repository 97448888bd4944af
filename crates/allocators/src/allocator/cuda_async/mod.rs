//! `cuda-async`: CUDA's stream-ordered pool (`cudaMallocAsync`), as PyTorch uses it: nothing is given back by itself.
//!
//! The pool is one range of addresses. What is freed on a stream stays with that stream at first, and the stream's
//! next request of that size takes it at once: best fit, cut at the low end, the oldest of several equals, and ranges
//! that touch are one. Only a request that finds nothing there turns to the pool, and takes
//!
//! ```text
//!   1. the best fit of this stream           freed on it, done or not
//!   2. the best fit of the pool              only of ranges with memory behind all of it
//!   3. the best fit of another stream        only of what that stream is done with
//!   4. all that is done goes to the pool     by stream, what was freed last in front
//!   5. the best fit of the pool              whatever is behind it; the end of the range is its largest free range
//! ```
//!
//! Memory comes in chunks of 32 MiB. Where step 5 finds addresses without memory, chunks that are free as a whole move
//! there, those with the highest addresses first, and only what is still missing is created. So the pool grows only
//! when more chunks are touched than it has, and fragments far less than its addresses do.
//!
//! Nothing of this is documented. It was found out from what an H200 answered to scripts, and decides
//! as it did on all of them (`answers.rs`, `reports/rows.md`). Not known: the order in step 3 with more
//! than two streams, and what happens when memory is short (here: wait for the GPU, then step 4 and 5 again).

use super::pool::{Place, Policy};
use super::{BlockView, Counter};
use crate::device::{Device, DeviceError, DevicePtr, Fence, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, round_up};

use self::idle::Idle;
use self::ranges::{Range, Ranges};

#[cfg(test)]
mod answers;
mod chunks;
mod idle;
mod ranges;

/// All sizes are multiples of this.
const UNIT: Bytes = 512;
/// Addresses of the pool. What the original reserves is not known.
const ADDRESSES: Bytes = 1 << 42;

/// What was freed on a stream and has not gone to the pool.
#[derive(Debug, Clone, Default)]
struct Queued {
    stream: StreamId,
    ranges: Ranges,
    /// The stream is known to be done with all that was freed up to this moment.
    done: u64,
}

impl Queued {
    /// Asks the device how far the stream is.
    fn poll(&mut self, device: &mut dyn Device) {
        let mut ranges = self.ranges.by_age();
        ranges.retain(|range| range.freed > self.done);
        for range in ranges {
            if !range.fence.is_none_or(|fence| device.reached(fence)) {
                break;
            }
            self.done = range.freed;
        }
    }

    /// Adds bytes that were freed; the fence is behind their last use.
    fn free(&mut self, device: &mut dyn Device, bytes: (u64, Bytes), fence: Fence) {
        let mut merged = Vec::new();
        self.ranges.free(bytes, Some(fence), &mut merged);
        merged.into_iter().filter_map(|range| range.fence).for_each(|last| device.drop_fence(last));
    }

    /// Takes the first bytes of a range.
    fn cut(&mut self, device: &mut dyn Device, range: &Range, size: Bytes) -> u64 {
        if self.ranges.cut(range, size).is_none()
            && let Some(fence) = range.fence
        {
            device.drop_fence(fence);
        }
        range.at
    }

    /// Takes out all that is done, what was freed last in front.
    fn take_done(&mut self, device: &mut dyn Device) -> Vec<Range> {
        let mut done = self.ranges.by_age();
        done.retain(|range| range.freed <= self.done);
        done.reverse();
        for range in &done {
            self.ranges.remove(range);
            range.fence.into_iter().for_each(|fence| device.drop_fence(fence));
        }
        done
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct CudaAsync {
    base: Option<DevicePtr>,
    idle: Idle,
    /// In the order in which the streams were first seen.
    queued: Vec<Queued>,
}

impl CudaAsync {
    /// The first address, reserved with the first request.
    fn base(&mut self, device: &mut dyn Device) -> Result<DevicePtr> {
        if let Some(base) = self.base {
            return Ok(base);
        }
        let base = device.reserve(ADDRESSES)?;
        self.base = Some(base);
        self.idle.free((0, ADDRESSES));
        Ok(base)
    }

    /// The number of a stream's list.
    fn list_of(&mut self, stream: StreamId) -> usize {
        let known = self.queued.iter().position(|list| list.stream == stream);
        known.unwrap_or_else(|| {
            self.queued.push(Queued { stream, ..Queued::default() });
            self.queued.len() - 1
        })
    }

    fn search(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<u64> {
        let base = self.base(device)?;
        let own = self.list_of(stream);
        if let Some(range) = self.queued[own].ranges.best(size, |_| true) {
            return Ok(self.queued[own].cut(device, &range, size));
        }
        if let Some(at) = self.idle.take_whole(size) {
            return Ok(at);
        }
        self.queued.iter_mut().for_each(|list| list.poll(device));
        for list in (0..self.queued.len()).filter(|&list| list != own) {
            let list = &mut self.queued[list];
            if let Some(range) = list.ranges.best(size, |range| range.freed <= list.done) {
                return Ok(list.cut(device, &range, size));
            }
        }
        self.collect(device);
        match self.idle.take_any(device, base, size) {
            Err(DeviceError::OutOfMemory { .. }) if self.has_queued() => {
                device.synchronize();
                self.queued.iter_mut().for_each(|list| list.poll(device));
                self.collect(device);
                self.idle.take_any(device, base, size)
            }
            other => other,
        }
    }

    fn has_queued(&self) -> bool {
        self.queued.iter().any(|list| list.ranges.iter().next().is_some())
    }

    /// All that is known to be done goes to the pool.
    fn collect(&mut self, device: &mut dyn Device) {
        for list in &mut self.queued {
            for range in list.take_done(device) {
                self.idle.free((range.at, range.size));
            }
        }
    }
}

impl Policy for CudaAsync {
    fn round(&self, size: Bytes) -> Bytes {
        round_up(size, UNIT)
    }

    fn take(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place> {
        let offset = self.search(device, size, stream)?;
        let at = self.segment(DevicePtr(0)).offset(offset);
        Ok(Place { at, size })
    }

    fn give(&mut self, device: &mut dyn Device, place: Place, stream: StreamId) {
        let offset = place.at.0 - self.segment(place.at).0;
        let list = self.list_of(stream);
        let fence = device.fence(stream);
        self.queued[list].free(device, (offset, place.size), fence);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        let Some(base) = self.base else { return };
        device.synchronize();
        self.queued.iter_mut().for_each(|list| list.poll(device));
        self.collect(device);
        self.idle.trim(device, base);
        if self.idle.held() == 0 {
            device.unreserve(base, ADDRESSES);
            let moved = self.idle.moved;
            *self = Self::default();
            self.idle.moved = moved;
        }
    }

    fn held(&self) -> Bytes {
        self.idle.held()
    }

    fn segment(&self, at: DevicePtr) -> DevicePtr {
        self.base.unwrap_or(at)
    }

    fn free(&self) -> Vec<BlockView> {
        let base = self.segment(DevicePtr(0));
        let queued = self.queued.iter().map(|list| (list.stream, &list.ranges));
        let lists = queued.chain([(StreamId(0), &self.idle.ranges)]);
        let ranges = lists.flat_map(|(stream, list)| list.iter().map(move |range| (stream, range)));
        let views = ranges.flat_map(|(stream, range)| {
            let parts = self.idle.chunks.parts(range.at, range.size).into_iter();
            parts.map(move |(at, size)| BlockView::free(base.offset(at), size, stream))
        });
        views.collect()
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("chunks moved", self.idle.moved)]
    }
}
