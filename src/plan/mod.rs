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
mod fit;
mod need;
mod search;
mod series;
pub mod show;

pub use fit::{FitVerdict, JobFit, RankFit};
pub use gmlake_core::cards::{Card, Target};
pub use need::{JobPlan, Need, Plan, Shortage, Trial, Verdict};
pub use series::{Limit, Series};

use std::path::Path;

use crate::device::GRANULE;
use crate::drive::OnOom;
use crate::remote;
use crate::sim::job::Job;
use crate::sim::{
    Choices, FileError, Memory, Opened, Scenario, Setup, Spread, as_pytorchs, check_assumptions,
    each_rank, failed, run_one,
};
use crate::trace::{least_memory, peak_live_bytes};
use crate::units::Bytes;
use search::smallest;

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
    let coverage = job.coverage(ranks.iter().map(|plan| &plan.coverage), failures.len());
    JobPlan { name: job.name.clone(), ranks, failures, coverage }
}

/// Runs every rank of a job on a device, with the first of the allocators. As [`plan_job`].
pub fn fit_job(
    job: &Job,
    choices: &Choices,
    target: &Target,
    done: impl Fn(&Path) + Sync,
) -> JobFit {
    let (ranks, failures) = each_rank(job, &choices.open, done, |file, opened| {
        check_assumptions(opened, choices.is_strict)?;
        let Some(choice) = choices.allocators.first() else { return Ok(None) };
        let choice = match choices.as_recorded {
            true => as_pytorchs(choice, choices.setup.pytorch(opened)),
            false => choice.clone(),
        };
        let scenario = Scenario::new(opened, choice, choices.setup.clone());
        let trial = trial(&scenario, target)?;
        let shown = remote::shown(&file.path);
        let coverage = opened.coverage.clone();
        let least_bytes = least_memory(&opened.trace);
        let rank = file.number;
        let allocator = scenario.choice.spec.name;
        Ok(Some(RankFit { rank, file: shown, allocator, coverage, least_bytes, trial }))
    });
    let ranks: Vec<RankFit> = ranks.into_iter().flatten().collect();
    let coverage = job.coverage(ranks.iter().map(|rank| &rank.coverage), failures.len());
    JobFit { ranks, failures, coverage }
}

fn plan_spread(opened: &Opened, options: &PlanOptions, spread: Spread) -> Result<Plan, FileError> {
    check_assumptions(opened, options.choices.is_strict)?;
    let allocators = &options.choices.allocators;
    options.choices.setup.runs.plan(allocators.len());
    let unlimited = Setup { memory: Memory::Unlimited, ..options.choices.setup.clone() };
    let scenarios = Scenario::each(opened, allocators, &unlimited);
    let floor = least_memory(&opened.trace);
    let mut needs = spread.map(&scenarios, |scenario| need(scenario, options, floor))?;
    let pairs: Vec<(&Scenario<'_>, &Target)> = scenarios
        .iter()
        .flat_map(|scenario| options.targets.iter().map(move |target| (scenario, target)))
        .collect();
    let trials = spread.map(&pairs, |(scenario, target)| on(scenario, target))?;
    for (need, trials) in needs.iter_mut().zip(trials.chunks(options.targets.len().max(1))) {
        need.verdicts = trials.iter().map(|&trial| verdict(need, trial)).collect();
    }
    let trace = &opened.trace;
    Ok(Plan {
        file: opened.file.clone(),
        rank: None,
        device: trace.device,
        events: trace.events.len() as u64,
        steps: trace.steps.len() as u64,
        live_peak_bytes: peak_live_bytes(trace),
        least_bytes: floor,
        resolution_bytes: options.resolution,
        targets: options.targets.clone(),
        needs,
        coverage: opened.coverage.clone(),
        notes: opened.all_notes(),
    })
}

/// What happens on a device; where it must be the run without a limit, that one answers.
fn on(scenario: &Scenario<'_>, target: &Target) -> Result<Trial, FileError> {
    let Scenario { opened, choice, .. } = scenario;
    let capacity = target.capacity_bytes;
    match scenario.unrefused(capacity).map_err(|source| failed(opened, choice, source))? {
        Some(run) => Ok(Trial::new(capacity, &run)),
        None => trial(scenario, target),
    }
}

/// One run on a device, which ends where memory runs out.
///
/// # Errors
/// If the run comes to no result.
pub fn trial(scenario: &Scenario<'_>, target: &Target) -> Result<Trial, FileError> {
    let (memory, on_oom) = (Memory::of(target), OnOom::Stop);
    let setup = Setup { memory, on_oom, profile: None, ..scenario.setup.clone() };
    setup.runs.plan(1);
    Ok(Trial::new(target.capacity_bytes, &run_one(scenario.opened, &scenario.choice, &setup)?))
}

/// The cards on which an allocator serves every request, the smallest first; each is tried when it is asked for, unless
/// it has less than is live at once. A run that was made without a limit answers where it can.
pub(crate) fn cards_that_run<'a>(
    scenario: &'a Scenario<'_>,
    cards: &'a [Target],
) -> impl Iterator<Item = Result<&'a Target, FileError>> {
    let try_on = if scenario.setup.memory == Memory::Unlimited { on } else { trial };
    let least = if cards.is_empty() { 0 } else { least_memory(&scenario.opened.trace) };
    let mut cards: Vec<&Target> =
        cards.iter().filter(|card| card.capacity_bytes >= least).collect();
    cards.sort_by_key(|card| card.capacity_bytes);
    cards.into_iter().filter_map(move |card| {
        let trial = try_on(scenario, card);
        trial.map(|trial| trial.runs().then_some(card)).transpose()
    })
}

/// What a scenario without a limit needs of memory; nothing is said of any device yet.
fn need(
    scenario: &Scenario<'_>,
    options: &PlanOptions,
    live_peak: Bytes,
) -> Result<Need, FileError> {
    let Scenario { opened, choice, setup, .. } = scenario;
    let unlimited = scenario.run().map_err(|source| failed(opened, choice, source))?;
    setup.runs.made_one();
    let try_at = |capacity| trial(scenario, &Target::of_size(capacity));
    let (ceiling, step) = (unlimited.reserved_peak_bytes, options.resolution);
    let found = smallest(live_peak, ceiling, step, try_at)?;
    Ok(Need {
        allocator: choice.spec.name.to_owned(),
        options: choice.options.rows(),
        unlimited_bytes: unlimited.reserved_peak_bytes,
        smallest: found.smallest,
        below: found.below,
        runs: found.runs,
        verdicts: Vec::new(),
    })
}

fn verdict(need: &Need, trial: Trial) -> Verdict {
    let smallest = need.smallest_bytes().filter(|_| trial.runs());
    let spare_bytes = smallest.map(|least| trial.capacity_bytes.saturating_sub(least));
    Verdict { trial, spare_bytes }
}
