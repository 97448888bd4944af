//! Traces through several allocators, beside each other: one [`Comparison`] for each file.
//!
//! Runs are independent of each other, so they are spread over the processor's cores; the order of the results is
//! that of the request, whichever run ends first. One file is spread by allocator. Of several files, each worker
//! takes one at a time and runs its allocators one after another, so that no more traces are in memory than there
//! are workers.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rayon::prelude::*;

use super::blame::{self, BlameError};
use super::choice::Choice;
use super::job::Job;
use super::open::{OpenOptions, Opened, open, open_all};
use super::peak::at_peak;
use super::run::{RunError, run};
use super::setup::Setup;
use super::spread::{Spread, each_rank};
use crate::alloc_conf::AllocConf;
use crate::allocator::{self, Environment, OptionError, Options, Spec};
use crate::metrics::{By, Comparison, JobComparison, Moment, RECORDED, RankComparison, RunSummary};
use crate::trace::TraceError;

/// Why a choice of allocators was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// There is no such allocator.
    #[error("there is no allocator {name:?}; there are: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// All that there are.
        known: String,
    },
    /// An allocator was named twice.
    #[error("allocator {0:?} is listed twice")]
    Twice(String),
    /// An option is not written as `allocator.option=value`.
    #[error(
        "{0:?} is not an option: write allocator.option=value, such as gmlake.fragment_limit=128MiB"
    )]
    NoOption(String),
    /// An option of an allocator that does not run.
    #[error("option {0:?} is of an allocator that is not among those compared")]
    NotChosen(String),
    /// The allocator refused its options.
    #[error(transparent)]
    Option(#[from] OptionError),
}

/// What to compare, and how.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// How files are opened.
    pub open: OpenOptions,
    /// The allocators, in the order of the table.
    pub allocators: Vec<Choice>,
    /// The world that they run in.
    pub setup: Setup,
    /// Name of the allocator that the others are compared with; `None`: the recording, else `caching`, else the first.
    pub reference: Option<String>,
    /// Whether an assumption about a trace is an error.
    pub is_strict: bool,
    /// Whether the runs are to keep what was held at their peaks, at up to twice the price.
    pub has_peaks: bool,
    /// Whether to follow every block of the allocator that each recording ran on: for the page. Every device of a file
    /// with several is compared then.
    pub is_in_depth: bool,
}

/// Why there is no comparison of a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A run came to no result.
    #[error("{file}: {allocator}: {source}")]
    Run {
        /// The file.
        file: String,
        /// The allocator.
        allocator: &'static str,
        /// What happened.
        source: RunError,
    },
    /// The look into a run came to no result.
    #[error("{file}: {allocator}: {source}")]
    Blame {
        /// The file.
        file: String,
        /// The allocator.
        allocator: &'static str,
        /// What happened.
        source: Box<BlameError>,
    },
    /// Something had to be assumed about the trace, which was forbidden.
    #[error("{file}: {assumption} (--strict)")]
    Assumption {
        /// The file.
        file: String,
        /// The first assumption, with its count.
        assumption: String,
    },
}

/// Takes allocators by name, all there are if no name is given, and options as `allocator.name=value`.
///
/// # Errors
/// If a name, an option or a value is not known; the message says what there is.
pub fn choose(names: &[String], options: &[String]) -> Result<Vec<Choice>, ChoiceError> {
    let mut chosen: Vec<Choice> = Vec::new();
    for name in names {
        let spec = find(name)?;
        if chosen.iter().any(|choice| choice.spec.name == spec.name) {
            return Err(ChoiceError::Twice(name.clone()));
        }
        chosen.push(Choice { spec, options: Options::default() });
    }
    if names.is_empty() {
        let all = allocator::ALL.iter();
        chosen = all.map(|spec| Choice { spec, options: Options::default() }).collect();
    }
    for text in options {
        set_option(&mut chosen, text)?;
    }
    for choice in &chosen {
        choice.spec.build(&choice.options, &Environment::new(AllocConf::default()))?;
    }
    Ok(chosen)
}

/// Compares the allocators on a trace that is already open, over all cores.
///
/// # Errors
/// If a run comes to no result. Running out of memory is a result.
pub fn compare(opened: &Opened, choices: &Choices) -> Result<Comparison, FileError> {
    compare_spread(opened, choices, Spread::AllCores)
}

/// Compares the allocators on each of several files; in depth, on every device of each. `done` is called, from any thread, after each file.
pub fn compare_files(
    files: &[PathBuf],
    choices: &Choices,
    done: impl Fn(&Path) + Sync,
) -> Vec<Result<Comparison, FileError>> {
    let spread = Spread::of_files(files.len());
    let one = |file: &PathBuf| {
        let results = match open_chosen(file, choices) {
            Ok(all) => all.iter().map(|opened| compare_spread(opened, choices, spread)).collect(),
            Err(error) => vec![Err(FileError::from(error))],
        };
        done(file);
        results
    };
    files.par_iter().flat_map_iter(one).collect()
}

/// Compares the allocators on every rank of a job, over all cores; a worker has one file in memory at a time. A file
/// that cannot be used is told of in the result. `done` is called, from any thread, after each file.
pub fn compare_job(job: &Job, choices: &Choices, done: impl Fn(&Path) + Sync) -> JobComparison {
    let spread = Spread::of_files(job.ranks.len());
    let (ranks, failures) = each_rank(job, &choices.open, done, |file, opened| {
        let comparison = compare_spread(opened, choices, spread)?;
        Ok(RankComparison::new(file.number, comparison))
    });
    JobComparison { name: job.name.clone(), ranks, failures }
}

fn open_chosen(file: &Path, choices: &Choices) -> Result<Vec<Opened>, TraceError> {
    match choices.is_in_depth {
        true => open_all(file, &choices.open),
        false => open(file, &choices.open).map(|opened| vec![opened]),
    }
}

fn compare_spread(
    opened: &Opened,
    choices: &Choices,
    spread: Spread,
) -> Result<Comparison, FileError> {
    check_assumptions(opened, choices.is_strict)?;
    let one = |choice: &Choice| {
        let summary = run_one(opened, choice, &choices.setup)?;
        if choices.has_peaks { with_peak(opened, choice, choices, summary) } else { Ok(summary) }
    };
    let comparison = assemble(opened, choices, spread.map(&choices.allocators, one)?);
    if choices.is_in_depth { in_depth(opened, choices, comparison) } else { Ok(comparison) }
}

/// Follows every block of the allocator that the recording ran on.
fn in_depth(
    opened: &Opened,
    choices: &Choices,
    comparison: Comparison,
) -> Result<Comparison, FileError> {
    let Some(spec) = allocator::find(opened.recorded_by()) else { return Ok(comparison) };
    let (choice, setup) = (Choice { spec, options: Options::default() }, &choices.setup);
    let by = if opened.records.stacks.has_frames() { By::Line } else { By::Size };
    let failed = |source| FileError::Blame {
        file: opened.file.clone(),
        allocator: choice.spec.name,
        source: Box::new(source),
    };
    let refusal = match blame::refusal(opened, &choice, setup, by, false) {
        Ok(refusal) => Some(refusal),
        Err(BlameError::Moment(_)) => None,
        Err(error) => return Err(failed(error)),
    };
    Ok(Comparison {
        history: Some(blame::history(opened, &choice, setup).map_err(failed)?),
        loss: Some(blame::loss(opened, &choice, setup, by, false).map_err(failed)?),
        refusal,
        ..comparison
    })
}

/// Whether the trace may be used, if nothing may be assumed about it.
pub(super) fn check_assumptions(opened: &Opened, is_strict: bool) -> Result<(), FileError> {
    match opened.trace.warnings.first() {
        Some(warning) if is_strict => {
            let (file, assumption) = (opened.file.clone(), warning.to_string());
            Err(FileError::Assumption { file, assumption })
        }
        _ => Ok(()),
    }
}

/// The allocator of this name; the error says which there are.
pub(super) fn find(name: &str) -> Result<&'static Spec, ChoiceError> {
    allocator::find(name).ok_or_else(|| {
        let known = allocator::ALL.iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ");
        ChoiceError::Unknown { name: name.to_owned(), known }
    })
}

fn set_option(chosen: &mut [Choice], text: &str) -> Result<(), ChoiceError> {
    let malformed = || ChoiceError::NoOption(text.to_owned());
    let (key, value) = text.split_once('=').ok_or_else(malformed)?;
    let (name, option) = key.trim().split_once('.').ok_or_else(malformed)?;
    let spec = find(name)?;
    let choice = chosen.iter_mut().find(|choice| choice.spec.name == spec.name);
    let choice = choice.ok_or_else(|| ChoiceError::NotChosen(text.to_owned()))?;
    choice.options.set(option, value.trim());
    Ok(())
}

/// One run, whose error names the file and the allocator.
pub(super) fn run_one(
    opened: &Opened,
    choice: &Choice,
    setup: &Setup,
) -> Result<RunSummary, FileError> {
    let summary = run(opened, choice, setup).map_err(|source| failed(opened, choice, source))?;
    setup.runs.fetch_add(1, Ordering::Relaxed);
    Ok(summary)
}

/// A run, and what was held at its peak.
fn with_peak(
    opened: &Opened,
    choice: &Choice,
    choices: &Choices,
    mut run: RunSummary,
) -> Result<RunSummary, FileError> {
    let peak = at_peak(opened, choice, &choices.setup, &run);
    run.peak = Some(peak.map_err(|source| failed(opened, choice, source))?);
    Ok(run)
}

fn failed(opened: &Opened, choice: &Choice, source: RunError) -> FileError {
    FileError::Run { file: opened.file.clone(), allocator: choice.spec.name, source }
}

fn assemble(opened: &Opened, choices: &Choices, simulated: Vec<RunSummary>) -> Comparison {
    let trace = &opened.trace;
    let mut notes: Vec<String> = trace.warnings.iter().map(ToString::to_string).collect();
    notes.extend(opened.notes.iter().cloned());
    notes.extend(choices.setup.notes(opened));
    let mut runs: Vec<RunSummary> = opened.recorded.iter().cloned().collect();
    runs.extend(simulated);
    let has = |name: &str| runs.iter().any(|run| run.allocator == name);
    let by_default = [RECORDED, "caching"].into_iter().find(|name| has(name));
    let reference = match &choices.reference {
        Some(name) if has(name) => Some(name.clone()),
        Some(name) => {
            notes.push(format!("there is no row {name:?} to compare with in this file"));
            None
        }
        None => {
            by_default.map(str::to_owned).or_else(|| runs.first().map(|run| run.allocator.clone()))
        }
    };
    Comparison {
        file: opened.file.clone(),
        device: trace.device,
        is_one_of_many: opened.devices.iter().filter(|&&(_, entries)| entries > 0).count() > 1,
        device_memory: choices.setup.memory(opened),
        runs,
        reference,
        span_us: trace.span_us(),
        step_starts: trace.steps.iter().map(|step| Moment::of(trace, step.start)).collect(),
        notes,
        ..Comparison::default()
    }
}
