//! One range of address space, and the holes in it.

use super::Choice;
use crate::holes::Holes;
use gmlake_core::units::Bytes;

#[derive(Debug, Clone)]
pub(super) struct Range {
    pub(super) base: u64,
    pub(super) size: Bytes,
    /// Its place in the order in which the ranges came.
    pub(super) birth: usize,
    holes: Holes,
}

impl Range {
    pub(super) fn new(base: u64, size: Bytes, birth: usize) -> Self {
        let mut range = Self { base, size, birth, holes: Holes::default() };
        range.give(base, size);
        range
    }

    /// The size of the largest hole, 0 if there is none.
    pub(super) fn largest(&self) -> Bytes {
        self.holes.largest()
    }

    /// Takes the front of a hole.
    pub(super) fn take(&mut self, size: Bytes, choice: Choice) -> Option<u64> {
        let at = match choice {
            Choice::Smallest => self.holes.best(size),
            Choice::Lowest => self.holes.first(size),
        }?;
        self.holes.take(at, size);
        Some(at)
    }

    /// Makes a hole, one with its neighbours.
    pub(super) fn give(&mut self, at: u64, size: Bytes) {
        self.holes.give(at, size, |_| false);
    }
}
