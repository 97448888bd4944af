//! Traces through several allocators, side by side: one [`Comparison`] for each file.
//!
//! Runs are independent of each other, so they are spread over the processor's cores; the order of the results is
//! that of the request, whichever run ends first. One file is spread by allocator. Of several files, each worker
//! takes one at a time and runs its allocators one after another, so that no more traces are in memory than there
//! are workers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use super::comparison::Comparison;
use super::job::{JobComparison, RankComparison};
use crate::blame::{self, BlameError, By, History, recorded_oom};
use crate::plan::cards_that_run;
use crate::run::{Moment, Peak, RECORDED, RunSummary};
use crate::sim::job::{Job, of_path};
use crate::sim::{
    Choices, FileError, Opened, RunError, Scenario, Spread, check_assumptions, each_rank, failed,
    note_of_pools, open, open_all,
};
use crate::trace::least_memory;

/// Compares the allocators on a trace that is already open, over all cores.
///
/// # Errors
/// If a run comes to no result. Running out of memory is a result.
pub fn compare(opened: &Opened, choices: &Choices) -> Result<Comparison, FileError> {
    compare_opened(opened, choices, 1, Spread::AllCores)
}

/// Compares the allocators on each of several files. `done` is called, from any thread, after each file.
pub fn compare_files(
    files: &[PathBuf],
    choices: &Choices,
    done: impl Fn(&Path) + Sync,
) -> Vec<Result<Comparison, FileError>> {
    let spread = Spread::of_files(files.len());
    let mut ranks: BTreeMap<String, BTreeSet<Option<u64>>> = BTreeMap::new();
    for (job, rank) in files.iter().map(|file| of_path(file)) {
        ranks.entry(job).or_default().insert(rank);
    }
    let one = |file: &PathBuf| {
        let ranks = ranks[&of_path(file).0].len();
        let all = match choices.every_device {
            true => open_all(file, &choices.open),
            false => open(file, &choices.open).map(|opened| vec![opened]),
        };
        let compared = match all {
            Ok(all) => {
                all.iter().map(|opened| compare_opened(opened, choices, ranks, spread)).collect()
            }
            Err(error) => vec![Err(FileError::from(error))],
        };
        done(file);
        compared
    };
    files.par_iter().flat_map_iter(one).collect()
}

/// Compares the allocators on every rank of a job, over all cores; a worker has one file in memory at a time. A file
/// that cannot be used is reported in the result. `done` is called, from any thread, after each file.
pub fn compare_job(job: &Job, choices: &Choices, done: impl Fn(&Path) + Sync) -> JobComparison {
    let spread = Spread::of_files(job.ranks.len());
    let most = if choices.only_smallest_card { 1 } else { usize::MAX };
    // The smallest card of a rank may be too small for another one.
    let choices = Choices { only_smallest_card: false, ..choices.clone().with_cache() };
    let (ranks, failures) = each_rank(job, &choices.open, done, |file, opened| {
        let comparison = compare_opened(opened, &choices, job.ranks.len(), spread)?;
        Ok(RankComparison::new(file.number, comparison))
    });
    let coverages = ranks.iter().map(|rank| &rank.comparison.coverage);
    let coverage = job.coverage(coverages, failures.len());
    let name = job.name.clone();
    let mut found = JobComparison { name, ranks, failures, coverage, cards: BTreeMap::new() };
    found.join_cards(most);
    found
}

fn compare_opened(
    opened: &Opened,
    choices: &Choices,
    ranks: usize,
    spread: Spread,
) -> Result<Comparison, FileError> {
    check_assumptions(opened, choices.is_strict)?;
    choices.setup.runs.plan(choices.allocators.len());
    // The scenarios know what was found out about each other.
    let scenarios = Scenario::each(opened, &choices.allocators, &choices.setup);
    let recorded = || Scenario::recorded(opened, scenarios.first(), &choices.setup);
    let followed = choices.in_depth.then(recorded).flatten().map(Followed::new);
    let cards = choices.cards.for_ranks(ranks);
    let found = spread.map(&scenarios, |scenario| {
        let failed = |source| failed(opened, &scenario.choice, source);
        followed.iter().try_for_each(|it| it.follow(scenario)).map_err(failed)?;
        let run = scenario.run().map_err(failed)?;
        choices.setup.runs.made_one();
        let running = cards_that_run(scenario, &cards);
        let most = if choices.only_smallest_card { 1 } else { usize::MAX };
        let names = running.take(most).map(|card| Ok(card?.name.clone()));
        let names = names.collect::<Result<_, FileError>>()?;
        let peak = choices.has_peaks.then(|| scenario.peak()).transpose().map_err(failed)?;
        Ok::<_, FileError>(Found {
            run: run.clone(),
            cards: (!cards.is_empty()).then_some(names),
            peak,
        })
    })?;
    let comparison = assemble(opened, choices, found);
    match followed {
        Some(followed) => {
            let choice = followed.recorded.choice.clone();
            followed.complete(comparison).map_err(|source| failed(opened, &choice, source))
        }
        None => Ok(comparison),
    }
}

/// The allocator that was recorded, of which every block is followed.
struct Followed<'o> {
    recorded: Scenario<'o>,
    history: OnceLock<History>,
}

impl<'o> Followed<'o> {
    fn new(recorded: Scenario<'o>) -> Self {
        Self { recorded, history: OnceLock::new() }
    }

    /// Follows a run, if it is that allocator's: one more replay shows all that `complete` asks.
    fn follow(&self, scenario: &Scenario<'_>) -> Result<(), RunError> {
        if self.history.get().is_none() && scenario.is(&self.recorded) {
            let _ = self.history.set(blame::history(scenario)?);
        }
        Ok(())
    }

    fn complete(self, comparison: Comparison) -> Result<Comparison, RunError> {
        self.follow(&self.recorded)?;
        let Self { recorded, history } = self;
        let opened = recorded.opened;
        let by = if opened.records.stacks.has_frames() { By::Line } else { By::Size };
        let loss = there(blame::loss(&recorded, by, false))?;
        let refusal = there(blame::refusal(&recorded, by, false, 1))?;
        let card = blame::card_history(&opened.file, comparison.device);
        Ok(Comparison { history: history.into_inner(), loss, refusal, card, ..comparison })
    }
}

/// The answer, if the recording has the moment that it is about.
fn there<T>(answer: Result<T, BlameError>) -> Result<Option<T>, RunError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(BlameError::Moment(_)) => Ok(None),
        Err(BlameError::Run(source)) => Err(source),
    }
}

/// What was found out about one allocator.
struct Found {
    run: RunSummary,
    cards: Option<Vec<String>>,
    peak: Option<Arc<Peak>>,
}

fn assemble(opened: &Opened, choices: &Choices, found: Vec<Found>) -> Comparison {
    let trace = &opened.trace;
    let mut notes = opened.all_notes();
    notes.extend(choices.setup.notes(opened));
    notes.extend(note_of_pools(opened, &choices.allocators));
    let mut runs: Vec<RunSummary> = opened.recorded.iter().cloned().collect();
    let (mut peaks, mut cards) = (BTreeMap::new(), BTreeMap::new());
    for one in found {
        peaks.extend(one.peak.map(|peak| (runs.len(), peak)));
        cards.extend(one.cards.map(|names| (runs.len(), names)));
        runs.push(one.run);
    }
    let has = |name: &str| runs.iter().any(|run| run.allocator == name);
    let by_default = [RECORDED, "caching"].into_iter().find(|name| has(name));
    let least_bytes = has("bound").then(|| least_memory(trace));
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
        least_bytes,
        runs,
        peaks,
        cards,
        reference,
        span_us: trace.span_us(),
        step_starts: trace.steps.iter().map(|step| Moment::of(trace, step.start)).collect(),
        recorded_oom: recorded_oom(opened),
        coverage: opened.coverage.clone(),
        notes,
        ..Comparison::default()
    }
}
