//! `gmlake-sim fits`: one line, and an exit code for schedulers.

use std::path::Path;

use anyhow::bail;
use gmlake::plan::{Card, FitVerdict, JobFit, Target, fit_job, show as report};
use gmlake::sim::job::{Job, jobs};

use crate::args::{AllocatorArgs, FitsArgs};
use crate::plan::{self, catalogue};
use crate::typed::{choices_of_any_device, warn_of_gaps};
use crate::{Answer, terminal, work};

pub(crate) fn main(args: &FitsArgs, json: bool) -> anyhow::Result<Answer> {
    let allocators = AllocatorArgs {
        allocators: vec![args.allocator.clone()],
        plugin: Vec::new(),
        set: args.set.clone(),
        alloc_conf: args.alloc_conf.clone(),
    };
    let choices = choices_of_any_device(&args.input, &allocators)?;
    // PyTorch's settings may have made another allocator of it.
    let allocator = choices.allocators.first().map_or("", |choice| choice.spec.name);
    let job = one_job(args)?;
    let target = target(args, job.ranks.len())?;
    warn_of_gaps(&job);
    let bar = work::progress(job.ranks.len(), &choices.setup.runs);
    let done = |_: &Path| bar.inc(1);
    let pool = work::pool(args.jobs)?;
    let fit = pool.install(|| fit_job(&job, &choices, target.capacity_bytes, done));
    bar.finish_and_clear();
    for failure in &fit.failures {
        terminal::print_line(failure);
    }
    if json {
        terminal::print_json("fits", &answer(allocator, &target, &fit))?;
    } else if let Some(worst) = fit.worst() {
        terminal::print(&report::fit_line(&job.name, allocator, &target, worst, &fit))?;
    }
    Ok(match fit.verdict() {
        Some(FitVerdict::DoesNotFit) => Answer::No,
        Some(FitVerdict::Unknown) if fit.failures.is_empty() => Answer::Unknown,
        Some(FitVerdict::Fits) => Answer::Yes,
        _ => Answer::Incomplete,
    })
}

/// The answer for programs: the job's verdict, and rank by rank.
fn answer(allocator: &str, target: &Target, fit: &JobFit) -> serde_json::Value {
    serde_json::json!({
        "allocator": allocator,
        "target": target,
        "fits": fit.verdict() == Some(FitVerdict::Fits),
        "verdict": fit.verdict(),
        "coverage": fit.coverage,
        "is_lower_bound": fit.coverage.is_partial(),
        "ranks": fit.ranks,
        "failures": fit.failures,
    })
}

fn target(args: &FitsArgs, ranks: usize) -> anyhow::Result<Target> {
    match (args.device_memory, &args.card) {
        (Some(size), _) => Ok(Target::of_size(size)),
        (None, Some(name)) => {
            let known = catalogue(None)?;
            plan::target(Card::find(&known, name)?, args.reserve, &args.uses, ranks)
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
