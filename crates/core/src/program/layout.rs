//! Layout: which memory was held at one moment, and how it was cut.

use super::{PoolId, StreamId};
use crate::units::Bytes;

/// State of a block in the final `segments`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Handed out and not freed.
    Allocated,
    /// Freed by the client, still used by a stream.
    PendingFree,
    /// Free.
    Inactive,
}

/// A block of a final segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentBlock {
    /// Where it begins.
    pub address: u64,
    /// Its real size.
    pub size: Bytes,
    /// What the client asked for; a stale leftover in an inactive block.
    pub requested: Bytes,
    /// Its state.
    pub state: BlockState,
}

/// A segment that was held when the snapshot was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub address: u64,
    /// Its size, the sum of its blocks.
    pub size: Bytes,
    /// The stream that it belongs to.
    pub stream: StreamId,
    /// The pool that it belongs to.
    pub pool: PoolId,
    /// Whether it is for small requests (up to 1 MiB after rounding).
    pub is_small: bool,
    /// Whether it is a mapped range of an expandable segment.
    pub is_expandable: bool,
    /// Its blocks in address order, without gaps.
    pub blocks: Vec<SegmentBlock>,
}

/// All segments and their blocks at one moment of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// The segments in address order; a mapped range of an expandable segment counts as one.
    pub segments: Vec<Segment>,
    /// Base addresses of the expandable reservations that the ranges lie in, ascending.
    pub reservations: Vec<u64>,
}

impl Layout {
    /// Blocks that are allocated or pending, in address order.
    pub fn active(&self) -> impl Iterator<Item = (&Segment, &SegmentBlock)> {
        let blocks = self
            .segments
            .iter()
            .flat_map(|segment| segment.blocks.iter().map(move |block| (segment, block)));
        blocks.filter(|(_, block)| block.state != BlockState::Inactive)
    }

    /// Whether nothing was held.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}
