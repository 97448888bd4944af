//! `gmlake-sim plan`: how much memory a job needs, and on which cards it runs.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use anyhow::Context;
use gmlake::allocator::ALL;
use gmlake::beside::Uses;
use gmlake::devices::Devices;
use gmlake::plan::chart::write_series;
use gmlake::plan::{Card, JobPlan, Plan, PlanOptions, Series, Target, plan_job, show as report};
use gmlake::remote;
use gmlake::report::section::{self, Section};
use gmlake::sim::job::{Job, jobs, quantity};

use crate::args::{AllocatorArgs, CardArgs, DataArgs, PlanArgs};
use crate::export::Exports;
use crate::typed::{choices_of_any_device, warn_of_gaps};
use crate::{Answer, terminal, work};

pub(crate) fn main(args: &PlanArgs) -> anyhow::Result<Answer> {
    let choices = choices_of_any_device(&args.input, &allocators(args))?;
    let jobs = jobs(&args.input.files, args.job.job)?;
    let options = PlanOptions { choices, targets: Vec::new(), resolution: args.resolution };
    let devices = devices(args)?;
    let by = quantity(&jobs, args.by.as_deref())?;
    anyhow::ensure!(
        args.export_plot.is_empty() || by.is_some(),
        "--export-plot draws a series: give several jobs and --by"
    );
    let exports = exports(&args.output)?;
    let mut plots = Exports::new();
    plots.add_pictures(&args.export_plot, write_series)?;
    // A series has one set of devices: those of its largest job.
    let largest = by.as_ref().and_then(|_| jobs.iter().map(|job| job.ranks.len()).max());
    let targets = |job: &Job| devices.for_ranks(largest.unwrap_or(job.ranks.len()));
    let (plans, answer) = run(args, &jobs, &options, targets)?;
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
fn catalogue(path: Option<&Path>) -> anyhow::Result<Vec<Card>> {
    let Some(path) = path else { return Ok(Card::built_in()) };
    let name = path.display();
    let file = File::open(path).with_context(|| format!("{name}: cannot be read"))?;
    Card::read(file).with_context(|| name.to_string())
}

/// The devices that were typed.
fn devices(args: &PlanArgs) -> anyhow::Result<Devices> {
    Ok(Devices { sizes: args.device_memory.clone(), ..cards(&args.cards)? })
}

/// The cards that were typed, less what jobs leave to all but PyTorch.
pub(crate) fn cards(args: &CardArgs) -> anyhow::Result<Devices> {
    let known = catalogue(args.catalogue.as_deref())?;
    let names: Vec<&str> = args.cards.iter().map(|name| name.trim()).collect();
    let mut chosen: Vec<Card> = match names[..] {
        [] => known,
        _ if names.contains(&"all") => known,
        ["none"] => Vec::new(),
        _ => {
            let cards = names.iter().map(|name| Card::find(&known, name).cloned());
            cards.collect::<Result<_, _>>()?
        }
    };
    let mut seen = BTreeSet::new();
    chosen.retain(|card| seen.insert(card.name.clone()));
    let devices = Devices {
        cards: chosen,
        reserve: args.reserve,
        uses: uses(&args.uses),
        ..Devices::default()
    };
    devices.check()?;
    Ok(devices)
}

/// The uses that were typed, if any were.
pub(crate) fn uses(typed: &[(String, u64)]) -> Option<Uses> {
    let counts = typed.iter().map(|(name, count)| (name.as_str(), *count));
    (!typed.is_empty()).then(|| Uses::of(counts))
}

fn run(
    args: &PlanArgs,
    jobs: &[Job],
    options: &PlanOptions,
    targets: impl Fn(&Job) -> Vec<Target>,
) -> anyhow::Result<(Vec<JobPlan>, Answer)> {
    let files: usize = jobs.iter().map(|job| job.ranks.len()).sum();
    let bar = work::progress(files, &options.choices.setup.runs);
    let done = |file: &Path| {
        bar.set_message(remote::shown(file));
        bar.inc(1);
    };
    let pool = work::pool(args.output.jobs)?;
    // Jobs one after the other: each keeps all cores busy, with one file in memory for each.
    let of_job = |(job, targets)| plan_job(job, &PlanOptions { targets, ..options.clone() }, done);
    let jobs_on: Vec<(&Job, Vec<Target>)> = jobs.iter().map(|job| (job, targets(job))).collect();
    let plans: Vec<JobPlan> = pool.install(|| jobs_on.into_iter().map(of_job).collect());
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
