//! Options of `MemPool`s, inferred: what the model cannot explain in a pool is tried with each option in turn, and what
//! leads furthest is kept.
//!
//! ```text
//!   segment_alloc 20 MiB   ┐ pool (0, 3)
//!   alloc          2 MiB   ┘
//!   segment_alloc 20 MiB     why, with 18 MiB free in (0, 3)?    Because nothing is cut there.
//! ```

use super::entries::end_of_operation;
use super::lifetimes::{Lifetimes, MemPools, user_pools};
use super::replay::{Assumed, Recorded};
use crate::trace::Action;
use crate::units::Bytes;

/// A search for options that explain a recording.
pub(super) struct OptionSearch<'a> {
    /// The recording.
    pub recorded: &'a Recorded<'a>,
    /// The memory limit.
    pub limit: Option<Bytes>,
    /// The pools of segments.
    pub lifetimes: &'a Lifetimes<'a>,
    /// Replays that may still be made.
    pub trials: usize,
}

impl OptionSearch<'_> {
    /// Options with which the recording makes sense longest.
    pub(super) fn run(mut self, mut known: MemPools) -> MemPools {
        let mut reached = self.first_contradiction(&known);
        while let Some(contradiction) = reached {
            let mut best = (Some(contradiction), None);
            for candidate in self.candidates(contradiction, &known) {
                let later = self.first_contradiction(&candidate);
                // No contradiction at all is behind every one.
                if later.unwrap_or(usize::MAX) > best.0.unwrap_or(usize::MAX) {
                    best = (later, Some(candidate));
                }
            }
            let (later, Some(better)) = best else { break };
            (reached, known) = (later, better);
        }
        known
    }

    /// One more option each, of those that may explain a contradiction.
    fn candidates(&self, contradiction: usize, known: &MemPools) -> Vec<MemPools> {
        let records = self.recorded.records;
        let pools = user_pools(records);
        let mut found = Vec::new();
        let entries = &records.entries;
        let last = end_of_operation(entries, contradiction.min(entries.len()));
        if let Some(entry) = entries.get(last).filter(|entry| entry.action == Action::Alloc) {
            let pool = self.lifetimes.pool_at(last, entry);
            if pools.contains(&pool) && !known.elsewhere.contains_key(&last) {
                let mut other = known.clone();
                other.elsewhere.insert(last, pool);
                found.push(other);
            }
        }
        for pool in pools.into_iter().filter(|pool| !known.no_split.contains(pool)) {
            let mut other = known.clone();
            other.no_split.insert(pool);
            found.push(other);
        }
        found
    }

    /// Where the first contradiction is, if there is any; at once, if no more replays may be made.
    fn first_contradiction(&mut self, mempools: &MemPools) -> Option<usize> {
        if self.trials == 0 {
            return Some(0);
        }
        self.trials -= 1;
        let Self { recorded, limit, lifetimes, .. } = *self;
        let assumed = Assumed { limit, lifetimes, mempools, patience: 0 };
        assumed.contradiction(recorded)
    }
}
