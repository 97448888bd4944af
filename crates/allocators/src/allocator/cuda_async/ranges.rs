//! Free ranges, by address and by size: those that touch are one, the best fit is the oldest of the smallest.
//!
//! ```text
//!   insert  |####|  next to  |##|   =   |######|, as new as the last of them    take  |###|  the rest is new, too
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::device::Fence;
use gmlake_core::units::Bytes;

/// Free bytes, at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) at: u64,
    pub(super) size: Bytes,
    /// When the range came to be what it is: of two that are equally large, the older one is taken.
    pub(super) entered: u64,
    /// When the last part of it was freed.
    pub(super) freed: u64,
    /// The end of what its stream had queued then.
    pub(super) fence: Option<Fence>,
}

impl Range {
    pub(super) fn end(&self) -> u64 {
        self.at + self.size
    }
}

/// Free ranges that do not touch.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges {
    by_address: BTreeMap<u64, Range>,
    by_size: BTreeSet<(Bytes, u64, u64)>,
    clock: u64,
}

impl Ranges {
    /// Adds bytes that were freed. Ranges that became part of the new one are in `merged`.
    pub(super) fn free(
        &mut self,
        (at, size): (u64, Bytes),
        fence: Option<Fence>,
        merged: &mut Vec<Range>,
    ) -> Range {
        self.clock += 1;
        let mut range = Range { at, size, entered: self.clock, freed: self.clock, fence };
        let after = self.by_address.get(&range.end()).copied();
        let before = self.by_address.range(..at).next_back().map(|(_, &before)| before);
        if let Some(after) = after {
            range.size += after.size;
        }
        let before = before.filter(|before| before.end() == at);
        if let Some(before) = before {
            (range.at, range.size) = (before.at, before.size + range.size);
        }
        for neighbour in [before, after].into_iter().flatten() {
            self.remove(&neighbour);
            merged.push(neighbour);
        }
        self.insert(range);
        range
    }

    /// Takes the first `size` bytes of a range out. What is left of it is new, but was freed when it was freed.
    pub(super) fn cut(&mut self, range: &Range, size: Bytes) -> Option<Range> {
        self.remove(range);
        self.clock += 1;
        let (at, left) = (range.at + size, range.size - size);
        let rest = Range { at, size: left, entered: self.clock, ..*range };
        (left > 0).then(|| {
            self.insert(rest);
            rest
        })
    }

    fn insert(&mut self, range: Range) {
        self.by_address.insert(range.at, range);
        self.by_size.insert((range.size, range.entered, range.at));
    }

    pub(super) fn remove(&mut self, range: &Range) {
        self.by_address.remove(&range.at);
        self.by_size.remove(&(range.size, range.entered, range.at));
    }

    /// The best fit of those that `may` be taken.
    pub(super) fn best(&self, size: Bytes, may: impl Fn(&Range) -> bool) -> Option<Range> {
        let fits = self.by_size.range((size, 0, 0)..);
        fits.map(|(_, _, at)| self.by_address[at]).find(may)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Range> {
        self.by_address.values()
    }

    /// The ranges with bytes from `from` on and before `to`.
    pub(super) fn overlapping(&self, from: u64, to: u64) -> Vec<Range> {
        let before = self.by_address.range(..from).next_back().map(|(_, range)| range);
        let before = before.filter(|before| before.end() > from).into_iter();
        before.chain(self.by_address.range(from..to).map(|(_, range)| range)).copied().collect()
    }

    /// All ranges, the one that was freed first in front.
    pub(super) fn by_age(&self) -> Vec<Range> {
        let mut all: Vec<_> = self.by_address.values().copied().collect();
        all.sort_unstable_by_key(|range| range.freed);
        all
    }
}
