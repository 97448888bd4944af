//! `native`: every request goes straight to `cuMemAlloc`, every free to `cuMemFree`. The floor. Without rounding it is
//! `bound`, the bytes that are live.
//!
//! Nothing is cached, so nothing is lost: reserved is what is live. The price is a driver call for each event, and
//! `cuMemFree` waits for the whole GPU queue: the paper measured a training throughput 9.7 times lower (section 2.2).
//! Memory is charged in units of 512 bytes; how the driver packs small allocations into pages is the device's matter
//! (`device/pages.rs`).

use super::{
    AllocError, Allocation, Allocator, BlockId, BlockKind, BlockUse, BlockView, Ledger, Request,
    Slab, SlabIndex, Usage,
};
use crate::device::{Device, DeviceError, DevicePtr};
use crate::trace::{PoolId, StreamId};
use crate::units::{Bytes, round_up};

/// Alignment of what `cuMemAlloc` returns.
const ALIGNMENT: Bytes = 512;

#[derive(Debug, Clone, Copy)]
struct Block {
    at: DevicePtr,
    size: Bytes,
    requested: Bytes,
    stream: StreamId,
    state: BlockUse,
}

/// The allocator without a cache.
#[derive(Debug, Clone)]
pub struct Native {
    rounding: Bytes,
    blocks: Slab<Block>,
    ledger: Ledger,
    retries: u64,
}

impl Default for Native {
    fn default() -> Self {
        Self::new()
    }
}

impl Native {
    /// An allocator that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::with_rounding(ALIGNMENT)
    }

    /// An allocator that holds nothing and rounds each request to a multiple of `rounding` bytes.
    #[must_use]
    pub fn with_rounding(rounding: Bytes) -> Self {
        Self { rounding, blocks: Slab::default(), ledger: Ledger::default(), retries: 0 }
    }

    /// Memory from the device; when there is none, once more after all frees that only wait for a stream.
    fn obtain(&mut self, device: &mut dyn Device, size: Bytes) -> Result<DevicePtr, AllocError> {
        match device.malloc(size) {
            Err(DeviceError::OutOfMemory { .. }) if self.has_pending() => {}
            other => return other.map_err(|error| self.explain(error, size)),
        }
        self.retries += 1;
        device.synchronize();
        for index in 0..self.blocks.len() as SlabIndex {
            if self.blocks[index].state == BlockUse::Pending {
                self.complete(device, index);
            }
        }
        device.malloc(size).map_err(|error| self.explain(error, size))
    }

    fn has_pending(&self) -> bool {
        (0..self.blocks.len() as SlabIndex)
            .any(|index| self.blocks[index].state == BlockUse::Pending)
    }

    fn complete(&mut self, device: &mut dyn Device, index: SlabIndex) {
        let entry = &mut self.blocks[index];
        assert_eq!(entry.state, BlockUse::Pending, "completion of a block that was not freed");
        entry.state = BlockUse::Free;
        self.ledger.free_completed(entry.requested, entry.size);
        self.ledger.shrink(entry.size);
        device.free(entry.at);
        self.blocks.remove(index);
    }

    fn explain(&self, error: DeviceError, requested: Bytes) -> AllocError {
        match error {
            DeviceError::OutOfMemory { .. } => {
                AllocError::OutOfMemory { requested, usage: self.ledger.now() }
            }
            other => other.into(),
        }
    }
}

impl Allocator for Native {
    fn malloc(
        &mut self,
        device: &mut dyn Device,
        request: Request,
    ) -> Result<Allocation, AllocError> {
        let size = round_up(request.size, self.rounding);
        let at = self.obtain(device, size)?;
        let state = BlockUse::Allocated;
        let block = Block { at, size, requested: request.size, stream: request.stream, state };
        let index = self.blocks.insert(block);
        self.ledger.grow(size);
        self.ledger.malloc(request.size, size);
        Ok(Allocation { at, size, block: self.blocks.id(index) })
    }

    fn free_requested(&mut self, block: BlockId, _users: &[StreamId]) {
        let index = self.blocks.expect(block);
        let entry = &mut self.blocks[index];
        assert_eq!(entry.state, BlockUse::Allocated, "{block:?} was freed twice");
        entry.state = BlockUse::Pending;
        self.ledger.free_requested(entry.size);
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        if let Some(index) = self.blocks.find(block) {
            self.complete(device, index);
        }
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        self.free_requested(block, &[]);
        self.free_completed(device, block);
    }

    fn trim(&mut self, _device: &mut dyn Device) {}

    fn usage(&self) -> Usage {
        self.ledger.now()
    }

    fn peak(&self) -> Usage {
        self.ledger.peak()
    }

    fn retries(&self) -> u64 {
        self.retries
    }

    fn walk(&self, visit: &mut dyn FnMut(BlockView)) {
        let live = |index: &SlabIndex| self.blocks[*index].state != BlockUse::Free;
        let mut indices: Vec<_> = (0..self.blocks.len() as SlabIndex).filter(live).collect();
        indices.sort_by_key(|&index| self.blocks[index].at);
        for index in indices {
            let Block { at, size, requested, stream, state } = self.blocks[index];
            let block = Some(self.blocks.id(index));
            let (pool, kind) = (PoolId::DEFAULT, BlockKind::Large);
            let segment = at;
            visit(BlockView { block, at, size, requested, stream, state, pool, kind, segment });
        }
    }
}
