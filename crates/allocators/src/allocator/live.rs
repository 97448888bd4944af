//! Live blocks: what clients hold, from the request to the moment at which the memory is free again.
//!
//! A free has two moments, as in PyTorch: the client lets go, and the streams that used the memory are done. In
//! between a block is *pending*. Every allocator keeps the same account of that, and differs only in where a block
//! lives (`P`).
//!
//! ```text
//!   hand_out ──▶ allocated ──request_free──▶ pending ──complete──▶ gone
//!                    └───────────────free────────────────────────▶ gone       an id that is used again: a panic
//! ```

use super::{
    AllocError, Allocation, BlockId, BlockUse, BlockView, Ledger, Request, Slab, SlabIndex,
};
use crate::device::{DeviceError, DevicePtr};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// A block in a client's hands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveBlock<P> {
    /// Where it lives.
    pub(crate) place: P,
    pub(crate) at: DevicePtr,
    /// Bytes that the client asked for.
    pub(crate) requested: Bytes,
    /// Bytes that it was given.
    pub(crate) size: Bytes,
    /// The stream that asked for it.
    pub(crate) stream: StreamId,
    /// Allocated or pending.
    pub(crate) state: BlockUse,
}

/// All live blocks, and the account of their bytes.
#[derive(Debug, Clone)]
pub(crate) struct Live<P> {
    blocks: Slab<LiveBlock<P>>,
    pending: usize,
    /// The account.
    pub(crate) ledger: Ledger,
}

impl<P> Default for Live<P> {
    fn default() -> Self {
        Self { blocks: Slab::default(), pending: 0, ledger: Ledger::default() }
    }
}

impl<P: Clone> Live<P> {
    /// Gives a client `size` bytes at `at`, which is where `place` says.
    #[inline(always)]
    pub(crate) fn hand_out(
        &mut self,
        place: P,
        at: DevicePtr,
        request: Request,
        size: Bytes,
    ) -> Allocation {
        let Request { size: requested, stream, .. } = request;
        let state = BlockUse::Allocated;
        let index = self.blocks.insert(LiveBlock { place, at, requested, size, stream, state });
        self.ledger.malloc(requested, size);
        Allocation { at, size, block: self.blocks.id(index) }
    }

    /// The client lets go of a block that streams still use.
    ///
    /// # Panics
    /// If it has done so before.
    #[inline]
    pub(crate) fn request_free(&mut self, block: BlockId) {
        let index = self.allocated(block);
        let entry = &mut self.blocks[index];
        entry.state = BlockUse::Pending;
        self.pending += 1;
        self.ledger.free_requested(entry.size);
    }

    /// The streams are done with a pending block: here it is, to take its memory back. `None` if that has happened
    /// already ([`Live::take_pending`]).
    ///
    /// # Panics
    /// If the client has not let go of it.
    #[inline]
    pub(crate) fn complete(&mut self, block: BlockId) -> Option<LiveBlock<P>> {
        let index = self.blocks.find(block)?;
        assert_eq!(self.blocks[index].state, BlockUse::Pending, "{block:?} was not freed");
        self.pending -= 1;
        Some(self.remove(index))
    }

    /// The client lets go of a block that no other stream uses: here it is, to take its memory back.
    ///
    /// # Panics
    /// If it has done so before.
    #[inline]
    pub(crate) fn free(&mut self, block: BlockId) -> LiveBlock<P> {
        let index = self.allocated(block);
        self.ledger.free_requested(self.blocks[index].size);
        self.remove(index)
    }

    /// All pending blocks, to take their memory back: the GPU was waited for.
    pub(crate) fn take_pending(&mut self) -> Vec<LiveBlock<P>> {
        if self.pending == 0 {
            return Vec::new();
        }
        let pending = self.blocks.iter().filter(|(_, block)| block.state == BlockUse::Pending);
        let pending: Vec<SlabIndex> = pending.map(|(index, _)| index).collect();
        self.pending = 0;
        pending.into_iter().map(|index| self.remove(index)).collect()
    }

    /// Where a live block lives.
    #[cfg(test)]
    pub(crate) fn place(&self, block: BlockId) -> Option<P> {
        self.blocks.find(block).map(|index| self.blocks[index].place.clone())
    }

    /// Whether frees wait for streams.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending > 0
    }

    /// Every live block with its id, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockId, &LiveBlock<P>)> {
        self.blocks.iter().map(|(index, block)| (self.blocks.id(index), block))
    }

    /// Every live block with its place, as memory that the device gave for it alone; in no particular order.
    pub(crate) fn views(&self) -> impl Iterator<Item = (P, BlockView)> {
        self.iter().map(|(id, block)| {
            let view = BlockView::unnamed(block.at, block.size, block.stream, block.state);
            let (id, requested) = (Some(id), block.requested);
            (block.place.clone(), BlockView { block: id, requested, ..view })
        })
    }

    /// The device's error as the answer to a request.
    pub(crate) fn explain(&self, error: DeviceError, requested: Bytes) -> AllocError {
        match error {
            DeviceError::OutOfMemory { .. } => {
                AllocError::OutOfMemory { requested, usage: self.ledger.now() }
            }
            other => other.into(),
        }
    }

    #[inline]
    fn allocated(&self, block: BlockId) -> SlabIndex {
        let index = self.blocks.expect(block);
        assert_eq!(self.blocks[index].state, BlockUse::Allocated, "{block:?} was freed twice");
        index
    }

    #[inline]
    fn remove(&mut self, index: SlabIndex) -> LiveBlock<P> {
        let gone = self.blocks[index].clone();
        self.ledger.free_completed(gone.requested, gone.size);
        self.blocks.remove(index);
        gone
    }
}
