//! The front of both GMLakes: the accounts of live tensors, small requests, frees, and the view from outside.
//!
//! They differ in how they serve a large request and in what they give back ([`Stitcher`]); the rest of what an
//! allocator is asked is here.

use super::pblock::BlockState;
use super::{VmPool, Wanted};
use crate::allocator::caching::{SMALL_MAX, SMALL_SEGMENT, round_plain};
use crate::allocator::live::Live;
use crate::allocator::small_pool::{SmallBlock, SmallPool};
use crate::allocator::{
    AllocResult, Allocation, Allocator, BlockId, BlockKind, BlockUse, BlockView, Counter, Request,
    SlabIndex, Usage,
};
use crate::device::{Device, DeviceError, DevicePtr, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, round_up};

/// Where a tensor lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Small(SlabIndex),
    Primitive(SlabIndex),
    Stitched(SlabIndex),
}

/// One of the two GMLakes.
pub(crate) trait Stitcher: Send {
    fn front(&self) -> &Front;

    fn front_mut(&mut self) -> &mut Front;

    /// A block for a large request of whole chunks. Errors: out of memory, after all that it does about that; or a
    /// driver error.
    fn malloc_large(&mut self, device: &mut dyn Device, wanted: Wanted) -> Result<Place>;

    /// Waits for the GPU, completes what was pending, and gives back what is free, for another attempt.
    fn make_room(&mut self, device: &mut dyn Device);

    /// See [`Allocator::trim`].
    fn give_back_all(&mut self, device: &mut dyn Device);

    /// What it counts besides what the pool does: before that, and after it.
    fn own_counters(&self) -> (Vec<Counter>, Vec<Counter>);
}

impl<S: Stitcher> Allocator for S {
    #[inline]
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        let small = round_plain(request.size);
        let (size, place) = if small <= SMALL_MAX {
            (small, malloc_small(self, device, request.stream, small))
        } else {
            let pool = &self.front().pool;
            let size = round_up(small, pool.bytes(1));
            let wanted = Wanted { stream: request.stream, chunks: pool.chunks(small) };
            (size, self.malloc_large(device, wanted))
        };
        match place {
            Ok(place) => Ok(self.front_mut().hand_out(place, request, size)),
            Err(error) => {
                self.front_mut().ooms += 1;
                Err(self.front().live.explain(error, request.size))
            }
        }
    }

    fn free_requested(&mut self, block: BlockId, _users: &[StreamId]) {
        self.front_mut().live.request_free(block);
    }

    fn free_completed(&mut self, _device: &mut dyn Device, block: BlockId) {
        let front = self.front_mut();
        if let Some(block) = front.live.complete(block) {
            front.take_back(block.place, 0);
        }
    }

    fn free(&mut self, _device: &mut dyn Device, block: BlockId) {
        self.front_mut().free(block);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.give_back_all(device);
    }

    fn usage(&self) -> Usage {
        self.front().live.ledger.now()
    }

    fn peak(&self) -> Usage {
        self.front().live.ledger.peak()
    }

    fn retries(&self) -> u64 {
        self.front().retries
    }

    fn counters(&self) -> Vec<Counter> {
        let tally = self.front().pool.tally;
        let (mut counters, behind) = self.own_counters();
        counters.extend([
            ("sblocks_created", tally.created),
            ("sblocks_destroyed", tally.destroyed),
            ("sblocks_reused", tally.reused),
            ("chunks_mapped", tally.mapped),
            ("splits", tally.splits),
            ("stitched_bytes", tally.stitched),
            ("stitched_bytes_peak", tally.stitched_peak),
        ]);
        counters.extend(behind);
        counters
    }

    fn blocks(&self) -> Vec<BlockView> {
        self.front().blocks()
    }
}

/// A small block; when there is none, once more after all that is free was given back.
fn malloc_small(
    stitcher: &mut impl Stitcher,
    device: &mut dyn Device,
    stream: StreamId,
    size: Bytes,
) -> Result<Place> {
    match stitcher.front_mut().malloc_small(device, size, stream) {
        Err(DeviceError::OutOfMemory { .. }) => {}
        other => return other,
    }
    stitcher.front_mut().retries += 1;
    stitcher.make_room(device);
    stitcher.front_mut().malloc_small(device, size, stream)
}

/// Live tensors, small blocks, large blocks.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    pub(crate) live: Live<Place>,
    pub(crate) small: SmallPool,
    pub(crate) pool: VmPool,
    /// Times that everything free was given back to try again.
    pub(crate) retries: u64,
    /// Requests that were not served.
    pub(crate) ooms: u64,
}

impl Front {
    pub(crate) fn new(pool: VmPool) -> Self {
        Self { live: Live::default(), small: SmallPool::default(), pool, retries: 0, ooms: 0 }
    }

    /// A small block for a request of `size` bytes (rounded). Errors: out of memory or a driver error, when a new
    /// segment was needed.
    #[inline]
    pub(crate) fn malloc_small(
        &mut self,
        device: &mut dyn Device,
        size: Bytes,
        stream: StreamId,
    ) -> Result<Place> {
        if let Some(index) = self.small.malloc(size, stream) {
            return Ok(Place::Small(index));
        }
        self.small.grow(device, stream)?;
        self.live.ledger.grow(SMALL_SEGMENT);
        let index = self.small.malloc(size, stream).expect("a new segment fits every small block");
        Ok(Place::Small(index))
    }

    /// Hands a block out: `size` bytes for a request.
    #[inline]
    pub(crate) fn hand_out(&mut self, place: Place, request: Request, size: Bytes) -> Allocation {
        self.live.hand_out(place, self.address(place), request, size)
    }

    /// The client lets go of a block that no other stream uses.
    #[inline]
    pub(crate) fn free(&mut self, block: BlockId) {
        let block = self.live.free(block);
        let now = self.pool.tick();
        self.take_back(block.place, now);
    }

    /// After the device was synchronised: what waited for a stream is free.
    pub(crate) fn complete_all(&mut self) {
        for block in self.live.take_pending() {
            self.take_back(block.place, 0);
        }
    }

    /// Gives free segments of the small pool back.
    pub(crate) fn trim_small(&mut self, device: &mut dyn Device) {
        let freed = self.small.trim(device);
        self.live.ledger.shrink(freed);
    }

    /// Gives the memory of a free pBlock back.
    pub(crate) fn release(&mut self, device: &mut dyn Device, block: SlabIndex) {
        self.live.ledger.shrink(self.pool.bytes(self.pool.block(block).len));
        self.pool.release(device, block);
    }

    /// Where a live tensor is.
    #[cfg(test)]
    pub(crate) fn place(&self, block: BlockId) -> Place {
        self.live.place(block).expect("the block is live")
    }

    /// Whether the block was not given back yet.
    #[cfg(test)]
    pub(crate) fn is_live(&self, block: BlockId) -> bool {
        self.live.place(block).is_some()
    }

    /// Every block in address order. A tensor in an sBlock is shown at the sBlock's addresses, and the pBlocks
    /// under it as aliases, so that each byte of memory is shown once as allocated, pending or free. Each address is
    /// shown once, too: an idle sBlock on the addresses of its segment is not shown, and when it is in use, its
    /// pBlocks are not.
    pub(crate) fn blocks(&self) -> Vec<BlockView> {
        let mut views: Vec<_> = self.live.views().map(|block| self.tensor(block)).collect();
        let small = self.small.free_blocks();
        views.extend(small.map(|&SmallBlock { at, size, stream, segment, .. }| {
            let kind = BlockKind::Small;
            BlockView { kind, segment, ..BlockView::free(at, size, stream) }
        }));
        views.extend(self.pool.blocks().filter_map(|index| self.idle_pblock(index)));
        let idle = self.pool.sblocks().filter(|(_, sblock)| sblock.is_idle() && sblock.has_range());
        views.extend(idle.map(|(_, sblock)| {
            let (at, size, stream) = (sblock.at, self.pool.bytes(sblock.len), sblock.stream);
            let kind = BlockKind::Stitched;
            BlockView { kind, ..BlockView::unnamed(at, size, stream, BlockUse::Alias) }
        }));
        views.sort_by_key(|view| (view.at, view.state));
        let mut end = DevicePtr(0);
        views.retain(|view| {
            let is_shown = view.state != BlockUse::Alias || view.at >= end;
            end = if is_shown { view.at.offset(view.size) } else { end };
            is_shown
        });
        views
    }

    #[inline]
    fn take_back(&mut self, place: Place, stamp: u64) {
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

    fn tensor(&self, (place, view): (Place, BlockView)) -> BlockView {
        let (kind, segment) = match place {
            Place::Small(block) => (BlockKind::Small, self.small.block(block).segment),
            Place::Primitive(block) => (BlockKind::Large, self.pool.segment_at(block)),
            Place::Stitched(block) => match self.pool.sblock(block) {
                sblock if sblock.has_range() => (BlockKind::Stitched, view.at),
                sblock => (BlockKind::Large, self.pool.home_of(sblock)),
            },
        };
        BlockView { kind, segment, ..view }
    }

    /// A pBlock that no tensor uses by itself, if its memory is there.
    fn idle_pblock(&self, index: SlabIndex) -> Option<BlockView> {
        let block = self.pool.block(index);
        let state = match block.state {
            BlockState::Free => BlockUse::Free,
            BlockState::Held => BlockUse::Alias,
            BlockState::Used | BlockState::Gone => return None,
        };
        let segment = self.pool.segment_at(index);
        let view = BlockView::unnamed(block.at, self.pool.bytes(block.len), block.stream, state);
        Some(BlockView { segment, ..view })
    }
}
