//! What a recording leaves open: the memory limit, and the pools of segments that are gone.
//!
//! Both are found in the same way: assume, replay, and see whether anything contradicts.

use std::collections::BTreeSet;

use super::lifetimes::Lifetimes;
use super::verify::{Verification, replay};
use crate::allocator::{Environment, segment_size};
use crate::trace::{Action, Records};
use crate::units::Bytes;

/// Memory of an NVIDIA H200 as its device properties state it, in bytes.
const H200_MEMORY: Bytes = 150_109_880_320;

/// Replays tried to find out which segments were private.
const POOL_TRIALS: usize = 400;

/// Verifies a recording, inferring what it does not say.
#[must_use]
pub fn verify(records: &Records, environment: &Environment) -> Verification {
    let mut best: Option<Verification> = None;
    for limit in limits(records, environment) {
        let found = with_pools(records, environment, limit);
        let is_better =
            best.as_ref().is_none_or(|best| found.difference_count < best.difference_count);
        if is_better {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|best| best.difference_count == 0) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// Limits to try, the most likely first. Without a limit in the environment, requests that failed tell that there was
/// one: it lies between the most that was ever held and what the least of them would have needed.
fn limits(records: &Records, environment: &Environment) -> Vec<Option<Bytes>> {
    let fraction = environment.memory_fraction.or(environment.conf.memory_fraction);
    if let Some(fraction) = fraction.filter(|&fraction| fraction < 1.0) {
        return vec![Some((fraction * environment.total_memory as f64) as Bytes)];
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
        limits.extend(percent.filter(within));
    }
    limits.push(least);
    limits.push(most.saturating_sub(1).min(least.saturating_mul(2)));
    let mut limits: Vec<_> = limits.into_iter().map(Some).collect();
    limits.push(None);
    limits.dedup();
    limits
}

/// The most that was held (a limit is at least that), and the least that would have been held if a failed request had
/// been served (a limit is below that).
fn limit_bounds(records: &Records, environment: &Environment) -> (Bytes, Bytes) {
    let start = super::start::state_at(records, 0, &environment.conf);
    let mut held: Bytes = start.layout.segments.iter().map(|segment| segment.size).sum();
    let (mut least, mut most) = (held, Bytes::MAX);
    for entry in &records.entries {
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => held += entry.size,
            Action::SegmentFree | Action::SegmentUnmap => held = held.saturating_sub(entry.size),
            Action::Oom => most = most.min(held + segment_size(entry.size, &environment.conf)),
            _ => {}
        }
        least = least.max(held);
    }
    (least, most.max(least + 1))
}

/// Replays with the pools that are known. Where that contradicts the recording, some segments that are gone at the end
/// must have been private: chronological backtracking over them, the latest before the contradiction first.
fn with_pools(records: &Records, environment: &Environment, limit: Option<Bytes>) -> Verification {
    let mut private = BTreeSet::new();
    let mut fixed = BTreeSet::new();
    let lifetimes = Lifetimes::new(records, &private);
    let mut best = replay(records, environment, limit, &lifetimes);
    let candidates = lifetimes.undetermined().to_vec();
    for _ in 0..POOL_TRIALS {
        let Some(contradiction) = best.differences.first().map(|difference| difference.entry)
        else {
            break;
        };
        let open = |index: &&usize| **index < contradiction && !fixed.contains(*index);
        let Some(&last) = candidates.iter().rfind(open) else { break };
        fixed.insert(last);
        private.insert(last);
        let found = replay(records, environment, limit, &Lifetimes::new(records, &private));
        let later = found.differences.first().is_none_or(|first| first.entry > contradiction);
        if later {
            best = found;
        } else {
            private.remove(&last);
        }
    }
    best
}
