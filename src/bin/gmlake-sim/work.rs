//! Worker threads, and how far they are.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// More threads are of no use.
pub(crate) const MOST_JOBS: usize = 512;

/// This many threads, at most [`MOST_JOBS`], or one for each core.
pub(crate) fn pool(jobs: Option<NonZeroUsize>) -> anyhow::Result<ThreadPool> {
    let threads = jobs.map_or(0, |jobs| jobs.get().min(MOST_JOBS));
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.context("cannot start the worker threads")
}

/// How far we are, on standard error if that is a terminal: a bar where there are several parts, and how many `runs`
/// were made in any case. Before the first, files are being read.
pub(crate) fn progress(parts: usize, runs: &Arc<AtomicU64>) -> ProgressBar {
    let runs = Arc::clone(runs);
    let stage = move |_: &ProgressState, out: &mut dyn Write| {
        // Nothing is lost if it is not shown.
        let _ = match runs.load(Ordering::Relaxed) {
            0 => write!(out, "reading"),
            1 => write!(out, "1 run"),
            runs => write!(out, "{runs} runs"),
        };
    };
    let template = match parts {
        0 | 1 => "{spinner} {stage}, {elapsed}",
        _ => "{bar:30} {pos}/{len} {eta} left  {stage}  {msg}",
    };
    shown(parts, template, |style| style.with_key("stage", stage))
}

/// How many of very many recordings are done, how fast, and how long the others take.
pub(crate) fn rate(recordings: usize) -> ProgressBar {
    let template = "{bar:30} {pos}/{len} recordings  {per_sec}  {eta} left";
    shown(recordings, template, |style| style)
}

/// That we are at work on something whose end is not known.
pub(crate) fn busy(what: &str) -> ProgressBar {
    shown(1, &format!("{{spinner}} {what}, {{elapsed}}"), |style| style)
}

fn shown(
    parts: usize,
    template: &str,
    with_keys: impl FnOnce(ProgressStyle) -> ProgressStyle,
) -> ProgressBar {
    if parts == 0 || crate::terminal::is_quiet() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(parts as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(with_keys(style));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
