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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    order: Order,
    block: SlabIndex,
}

const _: () = assert!(size_of::<Key>() == 32);

/// A position in the list of a stream, good until the next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    bin: u16,
    slot: u32,
    /// The free block there.
    pub block: SlabIndex,
}

/// The free blocks of one pool.
#[derive(Debug, Clone, Default)]
pub struct FreeIndex {
    /// By the number of the stream.
    lists: Vec<Option<Box<StreamList>>>,
}

impl FreeIndex {
    /// The free blocks of a stream, if it has a list.
    #[inline(always)]
    pub fn list(&self, stream: StreamId) -> Option<&StreamList> {
        self.lists.get(usize::from(stream.0))?.as_deref()
    }

    /// The free blocks of a stream, if it has a list.
    #[inline(always)]
    pub fn list_mut(&mut self, stream: StreamId) -> Option<&mut StreamList> {
        self.lists.get_mut(usize::from(stream.0))?.as_deref_mut()
    }

    /// The free blocks of a stream.
    ///
    /// # Panics
    /// If it has no list.
    #[inline(always)]
    pub fn of(&mut self, stream: StreamId) -> &mut StreamList {
        self.list_mut(stream).expect("a block's stream has a list")
    }

    /// Makes sure that a stream has a list.
    pub fn open(&mut self, stream: StreamId) {
        let place = usize::from(stream.0);
        self.lists.resize(self.lists.len().max(place + 1), None);
        self.lists[place].get_or_insert_default();
    }

    /// Every block in the order of the index.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = SlabIndex> + '_ {
        self.lists.iter().flatten().flat_map(|list| list.iter())
    }

    /// The blocks of `stream` that are smaller than `size`, from the largest down.
    pub fn smaller_than(
        &self,
        stream: StreamId,
        size: Bytes,
    ) -> impl Iterator<Item = SlabIndex> + '_ {
        self.list(stream).into_iter().flat_map(move |list| list.smaller_than(size))
    }
}

/// Bins for each power of two, as a power of two.
const STEP_BITS: u32 = 4;
/// Bins for the 55 powers of two from 512 bytes on and for what is below; a power of two of them, so that
/// no check of a bin's number is needed.
const WORDS: usize = 16;
const BINS: usize = WORDS * 64;

/// The bin of a size: its power of two, and the five bits that lead. The first 16 bins are those below 512 bytes.
#[inline(always)]
fn bin_of(size: Bytes) -> usize {
    let step = (size | 512).ilog2() - STEP_BITS;
    (((step as usize - 5) << STEP_BITS) + (size >> step) as usize) % BINS
}

/// The free blocks of one stream.
#[derive(Debug, Clone)]
pub struct StreamList {
    occupied: [u64; WORDS],
    bins: [Vec<Key>; BINS],
    /// In tests and fuzzing, the obvious set goes along, and every answer is compared with its own.
    #[cfg(any(test, fuzzing))]
    twin: twin::Twin,
}

impl Default for StreamList {
    fn default() -> Self {
        Self {
            occupied: [0; WORDS],
            bins: [const { Vec::new() }; BINS],
            #[cfg(any(test, fuzzing))]
            twin: twin::Twin::default(),
        }
    }
}

impl StreamList {
    #[inline(always)]
    pub fn insert(&mut self, size: Bytes, place: impl Into<Place>, block: SlabIndex) {
        let order = Order { size, place: place.into() };
        let bin = bin_of(size);
        let keys = &mut self.bins[bin];
        let slot = keys.partition_point(|key| key.order < order);
        keys.insert(slot, Key { order, block });
        self.occupied[bin / 64] |= 1 << (bin % 64);
        #[cfg(any(test, fuzzing))]
        self.twin.insert(order, block);
    }

    /// Takes a block out.
    ///
    /// # Panics
    /// If it is not there.
    #[inline(always)]
    pub fn remove(&mut self, size: Bytes, place: impl Into<Place>) {
        let order = Order { size, place: place.into() };
        let bin = bin_of(size);
        let slot = match &self.bins[bin][..] {
            [_] => 0,
            keys => keys.partition_point(|key| key.order < order),
        };
        let is_there = self.bins[bin].get(slot).is_some_and(|key| key.order == order);
        assert!(is_there, "block is not free");
        self.take_out(bin, slot);
    }

    /// The smallest block with at least `size` bytes; among equals the one with the lowest place.
    #[inline(always)]
    pub fn best_fit(&self, size: Bytes) -> Option<Cursor> {
        let bin = bin_of(size);
        let slot = self.bins[bin].partition_point(|key| key.order.size < size);
        let found = self.from(bin, slot);
        #[cfg(any(test, fuzzing))]
        assert_eq!(found.map(|at| at.block), self.twin.best_fit(size));
        found
    }

    #[inline]
    pub fn next(&self, at: Cursor) -> Option<Cursor> {
        let next = self.from(at.bin.into(), at.slot as usize + 1);
        #[cfg(any(test, fuzzing))]
        {
            let order = self.bins[usize::from(at.bin)][at.slot as usize].order;
            assert_eq!(next.map(|at| at.block), self.twin.after(order));
        }
        next
    }

    #[inline(always)]
    pub fn remove_at(&mut self, at: Cursor) {
        self.take_out(at.bin.into(), at.slot as usize);
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = SlabIndex> + '_ {
        self.bins.iter().flat_map(|bin| bin.iter().map(|key| key.block))
    }

    /// The blocks that are smaller than `size`, from the largest down.
    pub fn smaller_than(&self, size: Bytes) -> impl Iterator<Item = SlabIndex> + '_ {
        let keys = self.bins.iter().rev().flat_map(|bin| bin.iter().rev());
        keys.filter(move |key| key.order.size < size).map(|key| key.block)
    }

    /// The position itself, or the first of the next bin that is not empty.
    #[inline(always)]
    fn from(&self, bin: usize, slot: usize) -> Option<Cursor> {
        if let Some(&Key { block, .. }) = self.bins[bin].get(slot) {
            return Some(Cursor { bin: bin as u16, slot: slot as u32, block });
        }
        let bin = self.occupied_after(bin)?;
        let Key { block, .. } = self.bins[bin][0];
        Some(Cursor { bin: bin as u16, slot: 0, block })
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
    fn take_out(&mut self, bin: usize, slot: usize) {
        let keys = &mut self.bins[bin];
        #[cfg(any(test, fuzzing))]
        self.twin.remove(keys[slot].order);
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

/// The obvious version: the set as PyTorch has it, for one stream.
#[cfg(any(test, fuzzing))]
mod twin {
    use std::collections::BTreeMap;
    use std::ops::Bound::{Excluded, Unbounded};

    use super::{Bytes, Order, Place, SlabIndex};

    const fn first(size: Bytes) -> Order {
        Order { size, place: Place { rank: 0, at: 0 } }
    }

    #[derive(Debug, Clone, Default)]
    pub(super) struct Twin {
        pub(super) set: BTreeMap<Order, SlabIndex>,
    }

    impl Twin {
        pub(super) fn insert(&mut self, order: Order, block: SlabIndex) {
            assert_eq!(self.set.insert(order, block), None, "block was free already");
        }

        pub(super) fn remove(&mut self, order: Order) {
            assert!(self.set.remove(&order).is_some(), "block was not free");
        }

        pub(super) fn best_fit(&self, size: Bytes) -> Option<SlabIndex> {
            self.set.range(first(size)..).next().map(|(_, &block)| block)
        }

        pub(super) fn after(&self, order: Order) -> Option<SlabIndex> {
            self.set.range((Excluded(order), Unbounded)).next().map(|(_, &block)| block)
        }

        pub(super) fn smaller_than(&self, size: Bytes) -> Vec<SlabIndex> {
            self.set.range(..first(size)).rev().map(|(_, &block)| block).collect()
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
                index.open(stream);
                let list = index.of(stream);
                match (action, list.best_fit(size)) {
                    (1, Some(at)) => list.remove_at(list.next(at).unwrap_or(at)),
                    (2, Some(at)) => {
                        let mut keys = list.twin.set.iter();
                        let order = *keys.find(|(_, block)| **block == at.block).unwrap().0;
                        list.remove(order.size, order.place);
                    }
                    _ => {
                        let at = u64::from(block).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                        list.insert(size, Place { rank, at }, block);
                    }
                }
                let smaller = list.twin.smaller_than(size);
                prop_assert!(index.smaller_than(stream, size).eq(smaller));
                let twins = index.lists.iter().flatten().map(|list| &list.twin);
                prop_assert!(index.iter().eq(twins.flat_map(|twin| twin.set.values().copied())));
            }
        }
    }
}
