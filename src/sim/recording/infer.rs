//! Inference of what a recording leaves open: the memory limit, and the pools of segments that are gone.
//!
//! Both are found in the same way: assume, replay, and see whether anything contradicts. A replay that only asks for
//! the first contradiction ends there, so that a wrong assumption costs little.

use std::collections::BTreeSet;

use super::entries::limit_bounds;
use super::lifetimes::Lifetimes;
use super::verification::Verification;
use super::verify::{Assumed, HOPELESS, replay};
use crate::allocator::Environment;
use crate::trace::{Action, Records};
use crate::units::Bytes;

/// Memory of an NVIDIA H200 as its device properties state it, in bytes.
const H200_MEMORY: Bytes = 150_109_880_320;

/// Entries replayed at most in search of private segments.
const POOL_EFFORT: usize = 20_000_000;

/// Verifies a recording, inferring what it does not say.
#[must_use]
pub fn verify(records: &Records, environment: &Environment) -> Verification {
    let lifetimes = Lifetimes::new(records, &BTreeSet::new());
    let found = with_limit(records, environment, &lifetimes);
    if found.difference_count == 0 || records.has_pools {
        return found;
    }
    let mut search = PoolSearch::new(records, environment, found.limit);
    match search.run(&mut BTreeSet::new()) {
        Some(private) => {
            let lifetimes = Lifetimes::new(records, &private);
            let assumed = Assumed { limit: found.limit, lifetimes: &lifetimes, patience: HOPELESS };
            replay(records, environment, assumed)
        }
        None => found,
    }
}

/// A replay under the memory limit with which the recording makes sense longest.
fn with_limit(records: &Records, environment: &Environment, lifetimes: &Lifetimes) -> Verification {
    let candidates = limits(records, environment);
    let mut best = (0, candidates[0]);
    for &limit in candidates.iter().filter(|_| candidates.len() > 1) {
        let trial = replay(records, environment, Assumed { limit, lifetimes, patience: 0 });
        let Some(first) = trial.differences.first() else { return trial };
        if first.entry > best.0 {
            best = (first.entry, limit);
        }
    }
    replay(records, environment, Assumed { limit: best.1, lifetimes, patience: HOPELESS })
}

/// Limits to try, the most likely first. Without a limit in the environment, requests that failed tell that there was
/// one: it lies between the most that was ever held and what the least of them would have needed.
fn limits(records: &Records, environment: &Environment) -> Vec<Option<Bytes>> {
    if environment.memory_fraction.is_some() || environment.memory_limit().is_some() {
        return vec![environment.memory_limit()];
    }
    let is_limited = environment.conf.garbage_collection_threshold > 0.0
        || records.entries.iter().any(|entry| entry.action == Action::Oom);
    if !is_limited {
        return vec![None];
    }
    let (least, most) = limit_bounds(records, environment);
    let within = |limit: &Bytes| (least..most).contains(limit);
    let mut limits = Vec::new();
    for total in [environment.total_memory, H200_MEMORY] {
        let percent = (1..100).map(|percent| (f64::from(percent) / 100.0 * total as f64) as Bytes);
        limits.extend(percent.filter(within).map(Some));
    }
    limits.extend([Some(least), None]);
    limits
}

/// Which of the segments that are gone at the end were private: chronological backtracking. A contradiction is
/// resolved by making one segment private that was created before it (or by it), the latest first; where none of them
/// resolves it, an earlier choice was wrong.
struct PoolSearch<'a> {
    records: &'a Records,
    environment: &'a Environment,
    limit: Option<Bytes>,
    candidates: Vec<usize>,
    trials: usize,
}

impl<'a> PoolSearch<'a> {
    fn new(records: &'a Records, environment: &'a Environment, limit: Option<Bytes>) -> Self {
        let candidates = Lifetimes::new(records, &BTreeSet::new()).undetermined().to_vec();
        let trials = POOL_EFFORT / records.entries.len().max(1);
        Self { records, environment, limit, candidates, trials }
    }

    /// Private segments that explain the recording, on top of those in `private`.
    fn run(&mut self, private: &mut BTreeSet<usize>) -> Option<BTreeSet<usize>> {
        match self.first_contradiction(private) {
            None => Some(private.clone()),
            Some(contradiction) => self.resolve(contradiction, private),
        }
    }

    fn resolve(
        &mut self,
        contradiction: usize,
        private: &mut BTreeSet<usize>,
    ) -> Option<BTreeSet<usize>> {
        let before = self.candidates.partition_point(|&index| index <= contradiction);
        for number in (0..before).rev() {
            let candidate = self.candidates[number];
            if self.trials == 0 || !private.insert(candidate) {
                continue;
            }
            let found = match self.first_contradiction(private) {
                None => Some(private.clone()),
                Some(later) if later > contradiction => self.resolve(later, private),
                Some(_) => None,
            };
            if found.is_some() {
                return found;
            }
            private.remove(&candidate);
        }
        None
    }

    fn first_contradiction(&mut self, private: &BTreeSet<usize>) -> Option<usize> {
        self.trials = self.trials.saturating_sub(1);
        let lifetimes = Lifetimes::new(self.records, private);
        let assumed = Assumed { limit: self.limit, lifetimes: &lifetimes, patience: 0 };
        let trial = replay(self.records, self.environment, assumed);
        trial.differences.first().map(|difference| difference.entry)
    }
}
