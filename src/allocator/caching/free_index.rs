//! The index of free blocks: exact best fit.
//!
//! PyTorch keeps the free blocks of a pool in one ordered set with the key (stream, size, address), all ascending, and
//! takes the first that is not less than (stream, request, 0). This is that set, laid out for speed: one list for each
//! stream, cut into leaves of sorted keys that fit a few cache lines.
//!
//! ```text
//!   stream 0   maxima  [ 1 MiB@a0 │ 24 MiB@f0 │  ∞      ]      which leaf: binary search here,
//!              leaves  [ .. .. .. │ .. .. ..  │ .. ..   ]      then inside the leaf
//! ```
//!
//! The obvious version, a `BTreeSet`, is the reference in the tests.

use crate::allocator::SlabIndex;
use crate::trace::StreamId;
use crate::units::Bytes;

/// Keys in a full leaf. Half of them move when one is inserted: 32 keys of 32 bytes are 1 KiB.
const LEAF: usize = 64;

/// A free block's place in the order of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Size in the upper half, address in the lower.
    rank: u128,
    block: SlabIndex,
}

#[inline]
fn rank(size: Bytes, at: u64) -> u128 {
    u128::from(size) << 64 | u128::from(at)
}

/// A position in the index, good until the next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    list: usize,
    leaf: usize,
    slot: usize,
}

/// The free blocks of one pool.
#[derive(Debug, Clone, Default)]
pub struct FreeIndex {
    lists: Vec<StreamList>,
}

impl FreeIndex {
    /// Adds a free block.
    #[inline]
    pub fn insert(&mut self, stream: StreamId, size: Bytes, at: u64, block: SlabIndex) {
        let list = match self.lists.binary_search_by_key(&stream, |list| list.stream) {
            Ok(list) => list,
            Err(list) => {
                self.lists.insert(list, StreamList::new(stream));
                list
            }
        };
        self.lists[list].insert(Key { rank: rank(size, at), block });
    }

    /// Takes a block out.
    ///
    /// # Panics
    /// If it is not there.
    #[inline]
    pub fn remove(&mut self, stream: StreamId, size: Bytes, at: u64) {
        let list = self.list_of(stream).expect("a free block's stream has a list");
        let (leaf, slot) = self.lists[list].lower_bound(rank(size, at));
        let key = self.lists[list].leaves[leaf].get(slot);
        assert_eq!(key.map(|key| key.rank), Some(rank(size, at)), "block is not in the free index");
        self.lists[list].remove(leaf, slot);
    }

    /// The smallest block of `stream` with at least `size` bytes; among equals the one with the lowest address.
    #[inline]
    #[must_use]
    pub fn best_fit(&self, stream: StreamId, size: Bytes) -> Option<Cursor> {
        let list = self.list_of(stream)?;
        let (leaf, slot) = self.lists[list].lower_bound(rank(size, 0));
        self.valid(Cursor { list, leaf, slot })
    }

    /// The next block of the same stream.
    #[inline]
    #[must_use]
    pub fn next(&self, at: Cursor) -> Option<Cursor> {
        let leaves = &self.lists[at.list].leaves;
        if at.slot + 1 < leaves[at.leaf].len() {
            Some(Cursor { slot: at.slot + 1, ..at })
        } else {
            self.valid(Cursor { leaf: at.leaf + 1, slot: 0, ..at })
        }
    }

    /// The block at a position.
    #[inline]
    #[must_use]
    pub fn block(&self, at: Cursor) -> SlabIndex {
        self.lists[at.list].leaves[at.leaf][at.slot].block
    }

    /// Takes out the block at a position.
    #[inline]
    pub fn remove_at(&mut self, at: Cursor) {
        self.lists[at.list].remove(at.leaf, at.slot);
    }

    /// Every block in the order of the index.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = SlabIndex> + '_ {
        let leaves = self.lists.iter().flat_map(|list| &list.leaves);
        leaves.flat_map(|leaf| leaf.iter().map(|key| key.block))
    }

    /// The blocks of `stream` that are smaller than `size`, from the largest down.
    pub fn smaller_than(
        &self,
        stream: StreamId,
        size: Bytes,
    ) -> impl Iterator<Item = SlabIndex> + '_ {
        let list = self.list_of(stream).map(|list| &self.lists[list]);
        let leaves = list.into_iter().flat_map(|list| list.leaves.iter().rev());
        let keys = leaves.flat_map(|leaf| leaf.iter().rev());
        keys.filter(move |key| key.rank < rank(size, 0)).map(|key| key.block)
    }

    #[inline]
    fn list_of(&self, stream: StreamId) -> Option<usize> {
        self.lists.iter().position(|list| list.stream == stream)
    }

    #[inline]
    fn valid(&self, at: Cursor) -> Option<Cursor> {
        let leaves = &self.lists[at.list].leaves;
        leaves.get(at.leaf).is_some_and(|leaf| at.slot < leaf.len()).then_some(at)
    }
}

/// The free blocks of one stream. `maxima[i]` is the last key of `leaves[i]`; no leaf is empty.
#[derive(Debug, Clone)]
struct StreamList {
    stream: StreamId,
    maxima: Vec<u128>,
    leaves: Vec<Vec<Key>>,
}

impl StreamList {
    fn new(stream: StreamId) -> Self {
        Self { stream, maxima: Vec::new(), leaves: Vec::new() }
    }

    /// Leaf and slot of the first key not below `rank`; one past the last leaf if there is none.
    #[inline]
    fn lower_bound(&self, rank: u128) -> (usize, usize) {
        let leaf = self.maxima.partition_point(|&max| max < rank);
        match self.leaves.get(leaf) {
            Some(keys) => (leaf, keys.partition_point(|key| key.rank < rank)),
            None => (leaf, 0),
        }
    }

    #[inline]
    fn insert(&mut self, key: Key) {
        let (mut leaf, mut slot) = self.lower_bound(key.rank);
        if leaf == self.leaves.len() {
            // Larger than all: it goes to the end of the last leaf.
            if leaf == 0 {
                self.leaves.push(Vec::with_capacity(LEAF));
                self.maxima.push(key.rank);
            } else {
                leaf -= 1;
                self.maxima[leaf] = key.rank;
            }
            slot = self.leaves[leaf].len();
        }
        self.leaves[leaf].insert(slot, key);
        if self.leaves[leaf].len() == LEAF {
            self.split(leaf);
        }
    }

    #[cold]
    fn split(&mut self, leaf: usize) {
        let mut upper = Vec::with_capacity(LEAF);
        upper.extend(self.leaves[leaf].drain(LEAF / 2..));
        let middle = self.leaves[leaf][LEAF / 2 - 1].rank;
        self.leaves.insert(leaf + 1, upper);
        self.maxima.insert(leaf, middle);
    }

    #[inline]
    fn remove(&mut self, leaf: usize, slot: usize) {
        let keys = &mut self.leaves[leaf];
        keys.remove(slot);
        match keys.last() {
            Some(last) => self.maxima[leaf] = last.rank,
            None => {
                self.leaves.remove(leaf);
                self.maxima.remove(leaf);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// What the index is compared with: the set as PyTorch has it.
    #[derive(Default)]
    struct Obvious(BTreeSet<(StreamId, Bytes, u64, SlabIndex)>);

    impl Obvious {
        fn best_fit(&self, stream: StreamId, size: Bytes) -> Option<SlabIndex> {
            let first = self.0.range((stream, size, 0, 0)..).next()?;
            (first.0 == stream).then_some(first.3)
        }

        fn smaller_than(&self, stream: StreamId, size: Bytes) -> Vec<SlabIndex> {
            let range = (stream, 0, 0, 0)..(stream, size, 0, 0);
            self.0.range(range).rev().map(|key| key.3).collect()
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_obvious_set(
            steps in prop::collection::vec((0u16..3, 1u64..40, 0u32..2), 1..700)
        ) {
            let (mut fast, mut obvious) = (FreeIndex::default(), Obvious::default());
            for (number, &(stream, size, remove)) in steps.iter().enumerate() {
                let (stream, block) = (StreamId(stream), number as SlabIndex);
                let fit = fast.best_fit(stream, size);
                prop_assert_eq!(fit.map(|at| fast.block(at)), obvious.best_fit(stream, size));
                if let (1, Some(at)) = (remove, fit) {
                    let next = fast.next(at).map(|next| fast.block(next));
                    let key = *obvious.0.iter().find(|key| key.3 == fast.block(at)).unwrap();
                    let after = (std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded);
                    let follower = obvious.0.range(after).next().filter(|key| key.0 == stream);
                    prop_assert_eq!(next, follower.map(|key| key.3));
                    if number % 2 == 0 { fast.remove_at(at) } else { fast.remove(stream, key.1, key.2) }
                    obvious.0.remove(&key);
                } else {
                    let at = u64::from(block.wrapping_mul(2_654_435_761));
                    fast.insert(stream, size, at, block);
                    obvious.0.insert((stream, size, at, block));
                }
                prop_assert!(fast.iter().eq(obvious.0.iter().map(|key| key.3)));
                let smaller: Vec<_> = fast.smaller_than(stream, size).collect();
                prop_assert_eq!(smaller, obvious.smaller_than(stream, size));
            }
        }
    }
}
