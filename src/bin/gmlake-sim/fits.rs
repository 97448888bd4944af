//! `gmlake-sim fits`: one line, and an exit code for schedulers.

use std::path::Path;

use anyhow::bail;
use gmlake::devices::Devices;
use gmlake::plan::{Card, FitVerdict, JobFit, Target, fit_job, show as report};
use gmlake::sim::job::{Job, jobs};
use gmlake::sim::{Choices, choose_one, under};

use crate::args::FitsArgs;
use crate::plan;
use crate::typed::{simulated, warn_of_gaps};
use crate::{Answer, terminal, work};

pub(crate) fn main(args: &FitsArgs, json: bool) -> anyhow::Result<Answer> {
    let choices = choices(args)?;
    let job = one_job(args)?;
    let target = target(args, job.ranks.len())?;
    warn_of_gaps(&job);
    let bar = work::progress(job.ranks.len(), &choices.setup.runs);
    let done = |_: &Path| bar.inc(1);
    let pool = work::pool(args.jobs)?;
    let fit = pool.install(|| fit_job(&job, &choices, &target, done));
    bar.finish_and_clear();
    for failure in &fit.failures {
        terminal::print_line(failure);
    }
    if json {
        terminal::print_json("fits", &answer(&target, &fit))?;
    } else if let Some(worst) = fit.worst() {
        terminal::print(&report::fit_line(&job.name, &target, worst, &fit))?;
    }
    Ok(match fit.verdict() {
        Some(FitVerdict::DoesNotFit) => Answer::No,
        Some(FitVerdict::Unknown) if fit.failures.is_empty() => Answer::Unknown,
        Some(FitVerdict::Fits) => Answer::Yes,
        _ => Answer::Incomplete,
    })
}

/// The allocator and the settings that were typed.
fn choices(args: &FitsArgs) -> anyhow::Result<Choices> {
    let setup = simulated(args.input.torch_version, args.alloc_conf.as_deref())?;
    let choice = choose_one(args.allocator.as_deref().unwrap_or("caching"), &args.set)?;
    Ok(Choices {
        open: args.input.open(false),
        allocators: under(vec![choice], setup.conf.as_ref()),
        as_recorded: args.allocator.is_none(),
        is_strict: args.input.strict,
        setup,
        ..Choices::default()
    })
}

/// The answer for programs: the job's verdict, and rank by rank.
fn answer(target: &Target, fit: &JobFit) -> serde_json::Value {
    serde_json::json!({
        "allocator": fit.worst().map(|rank| rank.allocator),
        "target": target,
        "fits": fit.verdict() == Some(FitVerdict::Fits),
        "verdict": fit.verdict(),
        "coverage": fit.coverage,
        "is_lower_bound": fit.coverage.is_lower_bound(),
        "ranks": fit.ranks,
        "failures": fit.failures,
    })
}

fn target(args: &FitsArgs, ranks: usize) -> anyhow::Result<Target> {
    match (args.device_memory, &args.card) {
        (Some(size), _) => Ok(Target::of_size(size)),
        (None, Some(name)) => {
            let (reserve, uses) = (args.reserve, plan::uses(&args.uses));
            let devices = Devices { reserve, uses, ..Devices::catalogue() };
            Ok(devices.card(Card::find(&devices.cards, name)?, ranks)?)
        }
        (None, None) => bail!("give --device-memory or --card"),
    }
}

fn one_job(args: &FitsArgs) -> anyhow::Result<Job> {
    let mut found = jobs(&args.input.files, args.job.job)?;
    if let [first, other, ..] = &found[..] {
        bail!(
            "a mix of jobs, such as {:?} and {:?}: fits answers for one job at a time (--job takes \
             all files as one)",
            first.name,
            other.name
        );
    }
    found.pop().ok_or_else(|| anyhow::anyhow!("no files"))
}
