//! Worker threads, and how far they are.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// So many threads, or one for each core.
pub(crate) fn pool(jobs: Option<NonZeroUsize>) -> anyhow::Result<ThreadPool> {
    let pool = ThreadPoolBuilder::new().num_threads(jobs.map_or(0, NonZeroUsize::get)).build();
    pool.context("cannot start the worker threads")
}

/// A bar on standard error, if that is a terminal and there is something to wait for.
pub(crate) fn progress(parts: usize) -> ProgressBar {
    if parts < 2 || crate::terminal::is_quiet() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(parts as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} left  {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
