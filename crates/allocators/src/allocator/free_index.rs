//! The index of free blocks: exact best fit.
//!
//! PyTorch keeps the free blocks of a pool in one ordered set with the key (stream, size, place), all ascending, and
//! takes the first that is not less than (stream, request, 0). A place is an address; from 2.12 on a number comes
//! before it (see `caching/rank.rs`). This is that set, laid out for speed. Each stream has bins by size, 16 to a
//! power of two, and a bit for each bin that is not empty:
//!
//! ```text
//!   occupied   0 0 1 0 0 1 1 0 ...         the next bin that has blocks: count trailing zeros
//!   bins           │     │ └ [ 18 MiB@c0 ]
//!                  │     └── [ 17 MiB@a0, 17 MiB@f0, 17.5 MiB@b0 ]      sorted by size, then place
//!                  └──────── [ 14 MiB@d0 ]
//! ```
//!
//! A bin is short, so that searching it and moving its keys costs little; and bins are in order, so that the first key
//! at or above the request, in its own bin or else the next occupied one, is exactly PyTorch's choice. The obvious
//! version, a `BTreeSet`, is the reference in the tests.

use crate::allocator::SlabIndex;
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// What decides among free blocks of equal size: the lower rank, then the lower address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its rank; 0 where addresses alone decide.
    pub rank: u32,
    /// Its address.
    pub at: u64,
}

impl From<u64> for Place {
    #[inline]
    fn from(at: u64) -> Self {
        Self { rank: 0, at }
    }
}

/// A free block's place in the order of its stream. An address may have all 64 bits: those of Intel's GPUs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    size: Bytes,
    place: Place,
}

/// A free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    order: Order,
    block: SlabIndex,
}

const _: () = assert!(size_of::<Key>() == 32);

/// A position in the index, good until the next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    stream: StreamId,
    bin: u16,
    slot: u32,
    block: SlabIndex,
}

/// The free blocks of one pool.
#[derive(Debug, Clone, Default)]
pub struct FreeIndex {
    /// By the number of the stream.
    lists: Vec<Option<StreamList>>,
    /// In tests and fuzzing, the obvious set goes along, and every answer is compared with its own.
    #[cfg(any(test, fuzzing))]
    twin: twin::Twin,
}

impl FreeIndex {
    /// Adds a free block.
    #[inline(always)]
    pub fn insert(
        &mut self,
        stream: StreamId,
        size: Bytes,
        place: impl Into<Place>,
        block: SlabIndex,
    ) {
        let place = place.into();
        let list = match self.lists.get_mut(usize::from(stream.0)) {
            Some(Some(list)) => list,
            _ => self.add_list(stream),
        };
        list.insert(bin_of(size), Key { order: Order { size, place }, block });
        #[cfg(any(test, fuzzing))]
        self.twin.insert(stream, size, place, block);
    }

    /// Takes a block out.
    ///
    /// # Panics
    /// If it is not there.
    #[inline(always)]
    pub fn remove(&mut self, stream: StreamId, size: Bytes, place: impl Into<Place>) {
        let place = place.into();
        self.list_mut(stream).remove(bin_of(size), Order { size, place });
        #[cfg(any(test, fuzzing))]
        self.twin.remove(stream, size, place);
    }

    /// The smallest block of `stream` with at least `size` bytes; among equals the one with the lowest place.
    #[inline(always)]
    pub fn best_fit(&self, stream: StreamId, size: Bytes) -> Option<Cursor> {
        let bin = bin_of(size);
        let found = self.list(stream).and_then(|list| {
            let slot = list.bins[bin].partition_point(|key| key.order.size < size);
            list.from(stream, bin, slot)
        });
        #[cfg(any(test, fuzzing))]
        assert_eq!(found.map(|at| self.block(at)), self.twin.best_fit(stream, size));
        found
    }

    /// The next block of the same stream.
    #[inline]
    pub fn next(&self, at: Cursor) -> Option<Cursor> {
        let list = self.list(at.stream)?;
        let next = list.from(at.stream, at.bin.into(), at.slot as usize + 1);
        #[cfg(any(test, fuzzing))]
        {
            let Order { size, place } = list.bins[usize::from(at.bin)][at.slot as usize].order;
            let after = self.twin.after(at.stream, size, place);
            assert_eq!(next.map(|at| self.block(at)), after);
        }
        next
    }

    /// The block at a position.
    #[inline]
    pub fn block(&self, at: Cursor) -> SlabIndex {
        at.block
    }

    /// Takes out the block at a position.
    #[inline(always)]
    pub fn remove_at(&mut self, at: Cursor) {
        #[cfg(any(test, fuzzing))]
        {
            let Order { size, place } =
                self.list_mut(at.stream).bins[usize::from(at.bin)][at.slot as usize].order;
            self.twin.remove(at.stream, size, place);
        }
        self.list_mut(at.stream).remove_at(at.bin.into(), at.slot as usize);
    }

    /// Every block in the order of the index.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = SlabIndex> + '_ {
        let bins = self.lists.iter().flatten().flat_map(|list| list.bins.iter());
        bins.flat_map(|bin| bin.iter().map(|key| key.block))
    }

    /// The blocks of `stream` that are smaller than `size`, from the largest down.
    pub fn smaller_than(
        &self,
        stream: StreamId,
        size: Bytes,
    ) -> impl Iterator<Item = SlabIndex> + '_ {
        let bins = self.list(stream).into_iter().flat_map(|list| list.bins.iter().rev());
        let keys = bins.flat_map(|bin| bin.iter().rev());
        keys.filter(move |key| key.order.size < size).map(|key| key.block)
    }

    /// A list for a stream that has none.
    #[cold]
    fn add_list(&mut self, stream: StreamId) -> &mut StreamList {
        let place = usize::from(stream.0);
        self.lists.resize(self.lists.len().max(place + 1), None);
        self.lists[place].insert(StreamList::new())
    }

    #[inline(always)]
    fn list(&self, stream: StreamId) -> Option<&StreamList> {
        self.lists.get(usize::from(stream.0))?.as_ref()
    }

    #[inline(always)]
    fn list_mut(&mut self, stream: StreamId) -> &mut StreamList {
        let list = self.lists.get_mut(usize::from(stream.0)).and_then(Option::as_mut);
        list.expect("a free block's stream has a list")
    }
}

/// Bins for each power of two, as a power of two.
const STEP_BITS: u32 = 4;
/// Sizes from 512 bytes to 2^47: 39 powers of two, in whole words of the bitmap.
const WORDS: usize = 10;
const BINS: usize = WORDS * 64;

/// The bin of a size: its power of two, and the five bits that lead. The first 16 bins are those below 512 bytes.
#[inline(always)]
fn bin_of(size: Bytes) -> usize {
    let step = (size | 512).ilog2() - STEP_BITS;
    (((step as usize - 5) << STEP_BITS) + (size >> step) as usize).min(BINS - 1)
}

/// The free blocks of one stream.
#[derive(Debug, Clone)]
struct StreamList {
    occupied: [u64; WORDS],
    bins: Box<[Vec<Key>; BINS]>,
}

impl StreamList {
    fn new() -> Self {
        Self { occupied: [0; WORDS], bins: Box::new([const { Vec::new() }; BINS]) }
    }

    /// The position itself, or the first of the next bin that is not empty.
    #[inline(always)]
    fn from(&self, stream: StreamId, bin: usize, slot: usize) -> Option<Cursor> {
        if let Some(&Key { block, .. }) = self.bins[bin].get(slot) {
            return Some(Cursor { stream, bin: bin as u16, slot: slot as u32, block });
        }
        let bin = self.occupied_after(bin)?;
        let Key { block, .. } = self.bins[bin][0];
        Some(Cursor { stream, bin: bin as u16, slot: 0, block })
    }

    #[inline(always)]
    fn occupied_after(&self, bin: usize) -> Option<usize> {
        let first = bin + 1;
        let mut word = first / 64;
        let mut bits = self.occupied.get(word)? & (u64::MAX << (first % 64));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    #[inline(always)]
    fn insert(&mut self, bin: usize, key: Key) {
        let keys = &mut self.bins[bin];
        let slot = keys.partition_point(|other| other.order < key.order);
        keys.insert(slot, key);
        self.occupied[bin / 64] |= 1 << (bin % 64);
    }

    #[inline(always)]
    fn remove(&mut self, bin: usize, order: Order) {
        let keys = &self.bins[bin];
        let slot = keys.partition_point(|key| key.order < order);
        assert!(keys.get(slot).is_some_and(|key| key.order == order), "block is not free");
        self.remove_at(bin, slot);
    }

    #[inline(always)]
    fn remove_at(&mut self, bin: usize, slot: usize) {
        let keys = &mut self.bins[bin];
        if slot + 1 == keys.len() {
            keys.pop();
        } else {
            keys.remove(slot);
        }
        if keys.is_empty() {
            self.occupied[bin / 64] &= !(1 << (bin % 64));
        }
    }
}

/// The obvious version: the set as PyTorch has it.
#[cfg(any(test, fuzzing))]
mod twin {
    use std::collections::BTreeMap;
    use std::ops::Bound::{Excluded, Unbounded};

    use super::{Bytes, Place, SlabIndex, StreamId};

    const FIRST: Place = Place { rank: 0, at: 0 };

    #[derive(Debug, Clone, Default)]
    pub(super) struct Twin {
        pub(super) set: BTreeMap<(StreamId, Bytes, Place), SlabIndex>,
    }

    impl Twin {
        pub(super) fn insert(
            &mut self,
            stream: StreamId,
            size: Bytes,
            at: Place,
            block: SlabIndex,
        ) {
            assert_eq!(self.set.insert((stream, size, at), block), None, "block was free already");
        }

        pub(super) fn remove(&mut self, stream: StreamId, size: Bytes, at: Place) {
            assert!(self.set.remove(&(stream, size, at)).is_some(), "block was not free");
        }

        pub(super) fn best_fit(&self, stream: StreamId, size: Bytes) -> Option<SlabIndex> {
            let (key, &block) = self.set.range((stream, size, FIRST)..).next()?;
            (key.0 == stream).then_some(block)
        }

        pub(super) fn after(&self, stream: StreamId, size: Bytes, at: Place) -> Option<SlabIndex> {
            let behind = (Excluded((stream, size, at)), Unbounded);
            let (key, &block) = self.set.range(behind).next()?;
            (key.0 == stream).then_some(block)
        }

        pub(super) fn smaller_than(&self, stream: StreamId, size: Bytes) -> Vec<SlabIndex> {
            let range = (stream, 0, FIRST)..(stream, size, FIRST);
            self.set.range(range).rev().map(|(_, &block)| block).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A size among few, so that there are ties, or any at all.
    fn size() -> impl Strategy<Value = Bytes> {
        prop_oneof![1u64..40, 1u64..1 << 47]
    }

    proptest! {
        /// The comparison itself is inside the index.
        #[test]
        fn agrees_with_the_obvious_set(
            steps in prop::collection::vec((0u16..3, size(), 0u32..3, 0u32..3), 1..700)
        ) {
            let mut index = FreeIndex::default();
            for (number, &(stream, size, action, rank)) in steps.iter().enumerate() {
                let (stream, block) = (StreamId(stream), number as SlabIndex);
                match (action, index.best_fit(stream, size)) {
                    (1, Some(at)) => index.remove_at(index.next(at).unwrap_or(at)),
                    (2, Some(at)) => {
                        let found = index.block(at);
                        let mut keys = index.twin.set.iter();
                        let key = *keys.find(|(_, block)| **block == found).unwrap().0;
                        index.remove(key.0, key.1, key.2);
                    }
                    _ => {
                        let at = u64::from(block).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                        index.insert(stream, size, Place { rank, at }, block);
                    }
                }
                prop_assert!(index.iter().eq(index.twin.set.values().copied()));
                let smaller: Vec<_> = index.smaller_than(stream, size).collect();
                prop_assert_eq!(smaller, index.twin.smaller_than(stream, size));
            }
        }
    }
}
