//! The front of both GMLakes: the accounts of live tensors, small requests, frees, and the view from outside.

use super::VmPool;
use super::pblock::BlockState;
use crate::allocator::small_pool::{SMALL_SEGMENT, SmallBlock, SmallPool};
use crate::allocator::{
    AllocError, Allocation, BlockId, BlockKind, BlockUse, BlockView, Ledger, Request, Slab,
    SlabIndex,
};
use crate::device::{Device, DeviceError, DevicePtr};
use crate::trace::{PoolId, StreamId};
use crate::units::Bytes;

/// Where a tensor lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::allocator) enum Place {
    /// In a block of the small pool.
    Small(SlabIndex),
    /// In a pBlock.
    Primitive(SlabIndex),
    /// In an sBlock.
    Stitched(SlabIndex),
}

/// A block in a client's hands.
#[derive(Debug, Clone, Copy)]
struct Tensor {
    place: Place,
    requested: Bytes,
    size: Bytes,
    state: BlockUse,
}

/// Live tensors, small blocks, large blocks.
#[derive(Debug, Clone)]
pub(in crate::allocator) struct Front {
    tensors: Slab<Tensor>,
    pending: usize,
    small: SmallPool,
    /// The large blocks.
    pub(in crate::allocator) pool: VmPool,
    /// The accounts.
    pub(in crate::allocator) ledger: Ledger,
    /// Times that everything free was given back to try again.
    pub(in crate::allocator) retries: u64,
}

impl Front {
    /// Nothing held, nothing live.
    pub(in crate::allocator) fn new(pool: VmPool) -> Self {
        Self {
            tensors: Slab::default(),
            pending: 0,
            small: SmallPool::default(),
            pool,
            ledger: Ledger::default(),
            retries: 0,
        }
    }

    /// A small block for a request of `size` bytes (rounded).
    ///
    /// # Errors
    /// Out of memory or a driver error, when a new segment was needed.
    #[inline]
    pub(in crate::allocator) fn malloc_small(
        &mut self,
        device: &mut dyn Device,
        size: Bytes,
        stream: StreamId,
    ) -> Result<Place, DeviceError> {
        if let Some(index) = self.small.malloc(size, stream) {
            return Ok(Place::Small(index));
        }
        self.small.grow(device, stream)?;
        self.ledger.grow(SMALL_SEGMENT);
        let index = self.small.malloc(size, stream).expect("a new segment fits every small block");
        Ok(Place::Small(index))
    }

    /// Hands a block out: `size` bytes for a request.
    #[inline]
    pub(in crate::allocator) fn hand_out(
        &mut self,
        place: Place,
        request: Request,
        size: Bytes,
    ) -> Allocation {
        let requested = request.size;
        let at = self.address(place);
        let tensor = Tensor { place, requested, size, state: BlockUse::Allocated };
        let index = self.tensors.insert(tensor);
        self.ledger.malloc(requested, size);
        Allocation { at, size, block: self.tensors.id(index) }
    }

    /// The client lets go of a block which other streams still use.
    #[inline]
    pub(in crate::allocator) fn request_free(&mut self, block: BlockId) {
        let index = self.tensors.expect(block);
        let tensor = &mut self.tensors[index];
        assert_eq!(tensor.state, BlockUse::Allocated, "{block:?} was freed twice");
        tensor.state = BlockUse::Pending;
        self.pending += 1;
        self.ledger.free_requested(tensor.size);
    }

    /// The streams are done with a block.
    pub(in crate::allocator) fn complete_free(&mut self, block: BlockId) {
        if let Some(index) = self.tensors.find(block) {
            assert_eq!(self.tensors[index].state, BlockUse::Pending, "{block:?} was not freed");
            self.pending -= 1;
            self.take_back(index, 0);
        }
    }

    /// The client lets go of a block that no other stream uses.
    #[inline]
    pub(in crate::allocator) fn free(&mut self, block: BlockId) {
        let index = self.tensors.expect(block);
        let tensor = &self.tensors[index];
        assert_eq!(tensor.state, BlockUse::Allocated, "{block:?} was freed twice");
        self.ledger.free_requested(tensor.size);
        let now = self.pool.tick();
        self.take_back(index, now);
    }

    /// After the device was synchronised: what waited for a stream is free.
    pub(in crate::allocator) fn complete_all(&mut self) {
        if self.pending == 0 {
            return;
        }
        for index in 0..self.tensors.len() as SlabIndex {
            if self.tensors[index].state == BlockUse::Pending {
                self.take_back(index, 0);
            }
        }
        self.pending = 0;
    }

    /// Gives free segments of the small pool back.
    pub(in crate::allocator) fn trim_small(&mut self, device: &mut dyn Device) {
        let freed = self.small.trim(device);
        self.ledger.shrink(freed);
    }

    /// Gives the memory of a free pBlock back.
    pub(in crate::allocator) fn release(&mut self, device: &mut dyn Device, block: SlabIndex) {
        self.ledger.shrink(self.pool.bytes(self.pool.block(block).len));
        self.pool.release(device, block);
    }

    /// Where a live tensor is.
    #[cfg(test)]
    pub(in crate::allocator) fn place(&self, block: BlockId) -> Place {
        self.tensors[self.tensors.expect(block)].place
    }

    /// Whether the block was not given back yet.
    #[cfg(test)]
    pub(in crate::allocator) fn is_live(&self, block: BlockId) -> bool {
        self.tensors.find(block).is_some()
    }

    /// Segments of the small pool.
    pub(in crate::allocator) fn small_segments(&self) -> u64 {
        self.small.segments()
    }

    /// `error` as the answer to a request.
    pub(in crate::allocator) fn explain(&self, error: DeviceError, requested: Bytes) -> AllocError {
        match error {
            DeviceError::OutOfMemory { .. } => {
                AllocError::OutOfMemory { requested, usage: self.ledger.now() }
            }
            other => other.into(),
        }
    }

    /// Shows every block in address order. A tensor in an sBlock is shown at the sBlock's addresses, and the pBlocks
    /// under it as aliases, so that each byte of memory is shown once as allocated, pending or free. Each address is
    /// shown once, too: an idle sBlock on the addresses of its segment is not shown, and when it is in use, its
    /// pBlocks are not.
    pub(in crate::allocator) fn walk(&self, visit: &mut dyn FnMut(BlockView)) {
        let mut views = Vec::new();
        self.walk_tensors(&mut views);
        self.walk_idle(&mut views);
        views.sort_by_key(|view| (view.at, view.state));
        let mut end = DevicePtr(0);
        for view in views {
            if view.state != BlockUse::Alias || view.at >= end {
                end = view.at.offset(view.size);
                visit(view);
            }
        }
    }

    #[inline]
    fn take_back(&mut self, index: SlabIndex, stamp: u64) {
        let Tensor { place, requested, size, .. } = self.tensors[index];
        self.ledger.free_completed(requested, size);
        self.tensors[index].state = BlockUse::Free;
        self.tensors.remove(index);
        match place {
            Place::Small(block) => self.small.free(block),
            Place::Primitive(block) => self.pool.give(block, stamp),
            Place::Stitched(block) => self.pool.give_stitched(block, stamp),
        }
    }

    #[inline]
    fn address(&self, place: Place) -> DevicePtr {
        match place {
            Place::Small(block) => self.small.block(block).at,
            Place::Primitive(block) => self.pool.block(block).at,
            Place::Stitched(block) => self.pool.sblock(block).at,
        }
    }

    fn walk_tensors(&self, views: &mut Vec<BlockView>) {
        for index in 0..self.tensors.len() as SlabIndex {
            let Tensor { place, requested, size, state } = self.tensors[index];
            if state == BlockUse::Free {
                continue;
            }
            let at = self.address(place);
            let (stream, kind, segment) = match place {
                Place::Small(block) => {
                    let block = self.small.block(block);
                    (block.stream, BlockKind::Small, block.segment)
                }
                Place::Primitive(block) => {
                    let segment = self.pool.segment_at(block);
                    (self.pool.block(block).stream, BlockKind::Large, segment)
                }
                Place::Stitched(block) => {
                    let sblock = self.pool.sblock(block);
                    let (kind, segment) = match sblock.has_range() {
                        true => (BlockKind::Stitched, at),
                        false => (BlockKind::Large, self.pool.home_of(sblock)),
                    };
                    (sblock.stream, kind, segment)
                }
            };
            let block = Some(self.tensors.id(index));
            let pool = PoolId::DEFAULT;
            views.push(BlockView {
                block,
                at,
                size,
                requested,
                stream,
                state,
                pool,
                kind,
                segment,
            });
        }
    }

    fn walk_idle(&self, views: &mut Vec<BlockView>) {
        let nothing = BlockView {
            block: None,
            at: DevicePtr(0),
            size: 0,
            requested: 0,
            stream: StreamId(0),
            state: BlockUse::Free,
            pool: PoolId::DEFAULT,
            kind: BlockKind::Large,
            segment: DevicePtr(0),
        };
        for (_, block) in self.small.blocks().filter(|(_, block)| block.is_free) {
            let SmallBlock { at, size, stream, segment, .. } = *block;
            let kind = BlockKind::Small;
            views.push(BlockView { at, size, stream, kind, segment, ..nothing });
        }
        for index in self.pool.blocks() {
            let block = self.pool.block(index);
            let state = match block.state {
                BlockState::Free => BlockUse::Free,
                BlockState::Held => BlockUse::Alias,
                BlockState::Used | BlockState::Gone => continue,
            };
            let (at, stream) = (block.at, block.stream);
            let (size, segment) = (self.pool.bytes(block.len), self.pool.segment_at(index));
            views.push(BlockView { at, size, stream, state, segment, ..nothing });
        }
        let sblocks = self.pool.sblocks().map(|index| self.pool.sblock(index));
        for sblock in sblocks.filter(|sblock| sblock.is_idle() && sblock.has_range()) {
            let (at, size, stream) = (sblock.at, self.pool.bytes(sblock.len), sblock.stream);
            let (state, kind) = (BlockUse::Alias, BlockKind::Stitched);
            views.push(BlockView { at, size, stream, state, kind, segment: at, ..nothing });
        }
    }
}
