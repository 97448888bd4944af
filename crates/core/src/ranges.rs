//! Ranges of addresses, each with a value: what is known of which part of a memory.
//!
//! ```text
//!   ├──── a ────┼────── b ──────┤        take 3..9:   ├─ a ─┤           ├─ b ─┤    and 3..6: a, 6..9: b
//!   0     3     6       9      12                     0     3           9    12
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

/// Values by ranges, which do not overlap. Those that touch and have equal values are one.
#[derive(Debug, Clone)]
pub struct Ranges<V> {
    /// Where each begins; its end and its value.
    by_start: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for Ranges<V> {
    fn default() -> Self {
        Self { by_start: BTreeMap::new() }
    }
}

impl<V: Clone + PartialEq> Ranges<V> {
    /// Gives a range a value, in place of those that parts of it had.
    pub fn set(&mut self, range: Range<u64>, value: V) {
        self.take(range.clone());
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        if let Some((&before, (its_end, its_value))) = self.by_start.range(..start).next_back()
            && (*its_end, its_value) == (start, &value)
        {
            start = before;
        }
        if self.by_start.get(&end).is_some_and(|(_, its_value)| *its_value == value)
            && let Some((its_end, _)) = self.by_start.remove(&end)
        {
            end = its_end;
        }
        self.by_start.insert(start, (end, value));
    }

    /// The parts of a range that have a value, in their order.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, &V)> {
        let before = self.by_start.range(..range.start).next_back();
        let all = before.into_iter().chain(self.by_start.range(range.clone()));
        let parts = all.map(move |(&start, (end, value))| {
            (start.max(range.start)..range.end.min(*end), value)
        });
        parts.filter(|(part, _)| !part.is_empty())
    }

    /// Takes the values of a range away: the parts that had one, in their order.
    pub fn take(&mut self, range: Range<u64>) -> Vec<(Range<u64>, V)> {
        let parts: Vec<_> = self.within(range).map(|(part, value)| (part, value.clone())).collect();
        for (part, value) in &parts {
            let Some((&start, &(end, _))) = self.by_start.range(..=part.start).next_back() else {
                continue;
            };
            self.by_start.remove(&start);
            for rest in [start..part.start, part.end..end] {
                if !rest.is_empty() {
                    self.by_start.insert(rest.start, (rest.end, value.clone()));
                }
            }
        }
        parts
    }

    /// Keeps only some of the ranges.
    pub fn retain(&mut self, is_kept: impl Fn(Range<u64>) -> bool) {
        self.by_start.retain(|&start, &mut (end, _)| is_kept(start..end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The obvious twin: the value of each address.
        #[test]
        fn every_address_has_the_value_that_it_was_given_last(
            steps in prop::collection::vec((0..60_u64, 0..12_u64, 0..3_u8, any::<bool>()), 1..60),
        ) {
            let (mut twin, mut ranges) = ([None; 80], Ranges::default());
            for (start, size, value, is_set) in steps {
                let end = start + size;
                let (range, places) = (start..end, start as usize..end as usize);
                let mut found = [None; 80];
                for (part, &value) in ranges.within(range.clone()) {
                    found[part.start as usize..part.end as usize].fill(Some(value));
                }
                prop_assert_eq!(&found[places.clone()], &twin[places.clone()]);
                prop_assert!(found.iter().flatten().count() <= size as usize);
                twin[places].fill(is_set.then_some(value));
                if is_set {
                    ranges.set(range, value);
                } else {
                    ranges.take(range);
                }
                let all: Vec<_> = ranges.within(0..80).collect();
                let runs = twin.chunk_by(|a, b| a == b).filter(|run| run[0].is_some()).count();
                prop_assert_eq!(all.len(), runs);
            }
        }
    }
}
