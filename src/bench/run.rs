//! The runs of a benchmark.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::data::Row;
use super::set::{Set, TraceEntry};
use crate::alloc_conf::AllocConf;
use crate::allocator::{Choice, Role};
use crate::device::{AddressPolicy, Profile};
use crate::plan::{Card, Target, cards_that_run};
use crate::run::RunSummary;
use crate::sim::{
    Conf, FileError, Memory, Opened, RunCount, Scenario, Setup, Supervision, failed, open, run_one,
};
use crate::trace::{LoadOptions, least_memory, peak_live_bytes};
use crate::units::{Bytes, GIB};

/// Runs every allocator on every trace of a set, over all threads of the pool; rows come trace by trace. `done` is
/// called, from any thread, after each trace.
///
/// # Errors
/// If a trace cannot be read or is not of a whole job, or an allocator broke a promise.
pub fn run(
    set: &Set,
    allocators: &[Choice],
    profile: &Profile,
    runs: &Arc<RunCount>,
    done: impl Fn(&TraceEntry) + Sync,
) -> Result<Vec<Row>, FileError> {
    let setup = Setup {
        memory: Memory::Unlimited,
        conf: Some(Conf::Known(AllocConf::default())),
        addresses: Some(AddressPolicy::Driver),
        is_fresh: true,
        profile: Some(profile.clone()),
        runs: Arc::clone(runs),
        ..Setup::default()
    };
    let target = |card: Card| card.target(RESERVE).ok();
    let cards: Vec<Target> = Card::built_in().into_iter().filter_map(target).collect();
    let rows: Result<Vec<Vec<Row>>, FileError> = set
        .traces
        .par_iter()
        .map(|entry| {
            let opened = open_whole(&entry.file)?;
            setup.runs.plan(2 * allocators.len());
            let judged =
                allocators.par_iter().map(|choice| judge(entry, &opened, choice, &setup, &cards));
            let rows: Result<Vec<Row>, FileError> = judged.collect();
            done(entry);
            rows
        })
        .collect();
    Ok(rows?.into_iter().flatten().collect())
}

/// What a card keeps for the CUDA context and libraries. It is part of the score: no measurement changes it.
const RESERVE: Bytes = 3 * GIB / 2;

/// Opens a recording of a whole job. Of another, no figure is known well enough to be compared.
fn open_whole(file: &Path) -> Result<Opened, FileError> {
    let opened = open(file, &LoadOptions::default())?;
    match opened.coverage.cure() {
        None => Ok(opened),
        Some(cure) => {
            let reason = opened.coverage.reason();
            Err(FileError::Partial { file: opened.file, reason, cure })
        }
    }
}

/// One allocator on one trace.
fn judge(
    entry: &TraceEntry,
    opened: &Opened,
    choice: &Choice,
    setup: &Setup,
    cards: &[Target],
) -> Result<Row, FileError> {
    let supervised = Setup { supervision: Supervision::All, ..setup.clone() };
    let checked = run_one(opened, choice, &supervised)?;
    let alone = Setup { supervision: Supervision::None, ..setup.clone() };
    let alone = Scenario::new(opened, choice.clone(), alone);
    let timed = alone.run().map_err(|source| failed(opened, choice, source))?;
    setup.runs.made_one();
    let requests = opened.trace.requests();
    let is_bound = choice.spec.role == Role::Bound;
    let (once, step) = driver_time(&checked);
    Ok(Row {
        trace: entry.name.clone(),
        part: entry.part(),
        allocator: choice.spec.name.to_owned(),
        live_peak_bytes: peak_live_bytes(&opened.trace),
        reserved_peak_bytes: checked.reserved_peak_bytes,
        oom_count: checked.oom_count,
        card: cards_that_run(&alone, cards).next().transpose()?.map(|card| card.name.clone()),
        possible_card: cards
            .iter()
            .filter(|card| card.capacity_bytes >= least_memory(&opened.trace))
            .min_by_key(|card| card.capacity_bytes)
            .map(|card| card.name.clone()),
        driver_calls: if is_bound { 0 } else { checked.device_calls.total() },
        driver_once_ns: (!is_bound).then_some(once),
        driver_step_ns: step.filter(|_| !is_bound),
        requests,
        host_ns_per_request: timed.host_ns.map(|ns| ns as f64 / requests.max(1) as f64),
    })
}

/// Driver time that comes once, and that of each step: the mean of the second half of the steps, times their number,
/// is what comes with steps.
fn driver_time(run: &RunSummary) -> (u64, Option<u64>) {
    let total = run.predicted_driver_ns().unwrap_or(0);
    let late = &run.steps[run.steps.len() / 2..];
    let Some(count) = std::num::NonZeroU64::new(late.len() as u64) else { return (total, None) };
    let late = late.iter().filter_map(|step| step.predicted_driver_ns);
    let step = late.map(|step| step.total).sum::<u64>() / count;
    (total.saturating_sub(step * run.steps.len() as u64), Some(step))
}
