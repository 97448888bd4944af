//! How far runs are, for those who wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use twox_hash::XxHash3_128;

/// Runs that were made, and those that are known to be ahead. A search learns on its way how many it needs, so that the
/// second number may rise.
#[derive(Debug, Default)]
pub struct RunCount {
    made: AtomicU64,
    planned: AtomicU64,
    replays: Mutex<FxHashMap<u128, u64>>,
}

impl RunCount {
    /// Runs made so far, and of how many.
    pub fn read(&self) -> (u64, u64) {
        let made = self.made.load(Ordering::Relaxed);
        (made, self.planned.load(Ordering::Relaxed).max(made))
    }

    /// How often a recording was replayed, in whole or in part, under these
    /// [`conditions`](super::Setup::conditions).
    pub fn replays(&self, conditions: &str) -> u64 {
        self.lock().get(&XxHash3_128::oneshot(conditions.as_bytes())).copied().unwrap_or(0)
    }

    /// A replay begins.
    pub(super) fn began(&self, conditions: &str) {
        *self.lock().entry(XxHash3_128::oneshot(conditions.as_bytes())).or_default() += 1;
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<u128, u64>> {
        self.replays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many more are ahead.
    pub(crate) fn plan(&self, runs: usize) {
        self.planned.fetch_add(runs as u64, Ordering::Relaxed);
    }

    pub(crate) fn made_one(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }
}
