//! `native`: every request goes straight to `cuMemAlloc`, every free to `cuMemFree`. The floor. Without rounding it is
//! `bound`, the bytes that are live.
//!
//! Nothing is cached, so nothing is lost: reserved is what is live. The price is a driver call for each event, and
//! `cuMemFree` waits for the whole GPU queue: the paper measured a training throughput 9.7 times lower (section 2.2).
//! Memory is charged in units of 512 bytes; how the driver packs small allocations into pages is the device's matter
//! (`device/pages.rs`).

use super::live::Live;
use super::{AllocError, AllocResult, Allocator, BlockId, BlockKind, BlockView, Request, Usage};
use crate::device::{Device, DeviceError, DevicePtr};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, round_up};

/// Alignment of what `cuMemAlloc` returns.
const ALIGNMENT: Bytes = 512;

/// The allocator without a cache.
#[derive(Debug, Clone)]
pub struct Native {
    rounding: Bytes,
    live: Live<()>,
    retries: u64,
}

impl Default for Native {
    fn default() -> Self {
        Self::new()
    }
}

impl Native {
    /// An allocator that holds nothing.
    pub fn new() -> Self {
        Self::with_rounding(ALIGNMENT)
    }

    /// An allocator that holds nothing and rounds each request to a multiple of `rounding` bytes.
    pub fn with_rounding(rounding: Bytes) -> Self {
        Self { rounding, live: Live::default(), retries: 0 }
    }

    /// Memory from the device; when there is none, once more after all frees that only wait for a stream.
    fn obtain(&mut self, device: &mut dyn Device, size: Bytes) -> Result<DevicePtr, AllocError> {
        match device.malloc(size) {
            Err(DeviceError::OutOfMemory { .. }) if self.live.has_pending() => {}
            other => return other.map_err(|error| self.live.explain(error, size)),
        }
        self.retries += 1;
        device.synchronize();
        for block in self.live.take_pending() {
            self.give_back(device, block.at, block.size);
        }
        device.malloc(size).map_err(|error| self.live.explain(error, size))
    }

    fn give_back(&mut self, device: &mut dyn Device, at: DevicePtr, size: Bytes) {
        self.live.shrink(size);
        device.free(at);
    }
}

impl Allocator for Native {
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        let size = round_up(request.size, self.rounding);
        let at = self.obtain(device, size)?;
        self.live.grow(size);
        Ok(self.live.hand_out((), at, request, size))
    }

    fn free_requested(&mut self, block: BlockId, _users: &[StreamId]) {
        self.live.request_free(block);
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        if let Some(block) = self.live.complete(block) {
            self.give_back(device, block.at, block.size);
        }
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        let block = self.live.free(block);
        self.give_back(device, block.at, block.size);
    }

    fn trim(&mut self, _device: &mut dyn Device) {}

    fn usage(&self) -> Usage {
        self.live.usage()
    }

    fn peak(&self) -> Usage {
        self.live.peak()
    }

    fn retries(&self) -> u64 {
        self.retries
    }

    fn walk(&self, visit: &mut dyn FnMut(BlockView)) {
        self.live.walk(BlockKind::Large, visit);
    }
}
