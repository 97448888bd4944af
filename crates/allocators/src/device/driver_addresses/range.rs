//! One range of address space, and the holes in it.

use std::collections::{BTreeMap, BTreeSet};

use super::Choice;
use gmlake_core::units::Bytes;

#[derive(Debug, Clone)]
pub(super) struct Range {
    pub(super) base: u64,
    pub(super) size: Bytes,
    /// Its place in the order in which the ranges came.
    pub(super) birth: usize,
    /// Sizes, by address.
    holes: BTreeMap<u64, Bytes>,
    by_size: BTreeSet<(Bytes, u64)>,
}

impl Range {
    pub(super) fn new(base: u64, size: Bytes, birth: usize) -> Self {
        let mut range =
            Self { base, size, birth, holes: BTreeMap::new(), by_size: BTreeSet::new() };
        range.insert(base, size);
        range
    }

    /// The size of the largest hole, 0 if there is none.
    pub(super) fn largest(&self) -> Bytes {
        self.by_size.last().map_or(0, |&(size, _)| size)
    }

    /// Takes the front of a hole.
    pub(super) fn take(&mut self, size: Bytes, choice: Choice) -> Option<u64> {
        let at = match choice {
            Choice::Smallest => self.by_size.range((size, 0)..).next()?.1,
            Choice::Lowest => *self.holes.iter().find(|&(_, &hole)| hole >= size)?.0,
        };
        let hole = self.remove(at);
        if hole > size {
            self.insert(at + size, hole - size);
        }
        Some(at)
    }

    /// Makes a hole, one with its neighbours.
    pub(super) fn give(&mut self, at: u64, size: Bytes) {
        let (mut at, mut end) = (at, at + size);
        let before = self.holes.range(..at).next_back().map(|(&start, &size)| (start, size));
        if let Some((start, size)) = before
            && start + size == at
        {
            self.remove(start);
            at = start;
        }
        if self.holes.contains_key(&end) {
            end += self.remove(end);
        }
        self.insert(at, end - at);
    }

    fn insert(&mut self, at: u64, size: Bytes) {
        self.holes.insert(at, size);
        self.by_size.insert((size, at));
    }

    fn remove(&mut self, at: u64) -> Bytes {
        let size = self.holes.remove(&at).unwrap_or(0);
        self.by_size.remove(&(size, at));
        size
    }
}
