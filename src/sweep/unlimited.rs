//! Runs without a memory limit, which answer for every device that would never refuse.
//!
//! A grid of memory sizes is mostly sizes on which nothing happens: a run that holds 30 GiB at most goes the same way
//! on 40 and on 80 GiB. So the run without a limit comes first, and only smaller devices have runs of their own. That
//! holds where an allocator neither asks how much memory there is nor has a share of it for a limit.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::grid::Point;
use crate::run::RunSummary;
use crate::sim::{FileError, Memory, Opened, Setup, is_never_refused, run_one};

/// The runs, by all else that a point says; `None` for an allocator that minds how much memory there is.
#[derive(Debug, Default)]
pub(super) struct Unlimited {
    runs: Mutex<FxHashMap<String, Option<Arc<RunSummary>>>>,
}

impl Unlimited {
    /// The result of a point on a device with so much memory that it need not be run. Fails if the run without a limit
    /// comes to no result.
    pub(super) fn answer(
        &self,
        opened: &Opened,
        point: &Point,
    ) -> Result<Option<RunSummary>, FileError> {
        let Memory::Bytes(bytes) = point.setup.memory else { return Ok(None) };
        let setup = Setup { memory: Memory::Unlimited, ..point.setup.clone() };
        let key = setup.text(&point.choice);
        let lock = || self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&key).cloned();
        let run = match known {
            Some(run) => run,
            None => {
                let made = run_one(opened, &point.choice, &setup)?;
                let is_free = is_never_refused(opened, &point.choice, &setup, &made);
                let kept = is_free.then(|| Arc::new(made));
                lock().insert(key, kept.clone());
                kept
            }
        };
        let same = run.filter(|run| run.reserved_peak_bytes <= bytes);
        Ok(same.map(|run| RunSummary { device_memory_bytes: Some(bytes), ..(*run).clone() }))
    }
}
