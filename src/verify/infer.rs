//! Inference of what a recording leaves open: the memory limit, and the pools of segments that are gone.
//!
//! Both are found in the same way: assume, replay, and see whether anything contradicts. A replay that only asks for
//! the first contradiction ends there, so that a wrong assumption costs little.

use std::collections::BTreeSet;

use super::entries::ends_operation;
use super::lifetimes::{Lifetimes, MemPools, user_pools};
use super::limits::{self, Limits};
use super::pool_options::OptionSearch;
use super::replay::{Assumed, Recorded, replay};
use super::verification::{HOPELESS, Verification};
use crate::allocator::Environment;
use crate::trace::{Records, both};
use crate::units::Bytes;

/// Entries replayed at most in search of private segments.
const POOL_EFFORT: usize = 20_000_000;

/// Verifies a recording, inferring what it does not say.
pub fn verify(records: &Records, environment: &Environment) -> Verification {
    let pools = || (Lifetimes::new(records), MemPools::known(records));
    let (recorded, (lifetimes, mempools)) = both(|| Recorded::new(records, environment), pools);
    let found = infer(&recorded, lifetimes, mempools);
    let memory_range = limits::range(environment, recorded.bounds, &found);
    Verification { memory_range, ..found }
}

fn infer<'r>(
    recorded: &Recorded<'r>,
    mut lifetimes: Lifetimes<'r>,
    mempools: MemPools,
) -> Verification {
    let records = recorded.records;
    let found = with_limit(recorded, &lifetimes, &mempools);
    if found.difference_count == 0 {
        return found;
    }
    let (found, mempools) = with_options(recorded, &lifetimes, found, mempools);
    if found.difference_count == 0 || records.has_pools {
        return found;
    }
    let limit = found.limit;
    let candidates = lifetimes.undetermined().to_vec();
    let trials = trials(records);
    let (lifetimes, mempools) = (&mut lifetimes, &mempools);
    let mut search = PoolSearch { recorded, limit, lifetimes, mempools, candidates, trials };
    if !search.run(&mut BTreeSet::new()) {
        return found;
    }
    replay(recorded, Assumed { limit, lifetimes, mempools, patience: HOPELESS })
}

/// Replays that a search may make.
fn trials(records: &Records) -> usize {
    POOL_EFFORT / records.entries.len().max(1)
}

/// Whether the entries make sense from an empty device on, whatever state the file ends with. If they do although the
/// final state says that memory was held before, the history stopped before the snapshot was taken.
pub fn begins_with_program(records: &mut Records, environment: &Environment) -> bool {
    let (segments, has_segments) = (std::mem::take(&mut records.segments), records.has_segments);
    records.has_segments = false;
    let makes_sense = makes_sense(&Recorded::new(records, environment));
    (records.segments, records.has_segments) = (segments, has_segments);
    makes_sense
}

fn limits_of(recorded: &Recorded<'_>) -> Limits {
    let &Recorded { records, environment, bounds, .. } = recorded;
    Limits::new(&records.entries, environment, bounds)
}

fn makes_sense(recorded: &Recorded<'_>) -> bool {
    let lifetimes = &Lifetimes::new(recorded.records);
    let mempools = &MemPools::known(recorded.records);
    // The history may stop in the middle of an operation.
    let entries = &recorded.records.entries;
    let whole = entries.iter().rposition(ends_operation).map_or(0, |last| last + 1);
    limits_of(recorded).all.into_iter().any(|limit| {
        let assumed = Assumed { limit, lifetimes, mempools, patience: 0 };
        assumed.contradiction(recorded).is_none_or(|entry| entry >= whole)
    })
}

/// The same with the options of the program's pools that explain more of it, if any do.
fn with_options(
    recorded: &Recorded<'_>,
    lifetimes: &Lifetimes<'_>,
    found: Verification,
    mempools: MemPools,
) -> (Verification, MemPools) {
    if user_pools(recorded.records).is_empty() {
        return (found, mempools);
    }
    let (limit, patience) = (found.limit, HOPELESS);
    let trials = trials(recorded.records);
    let search = OptionSearch { recorded, limit, lifetimes, trials };
    let options = search.run(mempools.clone());
    let better = replay(recorded, Assumed { limit, lifetimes, mempools: &options, patience });
    if better.difference_count < found.difference_count {
        (better, options)
    } else {
        (found, mempools)
    }
}

/// A replay under the memory limit with which the recording makes sense longest.
fn with_limit(
    recorded: &Recorded<'_>,
    lifetimes: &Lifetimes<'_>,
    mempools: &MemPools,
) -> Verification {
    let Limits { all, unsupported } = limits_of(recorded);
    let under =
        |limit, patience| replay(recorded, Assumed { limit, lifetimes, mempools, patience });
    let mut best = (0, all[unsupported]);
    for (number, &limit) in all.iter().enumerate().filter(|_| all.len() > 1) {
        let trial = under(limit, 0);
        let Some(first) = trial.differences.first() else {
            // It refused what came in a second attempt, and nothing else did.
            if number >= unsupported || (trial.retries > 0 && trial.least_refused.is_none()) {
                return trial;
            }
            continue;
        };
        if first.entry > best.0 {
            best = (first.entry, limit);
        }
    }
    under(best.1, HOPELESS)
}

/// Which of the segments that are gone at the end were private: chronological backtracking. A contradiction is
/// resolved by making one segment private that was created before it (or by it), the latest first; where none of them
/// resolves it, an earlier choice was wrong.
struct PoolSearch<'a, 'r> {
    recorded: &'a Recorded<'r>,
    limit: Option<Bytes>,
    lifetimes: &'a mut Lifetimes<'r>,
    mempools: &'a MemPools,
    candidates: Vec<usize>,
    trials: usize,
}

impl PoolSearch<'_, '_> {
    /// Whether private segments, on top of those in `private`, explain the recording: the lifetimes then have them.
    fn run(&mut self, private: &mut BTreeSet<usize>) -> bool {
        match self.first_contradiction(private) {
            None => true,
            Some(contradiction) => self.resolve(contradiction, private),
        }
    }

    fn resolve(&mut self, contradiction: usize, private: &mut BTreeSet<usize>) -> bool {
        let before = self.candidates.partition_point(|&index| index <= contradiction);
        for number in (0..before).rev() {
            let candidate = self.candidates[number];
            if self.trials == 0 || !private.insert(candidate) {
                continue;
            }
            let is_found = match self.first_contradiction(private) {
                None => true,
                Some(later) => later > contradiction && self.resolve(later, private),
            };
            if is_found {
                return true;
            }
            private.remove(&candidate);
        }
        false
    }

    fn first_contradiction(&mut self, private: &BTreeSet<usize>) -> Option<usize> {
        self.trials = self.trials.saturating_sub(1);
        self.lifetimes.infer(private);
        let (limit, lifetimes, mempools) = (self.limit, &*self.lifetimes, self.mempools);
        Assumed { limit, lifetimes, mempools, patience: 0 }.contradiction(self.recorded)
    }
}
