//! The virtual memory pool: chunks, pBlocks and sBlocks, the ground that both GMLakes stand on.
//!
//! A *segment* is one address range with physical chunks of its own. *pBlocks* cut a segment up without a gap; each is
//! free, used by a tensor, or held through an sBlock. An *sBlock* is a second address range over chunks of several
//! pBlocks; it owns no memory, and can serve a request only while all of its chunks are free (paper, section 3.2).
//!
//! ```text
//!   sBlock  s0                ┌───────────────┬───────┐
//!   sBlock  s1    ┌───────┐   │               │       │  ┌───────────────┐   (s1 maps two extents)
//!                 └───┬───┘   └───────┬───────┴───┬───┘  └───────┬───────┘
//!   pBlocks       ├───────────────┼───────────┼─────────────────────┼──────┤
//!   chunks        0 1 2 3 4 5 ...                                 a segment
//! ```
//!
//! No step walks over chunks: pBlocks are found and chunks are marked as busy through bits, 64 chunks (128 MiB) a word.
//! What a malloc costs depends on the pBlocks that it takes, and not on the sBlocks over them: these are notified when
//! chunks become free, and only those that waited for them ([`watch`]).
//!
//! pBlocks are halves of one range after a split: nothing is mapped anew. (The paper gives both halves new addresses
//! and maps their chunks again; the released code does as we do.) An sBlock over *adjacent* pBlocks of one segment
//! needs no range of its own either: the segment's addresses are the alias ([`VmPool::remember`]).

mod chunk_set;
mod cuts;
mod front;
mod pblock;
mod sblock;
mod segment;
mod size_order;
mod watch;

pub(super) use front::{Front, Place, Stitcher};
#[cfg(test)]
pub(super) use pblock::BlockState;
pub(super) use pblock::PBlock;

use super::{Slab, SlabIndex};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;
use sblock::SBlock;
use segment::Segment;
use size_order::SizeOrder;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) stream: StreamId,
    pub(crate) chunks: u32,
}

/// A run of chunks in one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(super) segment: SlabIndex,
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Extent {
    #[inline]
    pub(super) fn end(self) -> u32 {
        self.start + self.len
    }

    pub(super) fn meets(self, other: Self) -> bool {
        self.segment == other.segment && self.start < other.end() && other.start < self.end()
    }
}

/// What the pool counts of its own doings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Stitched blocks made, remembered ones included.
    pub(super) created: u64,
    /// Stitched blocks destroyed.
    pub(super) destroyed: u64,
    /// Requests served by a stitched block that was there already.
    pub(super) reused: u64,
    /// Chunks mapped into address ranges of pBlocks and sBlocks.
    pub(super) mapped: u64,
    /// pBlocks cut in two.
    pub(super) splits: u64,
    /// Bytes of address space that sBlocks map in addition to the pBlocks' own.
    pub(super) stitched: Bytes,
    /// The most of them at any time.
    pub(super) stitched_peak: Bytes,
}

/// pBlocks, sBlocks and the chunks under them.
#[derive(Debug, Clone, Default)]
pub(crate) struct VmPool {
    chunk: Bytes,
    merges: bool,
    segments: Slab<Segment>,
    blocks: Slab<PBlock>,
    sblocks: Slab<SBlock>,
    /// Every free pBlock, and some that were free and are not any more: those are dropped when a search meets them,
    /// so that a block that comes and goes at the same size costs nothing.
    free: SizeOrder,
    /// Every usable sBlock, and some that were usable, likewise: see [`watch`].
    usable: SizeOrder,
    clock: u64,
    /// Counts for reports.
    pub(super) tally: Tally,
}

impl VmPool {
    /// An empty pool of chunks of `chunk` bytes; `merges` says whether free neighbours become one pBlock again.
    pub(super) fn new(chunk: Bytes, merges: bool) -> Self {
        Self { chunk, merges, ..Self::default() }
    }

    /// The time of a free, for "least recently used": later than all before.
    #[inline]
    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

#[cfg(test)]
mod tests;
