//! pBlocks: contiguous runs of chunks of one segment, which they divide among them without a gap.

use super::size_order::SizeKey;
use super::{Extent, VmPool, Wanted};
use crate::allocator::SlabIndex;
use crate::device::DevicePtr;
use gmlake_core::program::StreamId;

/// What a pBlock is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// Nothing; it is listed.
    Free,
    /// A tensor.
    Used,
    /// A tensor that lives in an sBlock over it.
    Held,
    /// Its memory was given back; only the addresses are left.
    Gone,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PBlock {
    pub(crate) segment: SlabIndex,
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) at: DevicePtr,
    pub(crate) stream: StreamId,
    pub(crate) state: BlockState,
    /// When a part of it was last freed; 0 for never.
    pub(crate) stamp: u64,
    is_listed: bool,
}

impl PBlock {
    pub(super) fn free(extent: Extent, at: DevicePtr, stream: StreamId) -> Self {
        let Extent { segment, start, len } = extent;
        Self {
            segment,
            start,
            len,
            at,
            stream,
            state: BlockState::Free,
            stamp: 0,
            is_listed: false,
        }
    }

    #[inline]
    pub(crate) fn extent(&self) -> Extent {
        Extent { segment: self.segment, start: self.start, len: self.len }
    }
}

impl VmPool {
    #[inline]
    pub(crate) fn block(&self, index: SlabIndex) -> &PBlock {
        &self.blocks[index]
    }

    /// The smallest free pBlock with at least the wanted chunks, the lowest address among equals.
    #[inline]
    pub(crate) fn best_fit(&mut self, Wanted { stream, chunks }: Wanted) -> Option<SlabIndex> {
        loop {
            let key = self.free.best_fit(stream, chunks)?;
            let block = &mut self.blocks[key.index()];
            if block.state == BlockState::Free {
                return Some(key.index());
            }
            block.is_listed = false;
            self.free.remove(key);
        }
    }

    /// Free pBlocks of a stream with their lengths in chunks, the largest (and highest address) first.
    pub(crate) fn largest_first(&self, stream: StreamId) -> impl Iterator<Item = (SlabIndex, u32)> {
        let all = self.free.largest_first(stream).map(|key| (key.index(), key.units()));
        all.filter(|&(index, _)| self.blocks[index].state == BlockState::Free)
    }

    /// Free pBlocks with at least `least` chunks, from the largest on, until they have what is wanted; they are put
    /// into `found`. Says how many chunks they have.
    pub(crate) fn gather(
        &mut self,
        Wanted { stream, chunks }: Wanted,
        least: u32,
        found: &mut Vec<SlabIndex>,
    ) -> u32 {
        let (mut sum, mut stale) = (0, Vec::new());
        for key in self.free.largest_first(stream) {
            if key.units() < least || sum >= chunks {
                break;
            }
            if self.blocks[key.index()].state == BlockState::Free {
                sum += key.units();
                found.push(key.index());
            } else {
                stale.push(key.index());
            }
        }
        stale.into_iter().for_each(|block| self.unlist(block));
        sum
    }

    /// Every free pBlock by (stream, size, address).
    pub(crate) fn free_blocks(&self) -> impl Iterator<Item = SlabIndex> {
        let all = self.free.iter().map(SizeKey::index);
        all.filter(|&index| self.blocks[index].state == BlockState::Free)
    }

    /// Gives the first `chunks` chunks of a free pBlock to a tensor; what is left over becomes a free pBlock.
    #[inline]
    pub(crate) fn take(&mut self, block: SlabIndex, chunks: u32) {
        if self.blocks[block].len > chunks {
            let rest = self.cut(block, chunks);
            self.list(rest);
        }
        self.blocks[block].state = BlockState::Used;
        self.occupy(self.blocks[block].extent());
    }

    /// The tensor in a pBlock is gone.
    #[inline]
    pub(crate) fn give(&mut self, block: SlabIndex, stamp: u64) {
        debug_assert_eq!(self.blocks[block].state, BlockState::Used);
        let extent = self.blocks[block].extent();
        self.vacate(extent);
        self.wake(extent);
        self.settle(block, stamp);
    }

    /// Chunks of `extent` that a tensor uses, counted from the pBlocks.
    #[cfg(test)]
    pub(crate) fn busy_chunks(&self, extent: Extent) -> u32 {
        let mut busy = 0;
        let mut at = extent.start;
        while at < extent.end() {
            let block = &self.blocks[self.segments[extent.segment].blocks.find(at)];
            let stop = block.extent().end().min(extent.end());
            if matches!(block.state, BlockState::Used | BlockState::Held) {
                busy += stop - at;
            }
            at = stop;
        }
        busy
    }

    /// Whether the pBlock is a whole segment.
    pub(crate) fn is_whole(&self, block: SlabIndex) -> bool {
        let block = &self.blocks[block];
        block.len == self.segments[block.segment].len
    }

    /// Every pBlock, segment by segment, in address order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = SlabIndex> {
        self.segments.iter().flat_map(move |(_, segment)| {
            let mut at = 0;
            std::iter::from_fn(move || {
                let block = (at < segment.len).then(|| segment.blocks.find(at))?;
                at += self.blocks[block].len;
                Some(block)
            })
        })
    }

    /// Address of the segment of a pBlock.
    pub(crate) fn segment_at(&self, block: SlabIndex) -> DevicePtr {
        self.segments[self.blocks[block].segment].at
    }

    /// A pBlock becomes free, one with its free neighbours if the pool merges, and is listed.
    pub(super) fn settle(&mut self, block: SlabIndex, stamp: u64) {
        let entry = &mut self.blocks[block];
        entry.state = BlockState::Free;
        entry.stamp = entry.stamp.max(stamp);
        let survivor = if self.merges { self.merge(block) } else { block };
        self.list(survivor);
    }

    /// Takes the free chunks of `extent` out of the free pBlocks, and marks them as held through an sBlock.
    pub(super) fn hold(&mut self, extent: Extent) {
        let mut at = extent.start;
        while at < extent.end() {
            let block = self.carve(extent.segment, at, extent.end());
            self.blocks[block].state = BlockState::Held;
            at += self.blocks[block].len;
        }
        self.occupy(extent);
    }

    /// Cuts a free pBlock in two, of which neither is listed then; the first keeps its number, and the second is
    /// returned.
    pub(super) fn cut(&mut self, block: SlabIndex, chunks: u32) -> SlabIndex {
        self.tally.splits += 1;
        self.unlist(block);
        let head = self.blocks[block];
        let rest = self.blocks.insert(PBlock {
            start: head.start + chunks,
            len: head.len - chunks,
            at: head.at.offset(self.bytes(chunks)),
            state: BlockState::Free,
            ..head
        });
        self.blocks[block].len = chunks;
        self.segments[head.segment].blocks.cut(head.start + chunks, rest);
        rest
    }

    /// Makes a free pBlock known to searches.
    #[inline]
    pub(super) fn list(&mut self, block: SlabIndex) {
        if !std::mem::replace(&mut self.blocks[block].is_listed, true) {
            self.free.insert(self.block_key(block));
        }
    }

    /// Takes a pBlock off the list, if it is there; before its length changes, and before it goes.
    #[inline]
    pub(super) fn unlist(&mut self, block: SlabIndex) {
        if std::mem::replace(&mut self.blocks[block].is_listed, false) {
            self.free.remove(self.block_key(block));
        }
    }

    /// The free pBlock at chunk `at`, cut down to the part from there to `end` at most.
    fn carve(&mut self, segment: SlabIndex, at: u32, end: u32) -> SlabIndex {
        let mut block = self.segments[segment].blocks.find(at);
        debug_assert_eq!(self.blocks[block].state, BlockState::Free);
        let start = self.blocks[block].start;
        if start < at {
            let rest = self.cut(block, at - start);
            self.list(block);
            block = rest;
        }
        if self.blocks[block].extent().end() > end {
            let rest = self.cut(block, end - at);
            self.list(rest);
        }
        block
    }

    fn merge(&mut self, block: SlabIndex) -> SlabIndex {
        let extent = self.blocks[block].extent();
        let cuts = &self.segments[extent.segment].blocks;
        let is_free = |other: &SlabIndex| self.blocks[*other].state == BlockState::Free;
        let next = cuts.starting_at(extent.end()).filter(is_free);
        let previous = (extent.start > 0).then(|| cuts.find(extent.start - 1)).filter(is_free);
        if let Some(next) = next {
            self.join(block, next);
        }
        let Some(previous) = previous else { return block };
        self.join(previous, block);
        previous
    }

    fn join(&mut self, left: SlabIndex, right: SlabIndex) {
        self.unlist(left);
        self.unlist(right);
        let PBlock { segment, start, len, stamp, .. } = self.blocks[right];
        self.segments[segment].blocks.join(start);
        let left = &mut self.blocks[left];
        left.len += len;
        left.stamp = left.stamp.max(stamp);
        self.blocks.remove(right);
    }

    #[inline]
    fn block_key(&self, block: SlabIndex) -> SizeKey {
        let PBlock { stream, len, at, .. } = self.blocks[block];
        SizeKey::new(stream, len, at, block)
    }
}
