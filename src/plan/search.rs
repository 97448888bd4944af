//! The smallest device that runs a trace.
//!
//! More memory does not always help: an allocator that flushes its cache at another moment, or stitches other blocks,
//! may run out on a larger device and get through on a smaller one. So "the smallest that runs" is not simply where a
//! bisection ends. What is found here is a size that runs while the next smaller one, one step below, does not; and
//! before it is taken for the answer, sizes spread over all that lies below are tried as well:
//!
//! ```text
//!   floor                                                 ceiling
//!     │  ×     ×     ×     ×     ×     ×  × × ×✓ ✓     ✓     ✓        bisection: ✓ runs, × runs out of memory
//!     │                                                 ×        a step below: who keeps no cache ends here
//!     │     ?     ?     ?     ?     ?     ?                      scouts: if one runs, the border below it is sought
//!     live bytes: nothing runs below                      what the run held whose memory never ran out
//! ```

use super::need::Trial;
use crate::units::Bytes;

/// Sizes below the border that are tried before it is taken for the lowest one.
const SCOUTS: u64 = 8;
/// What an allocator holds without a limit suffices nearly always with one; where it does not, it is raised by a
/// quarter that many times.
const RAISES: u32 = 6;

/// What was found.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    /// The run on the smallest device that serves every request.
    pub smallest: Option<Trial>,
    /// The run on one that is smaller by a step.
    pub below: Option<Trial>,
    /// Runs that were made.
    pub runs: u64,
}

/// Finds the smallest size that runs, in bytes: less than `floor` cannot, `ceiling` is likely to. The sizes that are
/// tried are multiples of `step`.
pub(super) fn smallest<E>(
    floor: Bytes,
    ceiling: Bytes,
    step: Bytes,
    try_at: impl FnMut(Bytes) -> Result<Trial, E>,
) -> Result<Found, E> {
    let mut probe = Probe { step: step.max(1), try_at, found: Found::default() };
    let floor = floor.saturating_sub(1) / probe.step;
    if !probe.climb(ceiling.div_ceil(probe.step).max(floor + 1))? {
        return Ok(probe.found);
    }
    // Who keeps no cache needs what it held, to the step: one run more tells.
    if probe.best() > floor + 1 && probe.runs(probe.best() - 1)? {
        probe.bisect(floor)?;
    }
    probe.scout(floor)?;
    probe.settle()?;
    Ok(probe.found)
}

struct Probe<F> {
    step: Bytes,
    try_at: F,
    found: Found,
}

impl<E, F: FnMut(Bytes) -> Result<Trial, E>> Probe<F> {
    /// Runs at `size` steps, and keeps the result if it is the smallest that runs.
    fn runs(&mut self, size: u64) -> Result<bool, E> {
        let trial = (self.try_at)(size * self.step)?;
        self.found.runs += 1;
        let found = &mut self.found;
        if trial.runs() {
            found.smallest = Some(trial);
        }
        // Of the sizes that do not run, the largest below the smallest that does is kept.
        let candidates = found.below.into_iter().chain((!trial.runs()).then_some(trial));
        let least = found.smallest.map_or(Bytes::MAX, |smallest| smallest.capacity_bytes);
        let lower = candidates.filter(|below| below.capacity_bytes < least);
        found.below = lower.max_by_key(|below| below.capacity_bytes);
        Ok(trial.runs())
    }

    /// The smallest size that runs, in steps.
    fn best(&self) -> u64 {
        self.found.smallest.map_or(0, |trial| trial.capacity_bytes / self.step)
    }

    /// Looks for any size that runs, from `size` up.
    fn climb(&mut self, mut size: u64) -> Result<bool, E> {
        for _ in 0..RAISES {
            if self.runs(size)? {
                return Ok(true);
            }
            size += size.div_ceil(4);
        }
        self.runs(size)
    }

    /// Narrows the range between `fails`, which does not run, and the best, which does.
    fn bisect(&mut self, mut fails: u64) -> Result<(), E> {
        while self.best() - fails > 1 {
            let middle = fails + (self.best() - fails) / 2;
            if !self.runs(middle)? {
                fails = middle;
            }
        }
        Ok(())
    }

    /// Tries sizes spread between the floor and the border; from the smallest that runs, goes down to its border.
    fn scout(&mut self, floor: u64) -> Result<(), E> {
        let range = self.best() - floor;
        let mut fails = floor;
        for scout in 1..SCOUTS {
            let size = floor + range * scout / SCOUTS;
            if size <= fails || size >= self.best() {
                continue;
            }
            if self.runs(size)? {
                return self.bisect(fails);
            }
            fails = size;
        }
        Ok(())
    }

    /// Makes sure that the size below the best was run, and that it does not run. If it does, the floor was none.
    fn settle(&mut self) -> Result<(), E> {
        let is_known = |probe: &Self| {
            probe.found.below.is_some_and(|t| t.capacity_bytes == (probe.best() - 1) * probe.step)
        };
        if self.best() > 1 && !is_known(self) && self.runs(self.best() - 1)? {
            self.bisect(0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;
    use crate::plan::need::Shortage;

    fn trial(capacity_bytes: Bytes, runs: bool) -> Trial {
        Trial {
            capacity_bytes,
            reserved_peak_bytes: capacity_bytes,
            alloc_retries: 0,
            device_calls: 0,
            shortage: (!runs).then_some(Shortage { event: 0, step: None }),
        }
    }

    fn search(floor: Bytes, ceiling: Bytes, step: Bytes, runs: impl Fn(Bytes) -> bool) -> Found {
        let try_at = |size| Ok::<_, Infallible>(trial(size, runs(size)));
        smallest(floor, ceiling, step, try_at).unwrap()
    }

    #[test]
    fn a_border_is_found_in_few_runs() {
        for border in [11, 12, 500, 999, 1000] {
            let found = search(10, 1000, 1, |size| size >= border);
            assert_eq!(found.smallest.unwrap().capacity_bytes, border);
            assert_eq!(found.below.unwrap().capacity_bytes, border - 1);
            assert!(found.runs <= 10 + SCOUTS + 2, "{} runs", found.runs);
        }
    }

    #[test]
    fn an_island_below_the_border_is_found() {
        // 300..=400 runs, 401..800 does not.
        let runs = |size| (300..=400).contains(&size) || size >= 800;
        let found = search(1, 900, 1, runs);
        assert_eq!(found.smallest.unwrap().capacity_bytes, 300);
    }

    #[test]
    fn where_the_ceiling_does_not_suffice_it_is_raised() {
        let found = search(10, 100, 1, |size| size >= 180);
        assert_eq!(found.smallest.unwrap().capacity_bytes, 180);
        let never = search(10, 100, 1, |_| false);
        assert!(never.smallest.is_none() && never.below.is_some());
    }

    #[test]
    fn sizes_are_multiples_of_the_step_and_the_floor_is_no_dogma() {
        let found = search(101, 1003, 10, |size| size >= 77);
        // Nothing was to run below the floor, but it does: the answer is right all the same.
        assert_eq!(found.smallest.unwrap().capacity_bytes, 80);
        assert_eq!(found.below.unwrap().capacity_bytes, 70);
    }

    proptest! {
        /// Against the obvious twin, which tries every size: the answer runs, the next smaller one does not, and with a
        /// plain border it is the smallest of all.
        #[test]
        fn the_answer_is_a_border(pattern in proptest::collection::vec(any::<bool>(), 1..200)) {
            let ceiling = pattern.len() as u64 + 1;
            let runs = |size: Bytes| size >= ceiling || pattern[size as usize - 1];
            let found = search(1, ceiling, 1, runs);
            let answer = found.smallest.unwrap().capacity_bytes;
            prop_assert!(runs(answer) && (answer == 1 || !runs(answer - 1)));
            let border = pattern.len() as u64 / 2 + 1;
            let plain = search(1, ceiling, 1, |size| size >= border);
            let obvious = (1..=ceiling).find(|&size| size >= border).unwrap();
            prop_assert_eq!(plain.smallest.unwrap().capacity_bytes, obvious);
        }
    }
}
