//! Holes: free stretches of addresses. Those that touch are one, and the best fit for a request is found at once.
//! Where only what is taken is known, [`gaps`] finds what is free.
//!
//! ```text
//!     0  4      12   16
//!     │  ├──────┤    │       a hole of 8 bytes
//!     │  │      ├────┤       give 4 at 12: one hole of 12 bytes, unless 12 is a border
//!     │  ├─┤                 take 3 at 4: the hole begins at 7
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use gmlake_core::units::Bytes;

/// The parts of a range that none of some pieces is in, which come in order of address, with their sizes.
pub(crate) fn gaps(
    range: Range<u64>,
    taken: impl IntoIterator<Item = (u64, Bytes)>,
) -> Vec<Range<u64>> {
    let (mut gaps, mut cursor) = (Vec::new(), range.start);
    for (at, size) in taken.into_iter().chain([(range.end, 0)]) {
        let gap = cursor..at.min(range.end);
        gaps.extend(Some(gap).filter(|gap| !gap.is_empty()));
        cursor = cursor.max(at + size);
    }
    gaps
}

/// Holes by address and by size.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holes {
    /// By the address at which each ends, which stays when its front is taken.
    by_end: BTreeMap<u64, Hole>,
    /// Where each begins, by size and rank.
    by_size: BTreeMap<(Bytes, u64), u64>,
    /// The age of the newest hole, where ages count.
    age: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Hole {
    start: u64,
    /// Of equal holes the best has the lowest: its age or its address.
    rank: u64,
}

impl Holes {
    /// No hole yet. Of equal holes the oldest will be the best, in place of the lowest.
    pub(crate) fn oldest_first() -> Self {
        Self { age: Some(0), ..Self::default() }
    }

    /// The size of the hole that begins here.
    pub(crate) fn get(&self, at: u64) -> Option<Bytes> {
        let (&end, hole) = self.by_end.range(at + 1..).next()?;
        (hole.start == at).then_some(end - at)
    }

    /// The size of the largest hole, 0 if there is none.
    pub(crate) fn largest(&self) -> Bytes {
        self.by_size.last_key_value().map_or(0, |(&(size, _), _)| size)
    }

    /// The smallest hole of at least this size.
    pub(crate) fn best(&self, size: Bytes) -> Option<u64> {
        self.by_size.range((size, 0)..).next().map(|(_, &at)| at)
    }

    /// The lowest hole of at least this size, after a walk along all that are lower.
    pub(crate) fn first(&self, size: Bytes) -> Option<u64> {
        self.iter().find(|&(_, hole)| hole >= size).map(|(at, _)| at)
    }

    /// Address and size of each, by address.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, Bytes)> {
        self.by_end.iter().map(|(&end, hole)| (hole.start, end - hole.start))
    }

    /// Those of them that begin in a range.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Bytes)> {
        let ends_behind = self.by_end.range(range.start + 1..);
        ends_behind
            .map(|(&end, hole)| (hole.start, end - hole.start))
            .skip_while(move |&(at, _)| at < range.start)
            .take_while(move |&(at, _)| at < range.end)
    }

    /// Makes a hole, one with its neighbours unless a border is between them. Returns the whole.
    pub(crate) fn give(
        &mut self,
        at: u64,
        size: Bytes,
        is_border: impl Fn(u64) -> bool,
    ) -> (u64, Bytes) {
        let (mut start, mut end) = (at, at + size);
        if !is_border(at)
            && let Some(before) = self.by_end.remove(&at)
        {
            self.by_size.remove(&(at - before.start, before.rank));
            start = before.start;
        }
        if !is_border(end)
            && let Some((&its_end, after)) = self.by_end.range(end + 1..).next()
            && after.start == end
        {
            self.by_size.remove(&(its_end - end, after.rank));
            end = its_end;
        }
        self.insert(start, end);
        (start, end - start)
    }

    /// Takes the front of the hole that begins here.
    pub(crate) fn take(&mut self, at: u64, size: Bytes) {
        let behind = self.by_end.range(at + 1..).next().map(|(&end, &hole)| (end, hole));
        let found = behind.filter(|&(end, hole)| hole.start == at && end - at >= size);
        debug_assert!(found.is_some(), "no {size} bytes at {at:#x}: {behind:?}");
        let Some((end, hole)) = found else { return };
        self.by_size.remove(&(end - at, hole.rank));
        if end - at > size {
            self.insert(at + size, end);
        } else {
            self.by_end.remove(&end);
        }
    }

    /// A hole, in place of one with the same end.
    fn insert(&mut self, start: u64, end: u64) {
        self.age = self.age.map(|age| age + 1);
        let rank = self.age.unwrap_or(start);
        self.by_end.insert(end, Hole { start, rank });
        self.by_size.insert((end - start, rank), start);
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
                prop_assert_eq!(holes.iter().collect::<Vec<_>>(), runs.clone());
                let in_the_middle: Vec<_> =
                    runs.iter().copied().filter(|run| (20..40).contains(&run.0)).collect();
                prop_assert_eq!(holes.within(20..40).collect::<Vec<_>>(), in_the_middle);
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
