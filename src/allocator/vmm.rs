//! `vmm`: the plain virtual memory allocator that the paper measures before it proposes a better one (section 2.5).
//!
//! Each request is rounded up to whole chunks, for which it reserves a range, creates the chunks, maps them and makes
//! them accessible; a free undoes all of it. There is no pool, so nothing is lost beyond the rounding, and every
//! tensor pays the full price: with 2 MiB chunks more than a hundred times that of `cuMemAlloc` (Table 1).
//!
//! ```text
//!   malloc(5 MiB)   reserve 6 MiB ─▶ 3 x (create, map, set_access)      free   unmap ─▶ 3 x release ─▶ unreserve
//! ```

use super::{
    AllocError, Allocation, Allocator, BlockId, BlockKind, BlockUse, BlockView, Ledger,
    OptionError, OptionSpec, Options, Request, Slab, SlabIndex, Usage,
};
use crate::device::{Device, DeviceError, DevicePtr, GRANULE, HandleId};
use crate::trace::{PoolId, StreamId};
use crate::units::{Bytes, round_up};

#[derive(Debug, Clone)]
struct Block {
    at: DevicePtr,
    handles: Vec<HandleId>,
    requested: Bytes,
    stream: StreamId,
    state: BlockUse,
}

/// The allocator that does nothing but call the driver.
#[derive(Debug, Clone)]
pub struct Vmm {
    blocks: Slab<Block>,
    ledger: Ledger,
    chunk: Bytes,
    pending: u64,
    retries: u64,
}

impl Vmm {
    /// The options as a user sees them.
    pub const SPECS: &'static [OptionSpec] = &[OptionSpec {
        name: "chunk",
        default: "2MiB",
        help: "size of a physical chunk, a multiple of 2 MiB; requests are rounded up to it",
    }];

    /// An allocator that holds nothing; `chunk` is a multiple of 2 MiB, in bytes.
    #[must_use]
    pub fn new(chunk: Bytes) -> Self {
        let (blocks, ledger) = (Slab::default(), Ledger::default());
        Self { blocks, ledger, chunk, pending: 0, retries: 0 }
    }

    /// Makes the allocator from its options.
    ///
    /// # Errors
    /// If the size of a chunk is not a multiple of 2 MiB.
    pub fn from_options(options: &mut Options) -> Result<Self, OptionError> {
        Ok(Self::new(options.chunk("chunk", GRANULE)?))
    }

    /// Memory for `size` bytes; when there is none, once more after all frees that only wait for a stream.
    fn obtain(
        &mut self,
        device: &mut dyn Device,
        size: Bytes,
    ) -> Result<(DevicePtr, Vec<HandleId>), AllocError> {
        match self.obtain_once(device, size) {
            Err(DeviceError::OutOfMemory { .. }) if self.pending > 0 => {}
            other => return other.map_err(|error| self.explain(error, size)),
        }
        self.retries += 1;
        device.synchronize();
        for index in 0..self.blocks.len() as SlabIndex {
            if self.blocks[index].state == BlockUse::Pending {
                self.complete(device, index);
            }
        }
        self.obtain_once(device, size).map_err(|error| self.explain(error, size))
    }

    fn obtain_once(
        &self,
        device: &mut dyn Device,
        size: Bytes,
    ) -> Result<(DevicePtr, Vec<HandleId>), DeviceError> {
        let at = device.reserve(size)?;
        let count = size / self.chunk;
        let mut handles = Vec::with_capacity(count as usize);
        match self.back(device, at, count, &mut handles) {
            Ok(()) => Ok((at, handles)),
            Err(error) => {
                device.release_each(&handles);
                device.unreserve(at, size);
                Err(error)
            }
        }
    }

    /// Creates, maps and opens `count` chunks. After an error nothing is mapped.
    fn back(
        &self,
        device: &mut dyn Device,
        at: DevicePtr,
        count: u64,
        handles: &mut Vec<HandleId>,
    ) -> Result<(), DeviceError> {
        device.create_each(self.chunk, count as usize, handles)?;
        device.map(at, handles)?;
        device
            .set_access_each(at, self.chunk, count as usize)
            .inspect_err(|_| device.unmap(at, count * self.chunk))
    }

    fn complete(&mut self, device: &mut dyn Device, index: SlabIndex) {
        let size = self.size(index);
        let block = &mut self.blocks[index];
        assert_eq!(block.state, BlockUse::Pending, "completion of a block that was not freed");
        block.state = BlockUse::Free;
        self.pending -= 1;
        self.ledger.free_completed(block.requested, size);
        self.ledger.shrink(size);
        device.unmap(block.at, size);
        device.release_each(&std::mem::take(&mut block.handles));
        device.unreserve(block.at, size);
        self.blocks.remove(index);
    }

    fn size(&self, index: SlabIndex) -> Bytes {
        self.blocks[index].handles.len() as Bytes * self.chunk
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

impl Allocator for Vmm {
    fn malloc(
        &mut self,
        device: &mut dyn Device,
        request: Request,
    ) -> Result<Allocation, AllocError> {
        let Request { size: requested, stream, .. } = request;
        let size = round_up(requested, self.chunk);
        let (at, handles) = self.obtain(device, size)?;
        let state = BlockUse::Allocated;
        let index = self.blocks.insert(Block { at, handles, requested, stream, state });
        self.ledger.grow(size);
        self.ledger.malloc(requested, size);
        Ok(Allocation { at, size, block: self.blocks.id(index) })
    }

    fn free_requested(&mut self, block: BlockId, _users: &[StreamId]) {
        let index = self.blocks.expect(block);
        let size = self.size(index);
        let entry = &mut self.blocks[index];
        assert_eq!(entry.state, BlockUse::Allocated, "{block:?} was freed twice");
        entry.state = BlockUse::Pending;
        self.pending += 1;
        self.ledger.free_requested(size);
    }

    /// The other streams are done, but its own may not be, and `unmap` does not wait for the GPU: so we do.
    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        if let Some(index) = self.blocks.find(block) {
            device.synchronize();
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
            let Block { at, requested, stream, state, .. } = self.blocks[index];
            let (block, size) = (Some(self.blocks.id(index)), self.size(index));
            let (pool, kind) = (PoolId::DEFAULT, BlockKind::Large);
            let segment = at;
            visit(BlockView { block, at, size, requested, stream, state, pool, kind, segment });
        }
    }
}
