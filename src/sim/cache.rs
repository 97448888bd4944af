//! A cache of runs: programs that make the same requests in the same order get the same answer.
//!
//! The ranks of a job often do: with data parallelism and fixed lengths all of them, with a pipeline all of a stage. A
//! key holds all that a run depends on, addresses relative to each other included; what is kept has no times.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::opened::Opened;
use crate::run::{RunSummary, Timeline};

/// Runs that are kept; more than the allocators of any job, and a few megabytes.
const MOST: usize = 4096;

/// The program's number ([`Opened::program`](super::Opened::program)), and the allocator and its conditions in words.
pub(super) type Key = (u128, String);

/// Runs that were made, by what they depend on.
#[derive(Debug, Default)]
pub struct RunCache {
    runs: Mutex<FxHashMap<Key, RunSummary>>,
}

impl RunCache {
    /// The run that was made under this key, as one of this recording.
    pub(super) fn known(&self, key: &Key, opened: &Opened) -> Option<RunSummary> {
        let known = self.lock().get(key).cloned()?;
        let time = |event: u64| opened.trace.times_us.get(event as usize).copied();
        let first_oom_us = known.first_oom_event.and_then(time);
        let first_oom_step = known.first_oom_event.and_then(|at| opened.step_of(at as usize));
        let (file, device) = (opened.file.clone(), opened.trace.device);
        Some(RunSummary { file, device, first_oom_us, first_oom_step, ..known })
    }

    pub(super) fn keep(&self, key: Key, run: &RunSummary) {
        let mut runs = self.lock();
        if runs.len() >= MOST {
            runs.clear();
        }
        let timeline = Timeline::default();
        runs.insert(key, RunSummary { host_ns: None, timeline, ..run.clone() });
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<Key, RunSummary>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
