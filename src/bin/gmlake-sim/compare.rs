//! `gmlake-sim compare`: traces through several allocators, side by side.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use gmlake::compare::chart::write_plot;
use gmlake::compare::show::{cards, table};
use gmlake::compare::{Comparison, JobComparison, compare_files, compare_job, show as report};
use gmlake::devices::Devices;
use gmlake::remote;
use gmlake::report::{section, stdout};
use gmlake::sim::Choices;
use gmlake::sim::job::{is_many, jobs};

use crate::args::{CardArgs, CompareArgs, OutputArgs};
use crate::export::Exports;
use crate::typed::{choices, warn_of_gaps};
use crate::{Answer, message, pinned, plan, terminal, work};

/// In place of names of cards: all, until one does.
const SMALLEST: &str = "smallest";

pub(crate) fn main(args: &CompareArgs) -> anyhow::Result<Answer> {
    if args.host {
        return pinned::compare(args);
    }
    let reference = args.reference.clone();
    let mut choices = choices(&args.input, &args.device, &args.allocators, reference)?;
    choices.only_smallest_card = args.cards == [SMALLEST];
    choices.cards = devices(args)?;
    choices.every_device = args.every_device;
    let exports = exports(&args.output)?;
    if args.job.job || args.input.files.iter().any(|file| is_many(file)) {
        anyhow::ensure!(!args.every_device, "--every-device: name the files one by one");
        return main_of_jobs(args, choices, exports);
    }
    let files = &args.input.files;
    let (comparisons, failures) = compare_all(files, args.output.jobs, &choices)?;
    let (messages, failures) = message::apart(failures);
    let is_complete = print(failures);
    message::show(&messages, exports.has_stdout() && comparisons.is_empty())?;
    exports.tell(&comparisons, |comparisons, look| {
        let parts = comparisons.iter().flat_map(|c| {
            [table::comparison(c, args.output.details, look), cards::of_recording(c)]
        });
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    })?;
    Ok(answer(args, &comparisons, is_complete))
}

/// The cards on which each run is to be tried.
fn devices(args: &CompareArgs) -> anyhow::Result<Devices> {
    if args.cards.is_empty() {
        return Ok(Devices::default());
    }
    let cards = if args.cards == [SMALLEST] { Vec::new() } else { args.cards.clone() };
    plan::cards(&CardArgs { cards, catalogue: None, reserve: None, uses: args.uses.clone() })
}

fn answer(args: &CompareArgs, comparisons: &[Comparison], is_complete: bool) -> Answer {
    match is_complete {
        false => Answer::Incomplete,
        true if args.output.fail_on_oom && comparisons.iter().any(ran_out) => Answer::No,
        true => Answer::Yes,
    }
}

/// The same with files that are the ranks of jobs: tables of jobs instead of one for each file.
fn main_of_jobs(
    args: &CompareArgs,
    choices: Choices,
    exports: Exports<'_, [Comparison]>,
) -> anyhow::Result<Answer> {
    let jobs = jobs(&args.input.files, args.job.job)?;
    let bar = work::progress(jobs.iter().map(|job| job.ranks.len()).sum(), &choices.setup.runs);
    let pool = work::pool(args.output.jobs)?;
    let done = |_: &Path| bar.inc(1);
    let found: Vec<JobComparison> =
        pool.install(|| jobs.iter().map(|job| compare_job(job, &choices, done)).collect());
    bar.finish_and_clear();
    jobs.iter().for_each(warn_of_gaps);
    found.iter().flat_map(|job| &job.failures).for_each(|failure| terminal::print_line(failure));
    let is_complete = found.iter().all(|job| job.failures.is_empty());
    let sections: Vec<_> = found.iter().flat_map(report::job::sections).collect();
    let ranks = found.into_iter().flat_map(|job| job.ranks).map(|rank| rank.comparison);
    let comparisons: Vec<Comparison> = ranks.collect();
    terminal::warn_of_notes(comparisons.iter().flat_map(notes_of));
    exports.tell(&comparisons, |_, look| section::text(&sections, look))?;
    Ok(answer(args, &comparisons, is_complete))
}

fn notes_of(comparison: &Comparison) -> impl Iterator<Item = (&str, &str)> {
    comparison.notes.iter().map(|note| (comparison.file.as_str(), note.as_str()))
}

fn exports(args: &OutputArgs) -> anyhow::Result<Exports<'static, [Comparison]>> {
    let mut exports = Exports::new();
    exports
        .add_json(&args.export_json, |all, out| report::write_comparisons("compare", all, out))?;
    exports.add(&args.export_csv, report::write_csv)?;
    exports.add(&args.export_markdown, report::write_markdown)?;
    exports.add_pictures(&args.export_plot, write_plot)?;
    exports.add(&args.export_timeline, report::write_timeline)?;
    Ok(exports)
}

/// Compares the allocators on every file, and says whether every file could be used.
pub(crate) fn run(
    files: &[PathBuf],
    jobs: Option<NonZeroUsize>,
    choices: &Choices,
) -> anyhow::Result<(Vec<Comparison>, bool)> {
    let (comparisons, failures) = compare_all(files, jobs, choices)?;
    Ok((comparisons, print(failures)))
}

/// The comparisons of the files that could be used, and why the others could not be.
fn compare_all(
    files: &[PathBuf],
    jobs: Option<NonZeroUsize>,
    choices: &Choices,
) -> anyhow::Result<(Vec<Comparison>, Vec<anyhow::Error>)> {
    let bar = work::progress(files.len(), &choices.setup.runs);
    let pool = work::pool(jobs)?;
    let done = |file: &Path| {
        bar.set_message(remote::shown(file));
        bar.inc(1);
    };
    let results = pool.install(|| compare_files(files, choices, done));
    bar.finish_and_clear();
    let (mut comparisons, mut failures) = (Vec::with_capacity(results.len()), Vec::new());
    for result in results {
        match result {
            Ok(comparison) => comparisons.push(comparison),
            Err(error) => failures.push(error.into()),
        }
    }
    terminal::warn_of_notes(comparisons.iter().flat_map(notes_of));
    Ok((comparisons, failures))
}

/// Prints why files could not be used, and says whether all could be.
fn print(failures: Vec<anyhow::Error>) -> bool {
    failures.iter().for_each(terminal::print_error);
    failures.is_empty()
}

/// Prints every number, for commands whose own product is something else.
pub(crate) fn print_json(command: &str, comparisons: &[Comparison]) -> anyhow::Result<()> {
    Ok(report::write_comparisons(command, comparisons, &mut stdout())?)
}

/// Whether memory ran out in an allocator (the recording is not one, it is what happened).
fn ran_out(comparison: &Comparison) -> bool {
    let mut simulated =
        comparison.runs.iter().filter(|run| run.role().is_some() && !run.is_bound());
    simulated.any(|run| run.oom_count > 0)
}
