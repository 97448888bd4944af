//! Watching sBlocks: which are usable, without counting.
//!
//! An sBlock can serve while all of its chunks are free, so one busy chunk proves that it cannot. Each idle sBlock is
//! therefore either listed (free when last looked at) or *parked* under one busy chunk of its own, and it is not looked
//! at again until that chunk is free: the watched literals of SAT solvers (Moskewicz et al., "Chaff", 2001).
//!
//! ```text
//!   busy      0 0 1 1 0 0 0 1 1 0      a tensor takes chunks: their bits are set, and that is all
//!   parked        2       0            one list of sBlocks under each chunk that has any
//!                 │       └─ s4        a tensor goes: its bits are cleared, and each sBlock parked under them is
//!                 └─ s0 ─ s7           listed, or parked anew under another chunk that keeps it from serving
//! ```
//!
//! A listed sBlock may have lost chunks since; the search that meets it finds the busy chunk, and parks it there.

use super::chunk_set::ChunkSet;
use super::{Extent, VmPool};
use crate::allocator::{NIL, SlabIndex};

/// Where an sBlock waits to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// Nowhere: a tensor lives in it.
    Off,
    /// On the list of those that were usable when last looked at.
    Listed,
    /// Under this busy chunk.
    Parked { segment: SlabIndex, chunk: u32, before: SlabIndex, after: SlabIndex },
}

/// The chunks of a segment that tensors use, and the sBlocks that are parked under them.
#[derive(Debug, Clone, Default)]
pub(super) struct Occupancy {
    busy: ChunkSet,
    /// Chunks with an sBlock under them.
    watched: ChunkSet,
    /// For each chunk the first of its sBlocks.
    parked: Vec<SlabIndex>,
}

impl Occupancy {
    /// A segment of `chunks` free chunks.
    pub(super) fn new(chunks: u32) -> Self {
        let (busy, watched) = (ChunkSet::new(chunks), ChunkSet::new(chunks));
        Self { busy, watched, parked: vec![NIL; chunks as usize] }
    }
}

impl VmPool {
    /// A tensor begins to use the chunks of `extent`.
    #[inline]
    pub(super) fn occupy(&mut self, extent: Extent) {
        self.segments[extent.segment].occupancy.busy.add(extent.start, extent.end());
    }

    /// A tensor no longer uses the chunks of `extent`; [`VmPool::wake`] tells the sBlocks, when the last of the
    /// tensor's chunks are free.
    #[inline]
    pub(super) fn vacate(&mut self, extent: Extent) {
        self.segments[extent.segment].occupancy.busy.remove(extent.start, extent.end());
    }

    /// Looks at each sBlock that is parked under the chunks of `extent`, which have become free.
    #[inline]
    pub(super) fn wake(&mut self, extent: Extent) {
        let mut start = extent.start;
        while start < extent.end() {
            let occupancy = &mut self.segments[extent.segment].occupancy;
            let Some(chunk) = occupancy.watched.first(start, extent.end()) else { return };
            occupancy.watched.remove(chunk, chunk + 1);
            let mut next = std::mem::replace(&mut occupancy.parked[chunk as usize], NIL);
            while next != NIL {
                let index = next;
                let Watch::Parked { after, .. } = self.sblocks[index].watch else {
                    unreachable!("sBlock {index} is parked under chunk {chunk}");
                };
                next = after;
                self.watch(index);
            }
            start = chunk + 1;
        }
    }

    /// Lists an idle sBlock, or parks it under the first of its chunks that is busy. It must not be on a list then.
    #[inline]
    pub(super) fn watch(&mut self, index: SlabIndex) {
        let Some((segment, chunk)) = self.busy_chunk(index) else {
            let sblock = &mut self.sblocks[index];
            sblock.watch = Watch::Listed;
            self.usable.insert(sblock.key(index));
            return;
        };
        let occupancy = &mut self.segments[segment].occupancy;
        occupancy.watched.add(chunk, chunk + 1);
        let after = std::mem::replace(&mut occupancy.parked[chunk as usize], index);
        self.sblocks[index].watch = Watch::Parked { segment, chunk, before: NIL, after };
        if let Some(Watch::Parked { before, .. }) = self.watch_of(after) {
            *before = index;
        }
    }

    /// Takes an sBlock off the list that it is on, if any; before its length changes, and before it goes.
    pub(super) fn unwatch(&mut self, index: SlabIndex) {
        match std::mem::replace(&mut self.sblocks[index].watch, Watch::Off) {
            Watch::Off => {}
            Watch::Listed => self.usable.remove(self.sblocks[index].key(index)),
            Watch::Parked { segment, chunk, before, after } => {
                self.unpark(segment, chunk, before, after);
            }
        }
    }

    /// The first chunk of an sBlock that a tensor uses, with its segment.
    #[inline]
    pub(super) fn busy_chunk(&self, index: SlabIndex) -> Option<(SlabIndex, u32)> {
        self.sblocks[index].extents.iter().find_map(|extent| {
            let busy = &self.segments[extent.segment].occupancy.busy;
            Some((extent.segment, busy.first(extent.start, extent.end())?))
        })
    }

    /// The sBlocks that are parked under a chunk.
    #[cfg(test)]
    pub(super) fn parked(&self, segment: SlabIndex, chunk: u32) -> Vec<SlabIndex> {
        let mut next = self.segments[segment].occupancy.parked[chunk as usize];
        let mut found = Vec::new();
        while next != NIL {
            found.push(next);
            let Watch::Parked { after, .. } = self.sblocks[next].watch else { break };
            next = after;
        }
        found
    }

    /// Joins the neighbours of an sBlock that leaves the list of a chunk.
    fn unpark(&mut self, segment: SlabIndex, chunk: u32, left: SlabIndex, right: SlabIndex) {
        if let Some(Watch::Parked { before, .. }) = self.watch_of(right) {
            *before = left;
        }
        if let Some(Watch::Parked { after, .. }) = self.watch_of(left) {
            *after = right;
            return;
        }
        let occupancy = &mut self.segments[segment].occupancy;
        occupancy.parked[chunk as usize] = right;
        if right == NIL {
            occupancy.watched.remove(chunk, chunk + 1);
        }
    }

    #[inline]
    fn watch_of(&mut self, index: SlabIndex) -> Option<&mut Watch> {
        (index != NIL).then(|| &mut self.sblocks[index].watch)
    }
}
