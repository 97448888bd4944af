//! Holes: free stretches of addresses. Those that touch are one, and the best fit for a request is found at once.
//!
//! ```text
//!     0  4      12   16
//!     │  ├──────┤    │       a hole of 8 bytes
//!     │  │      ├────┤       give 4 at 12: one hole of 12 bytes, unless 12 is a border
//!     │  ├─┤                 take 3 at 4: the hole begins at 7
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

use gmlake_core::units::Bytes;

/// Holes by address and by size.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holes {
    /// Size and age of each, by address.
    by_address: BTreeMap<u64, (Bytes, u64)>,
    /// Size, age and address.
    by_size: BTreeSet<(Bytes, u64, u64)>,
    /// The age of the next hole, where ages count.
    age: Option<u64>,
}

impl Holes {
    /// No hole yet. Of equal holes the oldest will be the best, in place of the lowest.
    pub(crate) fn oldest_first() -> Self {
        Self { age: Some(0), ..Self::default() }
    }

    /// The size of the hole that begins here.
    pub(crate) fn get(&self, at: u64) -> Option<Bytes> {
        self.by_address.get(&at).map(|&(size, _)| size)
    }

    /// The size of the largest hole, 0 if there is none.
    pub(crate) fn largest(&self) -> Bytes {
        self.by_size.last().map_or(0, |&(size, ..)| size)
    }

    /// The smallest hole of at least this size.
    pub(crate) fn best(&self, size: Bytes) -> Option<u64> {
        self.by_size.range((size, 0, 0)..).next().map(|&(.., at)| at)
    }

    /// The lowest hole of at least this size, after a walk along all that are lower.
    pub(crate) fn first(&self, size: Bytes) -> Option<u64> {
        self.within(..).find(|&(_, hole)| hole >= size).map(|(at, _)| at)
    }

    /// Address and size of the holes that begin in a range.
    pub(crate) fn within(
        &self,
        range: impl RangeBounds<u64>,
    ) -> impl DoubleEndedIterator<Item = (u64, Bytes)> {
        self.by_address.range(range).map(|(&at, &(size, _))| (at, size))
    }

    /// Makes a hole, one with its neighbours unless a border is between them. Returns the whole.
    pub(crate) fn give(
        &mut self,
        mut at: u64,
        mut size: Bytes,
        is_border: impl Fn(u64) -> bool,
    ) -> (u64, Bytes) {
        let end = at + size;
        if !is_border(end) {
            size += self.remove(end);
        }
        let before =
            self.within(..at).next_back().filter(|&(start, its_size)| start + its_size == at);
        if let Some((start, its_size)) = before
            && !is_border(at)
        {
            self.remove(start);
            (at, size) = (start, its_size + size);
        }
        self.insert(at, size);
        (at, size)
    }

    /// Takes the front of the hole that begins here.
    pub(crate) fn take(&mut self, at: u64, size: Bytes) {
        let hole = self.remove(at);
        debug_assert!(size <= hole, "{size} bytes of a hole of {hole} at {at:#x}");
        if hole > size {
            self.insert(at + size, hole - size);
        }
    }

    fn insert(&mut self, at: u64, size: Bytes) {
        self.age = self.age.map(|age| age + 1);
        let age = self.age.unwrap_or(0);
        self.by_address.insert(at, (size, age));
        self.by_size.insert((size, age, at));
    }

    fn remove(&mut self, at: u64) -> Bytes {
        let (size, age) = self.by_address.remove(&at).unwrap_or_default();
        self.by_size.remove(&(size, age, at));
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BORDER: usize = 16;

    /// The obvious twin: whether each address is free, and runs of those that are.
    fn runs(free: &[bool; 64]) -> Vec<(u64, Bytes)> {
        let starts = |&at: &usize| free[at] && (at % BORDER == 0 || !free[at - 1]);
        let length = |at: usize| free[at..(at / BORDER + 1) * BORDER].iter().take_while(|f| **f);
        (0..64).filter(starts).map(|at| (at as u64, length(at).count() as Bytes)).collect()
    }

    proptest! {
        #[test]
        fn holes_are_those_of_the_twin(
            steps in prop::collection::vec((any::<bool>(), 0..64_u64, 1..9_u64), 0..80),
            least in 1..20_u64,
        ) {
            let (mut holes, mut free) = (Holes::default(), [false; 64]);
            for (gives, at, size) in steps {
                let size = size.min(BORDER as u64 - at % BORDER as u64);
                let places = at as usize..(at + size) as usize;
                if gives && !free[places.clone()].contains(&true) {
                    free[places].fill(true);
                    let (start, whole) = holes.give(at, size, |at| at % BORDER as u64 == 0);
                    prop_assert!(start <= at && start + whole >= at + size);
                } else if !gives && holes.get(at).is_some_and(|hole| hole >= size) {
                    free[places].fill(false);
                    holes.take(at, size);
                }
                let runs = runs(&free);
                prop_assert_eq!(holes.within(..).collect::<Vec<_>>(), runs.clone());
                let fits = || runs.iter().filter(|&&(_, size)| size >= least);
                prop_assert_eq!(holes.first(least), fits().next().map(|&(at, _)| at));
                let best = fits().min_by_key(|&&(at, size)| (size, at));
                prop_assert_eq!(holes.best(least), best.map(|&(at, _)| at));
                prop_assert_eq!(holes.largest(), runs.iter().map(|run| run.1).max().unwrap_or(0));
            }
        }
    }

    #[test]
    fn the_oldest_of_equal_holes_is_the_best_on_request() {
        let mut holes = Holes::oldest_first();
        for at in [20, 10, 30] {
            holes.give(at, 1, |_| false);
        }
        assert_eq!(holes.best(1), Some(20));
        holes.take(20, 1);
        holes.give(20, 1, |_| false);
        assert_eq!(holes.best(1), Some(10));
    }
}
