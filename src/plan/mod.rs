//! Capacity planning: the smallest device that runs a trace under each allocator, and the cards that do.
//!
//! Every answer is a run. On a device of a given size the allocators do what they do there: flush their caches, try
//! again, stitch, wait for streams. `search` looks for the smallest size, and each card is tried by itself, since more
//! memory does not always help; only where a device has all that is ever asked of it, and the allocator never asks how
//! much there is, the run without a limit answers for it.
//!
//! ```text
//!   trace ──▶ run without a limit ──▶ ceiling ┐
//!     │                                       ├─▶ search ──▶ smallest, and where one step less fails
//!     ├─────▶ most bytes live ──────▶ floor   ┘
//!     └─────▶ run on each card ─────▶ fits, and with how much to spare; or OOM at which step and event
//! ```

pub mod chart;
pub mod data;
mod search;
pub mod show;

pub use data::*;
pub use gmlake_core::cards::{Card, CardError, Target};

use std::path::Path;

use crate::allocator::Choice;
use crate::device::GRANULE;
use crate::drive::OnOom;
use crate::remote;
use crate::run::RunSummary;
use crate::sim::job::Job;
use crate::sim::{
    Choices, FileError, Memory, Opened, Setup, Spread, check_assumptions, each_rank,
    is_never_refused, run_one,
};
use crate::trace::{least_memory, peak_live_bytes};
use crate::units::Bytes;
use search::Search;

/// What a plan is to tell.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// Allocators, and how files are read. The memory in its setup is not used.
    pub choices: Choices,
    /// The devices to answer for.
    pub targets: Vec<Target>,
    /// How fine the smallest size is to be, in bytes.
    pub resolution: Bytes,
}

/// As finely as GPUs give memory out.
pub const DEFAULT_RESOLUTION: Bytes = GRANULE;

/// Plans one trace over all cores.
///
/// # Errors
/// If a run comes to no result. Running out of memory is a result.
pub fn plan(opened: &Opened, options: &PlanOptions) -> Result<Plan, FileError> {
    plan_spread(opened, options, Spread::AllCores)
}

/// Plans every rank of a job, over all cores; a worker has one file in memory at a time. A file that cannot be used is
/// reported in the result. `done` is called, from any thread, after each file.
pub fn plan_job(job: &Job, options: &PlanOptions, done: impl Fn(&Path) + Sync) -> JobPlan {
    let spread = Spread::of_files(job.ranks.len());
    let options = PlanOptions { choices: options.choices.clone().with_cache(), ..options.clone() };
    let (ranks, failures) = each_rank(job, &options.choices.open, done, |file, opened| {
        let plan = plan_spread(opened, &options, spread)?;
        Ok(Plan { rank: file.number, ..plan })
    });
    JobPlan { name: job.name.clone(), ranks, failures }
}

/// Runs every rank of a job on a device of `capacity` bytes, with the first of the allocators. As [`plan_job`].
pub fn fit_job(
    job: &Job,
    choices: &Choices,
    capacity: Bytes,
    done: impl Fn(&Path) + Sync,
) -> JobFit {
    let (ranks, failures) = each_rank(job, &choices.open, done, |file, opened| {
        check_assumptions(opened, choices.is_strict)?;
        let choice = choices.allocators.first();
        let trial = choice.map(|choice| trial(opened, choice, choices, capacity)).transpose()?;
        let shown = remote::shown(&file.path);
        let coverage = opened.coverage.clone();
        Ok(trial.map(|trial| RankFit { rank: file.number, file: shown, coverage, trial }))
    });
    JobFit { ranks: ranks.into_iter().flatten().collect(), failures }
}

fn plan_spread(opened: &Opened, options: &PlanOptions, spread: Spread) -> Result<Plan, FileError> {
    check_assumptions(opened, options.choices.is_strict)?;
    let allocators = &options.choices.allocators;
    options.choices.setup.runs.plan(allocators.len());
    let floor = least_memory(&opened.trace);
    let needed = spread.map(allocators, |choice| need(opened, choice, options, floor))?;
    let pairs: Vec<(&Choice, &Needed, &Target)> = allocators
        .iter()
        .zip(&needed)
        .flat_map(|(choice, needed)| options.targets.iter().map(move |t| (choice, needed, t)))
        .collect();
    let trials = spread.map(&pairs, |(choice, needed, target)| {
        match needed.known(target.capacity_bytes) {
            Some(trial) => Ok(trial),
            None => trial(opened, choice, &options.choices, target.capacity_bytes),
        }
    })?;
    let mut needs: Vec<Need> = needed.into_iter().map(|needed| needed.need).collect();
    for (need, trials) in needs.iter_mut().zip(trials.chunks(options.targets.len().max(1))) {
        need.verdicts = trials.iter().map(|&trial| verdict(need, trial)).collect();
    }
    let live_peak_bytes = peak_live_bytes(&opened.trace);
    Ok(Plan { live_peak_bytes, ..assemble(opened, options, needs) })
}

/// A need, and what is known of larger devices without a run.
struct Needed {
    need: Need,
    /// The run without a limit, if on every device that does not refuse it memory it would go the same way.
    unrefused: Option<Trial>,
}

impl Needed {
    /// The run on a device of `capacity` bytes, where it must be the one without a limit.
    fn known(&self, capacity: Bytes) -> Option<Trial> {
        let same = self.unrefused.filter(|trial| trial.reserved_peak_bytes <= capacity)?;
        Some(Trial { capacity_bytes: capacity, ..same })
    }
}

/// One run on a device of `capacity` bytes, which ends where memory runs out.
///
/// # Errors
/// If the run comes to no result.
pub fn trial(
    opened: &Opened,
    choice: &Choice,
    choices: &Choices,
    capacity: Bytes,
) -> Result<Trial, FileError> {
    let (memory, on_oom) = (Memory::Bytes(capacity), OnOom::Stop);
    let setup = Setup { memory, on_oom, ..choices.setup.clone() };
    setup.runs.plan(1);
    Ok(Trial::new(capacity, &run_one(opened, choice, &setup)?))
}

/// The cards on which an allocator serves every request, the smallest first; each is tried when it is asked for, unless
/// it has less than is live at once. `run` is the run that was made already: if it had no limit, it answers for cards
/// that have all it held.
pub(crate) fn cards_that_run<'a>(
    opened: &'a Opened,
    choice: &'a Choice,
    choices: &'a Choices,
    run: &RunSummary,
    cards: impl Iterator<Item = &'a Target>,
) -> impl Iterator<Item = Result<&'a Target, FileError>> {
    let is_known = choices.setup.memory == Memory::Unlimited
        && run.oom_count == 0
        && is_never_refused(opened, choice, &choices.setup, run);
    let known = if is_known { run.reserved_peak_bytes } else { Bytes::MAX };
    let least = least_memory(&opened.trace);
    let mut cards: Vec<&Target> = cards.filter(|card| card.capacity_bytes >= least).collect();
    cards.sort_by_key(|card| card.capacity_bytes);
    cards.into_iter().filter_map(move |card| {
        if known <= card.capacity_bytes {
            return Some(Ok(card));
        }
        let trial = trial(opened, choice, choices, card.capacity_bytes);
        trial.map(|trial| trial.runs().then_some(card)).transpose()
    })
}

fn need(
    opened: &Opened,
    choice: &Choice,
    options: &PlanOptions,
    live_peak: Bytes,
) -> Result<Needed, FileError> {
    let choices = &options.choices;
    let unlimited = Setup { memory: Memory::Unlimited, ..choices.setup.clone() };
    let unlimited = run_one(opened, choice, &unlimited)?;
    let is_free = is_never_refused(opened, choice, &choices.setup, &unlimited);
    let unrefused = is_free.then(|| Trial::new(unlimited.reserved_peak_bytes, &unlimited));
    let search = Search {
        floor: live_peak,
        ceiling: unlimited.reserved_peak_bytes,
        step: options.resolution,
    };
    let found = search.smallest(|capacity| trial(opened, choice, choices, capacity))?;
    let need = Need {
        allocator: choice.spec.name.to_owned(),
        options: choice.options.rows(),
        unlimited_bytes: unlimited.reserved_peak_bytes,
        smallest: found.smallest,
        below: found.below,
        runs: found.runs,
        verdicts: Vec::new(),
    };
    Ok(Needed { need, unrefused })
}

fn verdict(need: &Need, trial: Trial) -> Verdict {
    let smallest = need.smallest_bytes().filter(|_| trial.runs());
    let spare_bytes = smallest.map(|least| trial.capacity_bytes.saturating_sub(least));
    Verdict { trial, spare_bytes }
}

fn assemble(opened: &Opened, options: &PlanOptions, needs: Vec<Need>) -> Plan {
    let trace = &opened.trace;
    let notes = opened.all_notes();
    Plan {
        file: opened.file.clone(),
        rank: None,
        device: trace.device,
        events: trace.events.len() as u64,
        steps: trace.steps.len() as u64,
        live_peak_bytes: 0,
        resolution_bytes: options.resolution,
        targets: options.targets.clone(),
        needs,
        coverage: opened.coverage.clone(),
        notes,
    }
}
