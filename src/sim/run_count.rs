//! How far runs are, for those who wait.

use std::sync::atomic::{AtomicU64, Ordering};

/// Runs that were made, and those that are known to be ahead. A search learns on its way how many it needs, so that the
/// second number may rise.
#[derive(Debug, Default)]
pub struct RunCount {
    made: AtomicU64,
    planned: AtomicU64,
}

impl RunCount {
    /// Runs made so far, and of how many.
    #[must_use]
    pub fn read(&self) -> (u64, u64) {
        let made = self.made.load(Ordering::Relaxed);
        (made, self.planned.load(Ordering::Relaxed).max(made))
    }

    /// So many more are ahead.
    pub(crate) fn plan(&self, runs: usize) {
        self.planned.fetch_add(runs as u64, Ordering::Relaxed);
    }

    /// One was made.
    pub(crate) fn made_one(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }
}
