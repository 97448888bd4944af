//! `gmlake-sim plan`: how much memory a job needs, and on which cards it runs.

use std::fs::File;
use std::path::Path;

use anyhow::Context;
use gmlake::allocator::ALL;
use gmlake::beside::{self, Uses};
use gmlake::plan::chart::write_series;
use gmlake::plan::{Card, JobPlan, Plan, PlanOptions, Series, Target, plan_job, show as report};
use gmlake::remote;
use gmlake::report::section::{self, Section};
use gmlake::sim::job::{Job, jobs, quantity};
use gmlake::units::Bytes;

use crate::args::{AllocatorArgs, CardArgs, DataArgs, PlanArgs};
use crate::export::Exports;
use crate::typed::{choices_of_any_device, warn_of_gaps};
use crate::{Answer, terminal, work};

pub(crate) fn main(args: &PlanArgs) -> anyhow::Result<Answer> {
    let choices = choices_of_any_device(&args.input, &allocators(args))?;
    let jobs = jobs(&args.input.files, args.job.job)?;
    let ranks = jobs.iter().map(|job| job.ranks.len()).max().unwrap_or(1);
    let options =
        PlanOptions { choices, targets: targets(args, ranks)?, resolution: args.resolution };
    let by = quantity(&jobs, args.by.as_deref())?;
    anyhow::ensure!(
        args.export_plot.is_empty() || by.is_some(),
        "--export-plot draws a series: give several jobs and --by"
    );
    let exports = exports(&args.output)?;
    let mut plots = Exports::new();
    plots.add_pictures(&args.export_plot, write_series)?;
    let (plans, answer) = run(args, &jobs, &options)?;
    let series = by.filter(|_| plans.iter().all(|job| !job.ranks.is_empty()));
    let series = series.map(|(quantity, values)| series_of(quantity, &values, &plans));
    let sections = sections(&plans, series.as_ref());
    if !exports.has_stdout() && !sections.is_empty() {
        terminal::print(&section::text(&sections, terminal::look()))?;
    }
    if let Some(series) = &series {
        plots.finish(series)?;
    }
    if plans.iter().any(|job| !job.ranks.is_empty()) {
        exports.finish(&Found { plans, series, sections })?;
    }
    Ok(answer)
}

/// What is written: the same in every form.
struct Found {
    plans: Vec<JobPlan>,
    series: Option<Series>,
    sections: Vec<Section>,
}

fn exports(args: &DataArgs) -> anyhow::Result<Exports<'static, Found>> {
    let mut exports = Exports::new();
    exports.add_json(&args.export_json, |found: &Found, out| {
        report::write_json(&found.plans, found.series.as_ref(), out)
    })?;
    exports.add(&args.export_csv, |found, out| report::write_csv(&found.plans, out))?;
    exports
        .add(&args.export_markdown, |found, out| section::write_markdown(&found.sections, out))?;
    Ok(exports)
}

/// The allocators that were asked for; by default those that one can choose, without the rows that serve to compare.
fn allocators(args: &PlanArgs) -> AllocatorArgs {
    let mut allocators = args.allocators.clone();
    if allocators.allocators.is_empty() {
        let names = ALL.iter().filter(|spec| spec.role.is_default() && spec.role.is_choice());
        allocators.allocators = names.map(|spec| spec.name.to_owned()).collect();
    }
    allocators
}

/// The catalogue, built in or from a file.
pub(crate) fn catalogue(path: Option<&Path>) -> anyhow::Result<Vec<Card>> {
    let Some(path) = path else { return Ok(Card::built_in()) };
    let name = path.display();
    let file = File::open(path).with_context(|| format!("{name}: cannot be read"))?;
    Card::read(file).with_context(|| name.to_string())
}

fn targets(args: &PlanArgs, ranks: usize) -> anyhow::Result<Vec<Target>> {
    let sizes = args.device_memory.iter();
    let mut targets: Vec<Target> = sizes.copied().map(Target::of_size).collect();
    targets.extend(cards(&args.cards, ranks)?);
    Ok(targets)
}

/// The cards for a job of so many ranks, less what is left to all but PyTorch.
pub(crate) fn cards(args: &CardArgs, ranks: usize) -> anyhow::Result<Vec<Target>> {
    let known = catalogue(args.catalogue.as_deref())?;
    let names: Vec<&str> = args.cards.iter().map(|name| name.trim()).collect();
    let chosen: Vec<&Card> = match names[..] {
        [] => known.iter().collect(),
        _ if names.contains(&"all") => known.iter().collect(),
        ["none"] => Vec::new(),
        _ => names.iter().map(|name| Card::find(&known, name)).collect::<Result<_, _>>()?,
    };
    let target = |card: &&Card| target(card, args.reserve, &args.uses, ranks);
    let targets: Vec<anyhow::Result<Target>> = chosen.iter().map(target).collect();
    if targets.iter().all(Result::is_err) {
        return targets.into_iter().collect();
    }
    let targets = chosen.into_iter().zip(targets);
    Ok(targets.map(|(card, target)| target.unwrap_or_else(|_| full(card))).collect())
}

/// A card all of which is left to others than PyTorch.
fn full(card: &Card) -> Target {
    Target { name: card.name.clone(), capacity_bytes: 0, reserve_bytes: card.usable_bytes }
}

/// A card less a reserve: the one given, or the most that the job is expected to take besides PyTorch's allocator.
pub(crate) fn target(
    card: &Card,
    reserve: Option<Bytes>,
    uses: &[(String, u64)],
    ranks: usize,
) -> anyhow::Result<Target> {
    let uses = match uses {
        [] => Uses::usual(ranks),
        given => Uses::of(given.iter().map(|(name, count)| (name.as_str(), *count))),
    };
    Ok(match reserve {
        Some(reserve) => card.target(reserve)?,
        None => beside::target(card, &uses)?,
    })
}

fn run(
    args: &PlanArgs,
    jobs: &[Job],
    options: &PlanOptions,
) -> anyhow::Result<(Vec<JobPlan>, Answer)> {
    let files: usize = jobs.iter().map(|job| job.ranks.len()).sum();
    let bar = work::progress(files, &options.choices.setup.runs);
    let done = |file: &Path| {
        bar.set_message(remote::shown(file));
        bar.inc(1);
    };
    let pool = work::pool(args.output.jobs)?;
    // Jobs one after the other: each keeps all cores busy, with one file in memory for each.
    let plans: Vec<JobPlan> =
        pool.install(|| jobs.iter().map(|job| plan_job(job, options, done)).collect());
    bar.finish_and_clear();
    let mut answer = Answer::Yes;
    for (job, plan) in jobs.iter().zip(&plans) {
        warn_of_gaps(job);
        terminal::warn_of_notes(plan.ranks.iter().flat_map(notes_of));
        for failure in &plan.failures {
            terminal::print_line(failure);
            answer = Answer::Incomplete;
        }
    }
    Ok((plans, answer))
}

fn notes_of(plan: &Plan) -> impl Iterator<Item = (&str, &str)> {
    plan.notes.iter().map(|note| (plan.file.as_str(), note.as_str()))
}

fn series_of(quantity: String, values: &[f64], plans: &[JobPlan]) -> Series {
    let mut pairs: Vec<(f64, &JobPlan)> = values.iter().copied().zip(plans).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let values = pairs.iter().map(|&(value, _)| value).collect();
    Series { quantity, values, jobs: pairs.into_iter().map(|(_, job)| job.clone()).collect() }
}

fn sections(plans: &[JobPlan], series: Option<&Series>) -> Vec<Section> {
    let mut sections: Vec<Section> = plans.iter().flat_map(report::job_sections).collect();
    sections.extend(series.map(report::series_section).unwrap_or_default());
    sections
}
