//! Causes: why memory is reserved that was not asked for. Every byte of it has exactly one.
//!
//! At the moment at which most memory is reserved, an allocator holds more than the program asked for. Each block that
//! it then has ([`Allocator::blocks`](crate::allocator::Allocator::blocks)) is looked at next to the request that made
//! it grow to that size: whatever is free and did not serve that request was of no use there, and there is a reason.
//!
//! ```text
//!   reserved   ████ requested ████▒▒ rounding ▒▒░░░░░░░░░░░░░░░░░░░░░ free ░░░░░░░░░░░░░░░░░░░░░░░
//!                                                              │ the first that holds:
//!                1. of another pool than the request asked ────┼─▶ wrong pool
//!                2. for small requests, and this one is large ─┼─▶ small pool
//!                3. on another stream than the request ────────┼─▶ other stream
//!                4. next to memory in use, in one segment ──────┼─▶ split remainder
//!                5. smaller than what the request took ────────┼─▶ too small
//!                6. large enough all the same ─────────────────┴─▶ same stream
//! ```
//!
//! An idle stitched range ([`BlockUse::Alias`]) owns no memory and has no part in this. Since the blocks that are no
//! alias add up to [`Usage::reserved`](crate::allocator::Usage::reserved), the causes add up to reserved minus
//! requested, to the byte.

use rustc_hash::FxHashSet;

use crate::allocator::{BlockKind, BlockUse, BlockView};
use crate::device::DevicePtr;
use crate::trace::{PoolId, StreamId};
use crate::units::Bytes;

/// Why a byte is reserved that was not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Its block is in use (or waits for a stream), and larger than what was asked for.
    Rounding,
    /// Free, in a segment of which other parts are in use, so that it cannot go back to the device; the rest of a
    /// segment that the request itself was just cut from is one, too.
    Remainder,
    /// A free segment, smaller than the block that the request took. Emptying the cache would give it back.
    TooSmall,
    /// A free segment that was large enough. The allocator left it aside by its own rules.
    SameStream,
    /// Free, on another stream, whose work could still use it.
    OtherStream,
    /// Free, in a pool for small requests only, up to 1 MiB.
    SmallPool,
    /// Free, in a pool that the request could not use: a private one (CUDA graphs, `MemPool`), or that for large
    /// requests, if the request was a small one.
    WrongPool,
}

impl Cause {
    /// All causes, in the order of every table.
    pub const ALL: [Self; 7] = [
        Self::Rounding,
        Self::Remainder,
        Self::TooSmall,
        Self::SameStream,
        Self::OtherStream,
        Self::SmallPool,
        Self::WrongPool,
    ];

    /// A short name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rounding => "rounding",
            Self::Remainder => "split remainders",
            Self::TooSmall => "too small",
            Self::SameStream => "same stream",
            Self::OtherStream => "other stream",
            Self::SmallPool => "small pool",
            Self::WrongPool => "wrong pool",
        }
    }

    /// What the bytes are, to be read after "some of it".
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Rounding => "by rounding",
            Self::Remainder => "in holes between blocks in use",
            Self::TooSmall => "in free segments that are too small",
            Self::SameStream => "in free segments that were left aside",
            Self::OtherStream => "cached for other streams",
            Self::SmallPool => "in the small pool",
            Self::WrongPool => "in other pools",
        }
    }

    /// What it means, in one sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Rounding => "in use, but more than was requested",
            Self::Remainder => {
                "free holes in segments that are partly in use: nothing gives them back"
            }
            Self::TooSmall => "free segments, too small for the request that forced the growth",
            Self::SameStream => "free segments that were large enough, left aside by the rules",
            Self::OtherStream => "free, but cached for another stream",
            Self::SmallPool => "free, but kept for requests up to 1 MiB",
            Self::WrongPool => "free, but in a pool that the request could not use",
        }
    }
}

/// The request that made an allocator hold more than ever before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Bytes requested.
    pub requested: Bytes,
    /// Bytes of the block that it got; those asked for, if it got none.
    pub taken: Bytes,
    /// Its stream.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolId,
    /// Whether it was served by a pool for small requests.
    pub is_small: bool,
}

/// Bytes by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Causes {
    bytes: [Bytes; Cause::ALL.len()],
}

impl Causes {
    /// Takes the blocks that an allocator shows apart; `growth` is `None` if it held so much from the beginning.
    pub fn of(blocks: &[BlockView], growth: Option<&Growth>) -> Self {
        let mut causes = Self::default();
        for (_, cause, bytes) in Self::each(blocks, growth) {
            causes.bytes[cause as usize] += bytes;
        }
        causes
    }

    /// The place in `blocks` of each block that is no alias, its cause, and the bytes that have it.
    pub fn each<'b>(
        blocks: &'b [BlockView],
        growth: Option<&'b Growth>,
    ) -> impl Iterator<Item = (usize, Cause, Bytes)> + 'b {
        let occupied = occupied(blocks);
        blocks.iter().enumerate().filter_map(move |(place, block)| match block.state {
            BlockUse::Alias => None,
            BlockUse::Allocated | BlockUse::Pending => {
                Some((place, Cause::Rounding, block.size - block.requested))
            }
            BlockUse::Free => {
                let is_hole = occupied.contains(&block.segment);
                Some((place, cause_of_free(block, is_hole, growth), block.size))
            }
        })
    }

    /// Bytes with this cause.
    pub fn bytes(&self, cause: Cause) -> Bytes {
        self.bytes[cause as usize]
    }

    /// Every cause with its bytes, in order.
    pub fn rows(&self) -> impl Iterator<Item = (Cause, Bytes)> {
        Cause::ALL.into_iter().map(|cause| (cause, self.bytes(cause)))
    }

    /// All of it: reserved minus requested.
    pub fn total(&self) -> Bytes {
        self.bytes.iter().sum()
    }
}

/// The segments of which a part is in use, be it through stitched addresses.
fn occupied(blocks: &[BlockView]) -> FxHashSet<DevicePtr> {
    let own = blocks.iter().filter(|block| block.kind != BlockKind::Stitched);
    own.filter(|block| block.state != BlockUse::Free).map(|block| block.segment).collect()
}

fn cause_of_free(block: &BlockView, is_hole: bool, growth: Option<&Growth>) -> Cause {
    let pool = growth.map_or(PoolId::DEFAULT, |growth| growth.pool);
    let wants_small = growth.is_some_and(|growth| growth.is_small);
    let is_small = block.kind == BlockKind::Small;
    if block.pool != pool || (wants_small && !is_small) {
        return Cause::WrongPool;
    }
    if is_small && !wants_small {
        return Cause::SmallPool;
    }
    if growth.is_some_and(|growth| growth.stream != block.stream) {
        return Cause::OtherStream;
    }
    if is_hole {
        return Cause::Remainder;
    }
    match growth {
        Some(growth) if block.size < growth.taken => Cause::TooSmall,
        _ => Cause::SameStream,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{KIB, MIB};

    fn block(state: BlockUse, at: u64, size: Bytes, segment: u64) -> BlockView {
        BlockView {
            block: None,
            at: DevicePtr(at * MIB),
            size,
            requested: if state == BlockUse::Free { 0 } else { size - KIB },
            stream: StreamId(0),
            state,
            pool: PoolId::DEFAULT,
            kind: BlockKind::Large,
            segment: DevicePtr(segment * MIB),
        }
    }

    const GROWTH: Growth = Growth {
        requested: 30 * MIB,
        taken: 32 * MIB,
        stream: StreamId(0),
        pool: PoolId::DEFAULT,
        is_small: false,
    };

    /// What the causes of a single free block are, by rules that come after each other.
    fn cause(block: BlockView, growth: Option<&Growth>) -> Cause {
        let causes = Causes::of(&[block], growth);
        let (cause, bytes) = causes.rows().find(|&(_, bytes)| bytes > 0).unwrap();
        assert_eq!((bytes, causes.total()), (block.size, block.size));
        cause
    }

    #[test]
    fn every_rule_finds_its_blocks_and_the_first_one_wins() {
        let free = block(BlockUse::Free, 0, 20 * MIB, 0);
        let large = BlockView { size: 32 * MIB, ..free };
        let elsewhere = BlockView { stream: StreamId(1), ..free };
        let small = BlockView { kind: BlockKind::Small, ..elsewhere };
        let private = BlockView { pool: PoolId(1), ..small };
        assert_eq!(cause(free, Some(&GROWTH)), Cause::TooSmall);
        assert_eq!(cause(large, Some(&GROWTH)), Cause::SameStream);
        assert_eq!(cause(elsewhere, Some(&GROWTH)), Cause::OtherStream);
        assert_eq!(cause(small, Some(&GROWTH)), Cause::SmallPool);
        assert_eq!(cause(private, Some(&GROWTH)), Cause::WrongPool);
        let wants_small = Growth { is_small: true, ..GROWTH };
        assert_eq!(cause(free, Some(&wants_small)), Cause::WrongPool);
        assert_eq!(cause(small, Some(&wants_small)), Cause::OtherStream);
        assert_eq!(cause(elsewhere, None), Cause::SameStream);
        assert_eq!(cause(small, None), Cause::SmallPool);
        assert_eq!(cause(private, None), Cause::WrongPool);
    }

    #[test]
    fn a_hole_is_a_remainder_whatever_occupies_its_segment() {
        for state in [BlockUse::Allocated, BlockUse::Pending, BlockUse::Alias] {
            let blocks = [block(state, 0, MIB, 0), block(BlockUse::Free, 1, MIB, 0)];
            let causes = Causes::of(&blocks, Some(&GROWTH));
            assert_eq!(causes.bytes(Cause::Remainder), MIB, "{state:?}");
            let rounding = if state == BlockUse::Alias { 0 } else { KIB };
            assert_eq!(causes.bytes(Cause::Rounding), rounding, "{state:?}");
        }
        // A stitched range has addresses of its own, next to the segments.
        let mut range = block(BlockUse::Alias, 0, MIB, 0);
        range.kind = BlockKind::Stitched;
        let causes = Causes::of(&[range, block(BlockUse::Free, 1, MIB, 0)], Some(&GROWTH));
        assert_eq!(causes.bytes(Cause::TooSmall), MIB);
    }
}
