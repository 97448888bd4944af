//! Worker threads, and how far they are.

use std::fmt::Write;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use gmlake::fleet::MOST_JOBS;
use gmlake::sim::RunCount;
use gmlake::units::{Grouped, Size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::bar;

/// This many threads, at most [`MOST_JOBS`], or one for each core.
pub(crate) fn pool(jobs: Option<NonZeroUsize>) -> anyhow::Result<ThreadPool> {
    let threads = jobs.map_or(0, |jobs| jobs.get().min(MOST_JOBS));
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.context("cannot start the worker threads")
}

/// How far we are, on standard error if that is a terminal: a bar where there are several parts, and how many runs were
/// made of those that are known to be ahead. Before the first, files are being read.
pub(crate) fn progress(parts: usize, runs: &Arc<RunCount>) -> ProgressBar {
    let runs = Arc::clone(runs);
    let stage = move |_: &ProgressState, out: &mut dyn Write| {
        // Nothing is lost if it is not shown.
        let _ = out.write_str(&stage(runs.read()));
    };
    let template = match parts {
        0 | 1 => "{spinner} {stage}, {elapsed}",
        _ => "{bar:30} {pos}/{len} {eta} left  {stage}  {msg}",
    };
    shown(parts, template, |style| style.with_key("stage", stage))
}

fn stage(runs: (u64, u64)) -> String {
    match runs {
        (0, 0) => "reading".to_owned(),
        (made, 1) => format!("{made} of 1 run"),
        (made, all) => format!("{} of {} runs", Grouped(made), Grouped(all)),
    }
}

/// How many of very many things are done, how fast, and how long the others take.
pub(crate) fn rate(count: usize, what: &str) -> ProgressBar {
    let template = format!("{{bar:30}} {{pos}}/{{len}} {what}  {{per_sec}}  {{eta}} left");
    shown(count, &template, |style| style)
}

/// How many of these files are done; of one, how much there is to read.
pub(crate) fn files(files: &[PathBuf]) -> ProgressBar {
    match files {
        [one] => reading(one),
        _ => rate(files.len(), "recordings"),
    }
}

/// That a file is being read, and how much there is of it.
pub(crate) fn reading(file: &Path) -> ProgressBar {
    // Standard input and remote files have no size that is known.
    let size = fs::metadata(file).ok().filter(fs::Metadata::is_file);
    busy(&size.map_or("reading".to_owned(), |size| format!("reading {}", Size(size.len()))))
}

/// That we are at work on something whose end is not known. The bar's message may be changed.
pub(crate) fn busy(what: &str) -> ProgressBar {
    let bar = shown(1, "{spinner} {msg}, {elapsed}", |style| style);
    bar.set_message(what.to_owned());
    bar
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
    bar::note(&bar);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_many_runs_are_ahead() {
        assert_eq!(stage((0, 0)), "reading");
        assert_eq!(stage((0, 1)), "0 of 1 run");
        assert_eq!(stage((3, 1200)), "3 of 1,200 runs");
    }

    #[test]
    fn it_says_how_much_there_is_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pickle");
        fs::write(&file, [0; 2048]).unwrap();
        assert_eq!(reading(&file).message(), "reading 2 KiB");
        assert_eq!(reading(Path::new("-")).message(), "reading");
        assert_eq!(files(&[file.clone(), file]).length(), Some(2));
    }

    #[test]
    fn however_many_threads_are_requested_there_is_a_most() {
        let threads = |jobs| pool(NonZeroUsize::new(jobs)).unwrap().current_num_threads();
        assert_eq!([1, 3, usize::MAX].map(threads), [1, 3, MOST_JOBS]);
        // What the help says.
        assert_eq!(MOST_JOBS, 256);
    }
}
