//! Layout: which memory was held at one moment, and how it was cut.

use super::{BlockState, Segment, SegmentBlock};

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
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}
