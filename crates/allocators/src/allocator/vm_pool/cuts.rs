//! A row of chunks cut into intervals, each with a number.
//!
//! ```text
//!   chunk      0   1   2   3   4   5   6   7
//!            ┌───────────┬───────┬───────────┐
//!            │     9     │   4   │     7     │      starts = 0b0010_1001,  number = [9, ., ., 4, ., 7, ., .]
//!            └───────────┴───────┴───────────┘
//! ```
//!
//! To find the interval of a chunk is to find the highest set bit at or below it: 64 chunks (128 MiB) a step. Cutting
//! and joining change one bit, however long the intervals are.

use crate::allocator::SlabIndex;

#[derive(Debug, Clone, Default)]
pub(super) struct Cuts {
    starts: Vec<u64>,
    numbers: Vec<SlabIndex>,
}

impl Cuts {
    /// One interval over `chunks` chunks.
    pub(super) fn new(chunks: u32, number: SlabIndex) -> Self {
        let mut cuts = Self {
            starts: vec![0; chunks.div_ceil(64) as usize],
            numbers: vec![number; chunks as usize],
        };
        cuts.cut(0, number);
        cuts
    }

    /// Number of the interval that holds this chunk.
    #[inline]
    pub(super) fn find(&self, chunk: u32) -> SlabIndex {
        let mut word = (chunk / 64) as usize;
        let mut bits = self.starts[word] & (u64::MAX >> (63 - chunk % 64));
        while bits == 0 {
            word -= 1;
            bits = self.starts[word];
        }
        self.numbers[word * 64 + bits.ilog2() as usize]
    }

    /// Number of the interval that begins at this chunk, which must be one; `None` at the end of the row.
    #[inline]
    pub(super) fn starting_at(&self, chunk: u32) -> Option<SlabIndex> {
        self.numbers.get(chunk as usize).copied()
    }

    /// Lets an interval with this number begin at `chunk`, or gives the one that does a new number.
    #[inline]
    pub(super) fn cut(&mut self, chunk: u32, number: SlabIndex) {
        self.starts[(chunk / 64) as usize] |= 1 << (chunk % 64);
        self.numbers[chunk as usize] = number;
    }

    /// Makes the interval that begins at `chunk` a part of the one before it.
    #[inline]
    pub(super) fn join(&mut self, chunk: u32) {
        debug_assert_ne!(chunk, 0, "the first interval has nothing before it");
        self.starts[(chunk / 64) as usize] &= !(1 << (chunk % 64));
    }
}
