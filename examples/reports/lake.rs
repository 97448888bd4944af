//! `reports/lake.md`: what `lake` reaches on each trace, what its parts bring, how robust that is, and how little memory
//! will do.

use anyhow::{Context, Result};
use gmlake::device::{GRANULE, Profile};
use gmlake::metrics::RunSummary;
use gmlake::sim::plan::{PlanOptions, plan};
use gmlake::sim::{Choice, Choices, Memory, Opened, Setup, run};
use rayon::prelude::*;

use crate::{Table, Traces, gib};

const HEAD: &str = include_str!("lake_head.md");

const ON_AN_H100: &str = "## On an H100 of 80 GB

The same recordings and settings by the profile `h100`, on 79 GiB (`compare --profile h100 --device-memory 79GiB`). All handles
are half as large. Once 38 GiB are held, they are of at most 4 MiB, so that a job may fill such a card: that is paid in driver time
by those that hold more.";

/// Recordings under other settings, late or cut short, of a second rank, or not of a program that repeats.
fn is_comparable(name: &str) -> bool {
    let others = [".expandable", ".late", ".ring", ".gc", ".split", ".frames", ".r1", ".r2", ".r3"];
    !others.iter().any(|part| name.contains(part))
        && !["graphs", "pools", "streams"].contains(&name)
}

/// An allocator by its name, and its options as `name=value,...`.
fn choice((allocator, options): (&str, &str)) -> Result<Choice> {
    let pairs: Vec<_> = options.split(',').filter_map(|pair| pair.split_once('=')).collect();
    crate::choice(allocator, &pairs)
}

/// A simulated GPU.
#[derive(Clone, Copy)]
struct Gpu {
    profile: &'static str,
    /// Bytes.
    memory: u64,
}

const H200: Gpu = Gpu { profile: "h200", memory: 141 << 30 };
const H100: Gpu = Gpu { profile: "h100", memory: 79 << 30 };

/// One run on a simulated GPU.
fn measure(opened: &Opened, setting: (&str, &str), gpu: Gpu) -> Result<RunSummary> {
    let (memory, profile) = (Memory::Bytes(gpu.memory), Profile::built_in(gpu.profile));
    let setup = Setup { memory, profile, ..Setup::default() };
    Ok(run(opened, &choice(setting)?, &setup)?)
}

/// Milliseconds of driver time.
fn driver_ms(run: &RunSummary) -> f64 {
    run.prices.as_ref().map_or(0.0, |prices| prices.predicted_driver_ns.total as f64 / 1e6)
}

fn all(opened: &[(String, Opened)], setting: (&str, &str), gpu: Gpu) -> Result<Vec<RunSummary>> {
    opened.par_iter().map(|(_, trace)| measure(trace, setting, gpu)).collect()
}

pub(crate) fn report(traces: &Traces) -> Result<String> {
    let mut opened = Vec::new();
    for name in traces.names().filter(|name| is_comparable(name)) {
        opened.extend(traces.open(name)?.map(|trace| (name.to_owned(), trace)));
    }
    let parts = [
        format!("## All {} recordings together\n\n{}", opened.len(), targets(&opened, H200)?),
        each(&opened)?,
        ablations(&opened)?,
        robustness(&mut opened)?,
        capacities(&opened)?,
        format!("{ON_AN_H100}\n\n{}", targets(&opened, H100)?),
    ];
    Ok(format!("{HEAD}\n{}", parts.join("\n")))
}

struct Totals {
    mean: f64,
    worst: f64,
    driver_ms: f64,
}

fn totals(runs: &[RunSummary]) -> Totals {
    let utilization = runs.iter().map(|run| run.utilization);
    Totals {
        mean: utilization.clone().sum::<f64>() / runs.len() as f64,
        worst: utilization.fold(1.0, f64::min),
        driver_ms: runs.iter().map(driver_ms).sum(),
    }
}

const SETTINGS: [(&str, &str); 6] = [
    ("caching", ""),
    ("expandable", ""),
    ("gmlake-released", ""),
    ("lake", "budget=fast"),
    ("lake", ""),
    ("lake", "budget=tight"),
];

fn label((allocator, options): (&str, &str)) -> String {
    format!("{allocator} {options}").trim().to_owned()
}

fn targets(opened: &[(String, Opened)], gpu: Gpu) -> Result<String> {
    let heading = ["allocator", "mean utilization", "worst", "driver time", "of gmlake-released's"];
    let mut table = Table::new(&heading);
    let released = totals(&all(opened, ("gmlake-released", ""), gpu)?).driver_ms;
    for setting in SETTINGS {
        let Totals { mean, worst, driver_ms } = totals(&all(opened, setting, gpu)?);
        table.row(&[
            label(setting),
            format!("{mean:.4}"),
            format!("{worst:.4}"),
            format!("{driver_ms:.0} ms"),
            format!("{:.3}", driver_ms / released),
        ]);
    }
    Ok(table.text())
}

fn each(opened: &[(String, Opened)]) -> Result<String> {
    let heading = [
        "trace",
        "expandable",
        "gmlake-released",
        "fast",
        "balanced",
        "tight",
        "1 % of the run",
        "calls in the last step",
        "stream waits",
    ];
    let mut table = Table::new(&heading);
    let runs: Result<Vec<_>> =
        SETTINGS[1..].iter().map(|&setting| all(opened, setting, H200)).collect();
    let runs = runs?;
    for (place, (name, trace)) in opened.iter().enumerate() {
        let mut cells = vec![name.clone()];
        for runs in &runs {
            let run = &runs[place];
            cells.push(format!("{:.3}, {:.0} ms", run.utilization, driver_ms(run)));
        }
        let balanced = &runs[3][place];
        let last = balanced
            .steps
            .last()
            .map_or("-".to_owned(), |step| step.device_calls.total().to_string());
        let waits = balanced.allocator_counters.iter().find(|(name, _)| name == "stream_waits");
        cells.push(format!("{:.0} ms", trace.trace.span_us() as f64 / 1e5));
        cells.push(last);
        cells.push(waits.map_or(0, |(_, count)| *count).to_string());
        table.row(&cells);
    }
    Ok(format!(
        "## Each recording\n\nUtilization and driver time; calls in the last step and stream-side waits are `balanced`'s.\n\n{}",
        table.text()
    ))
}

const PARTS: [(&str, &str); 17] = [
    ("balanced", ""),
    ("every request anew, wherever its like went", "repeat=off"),
    ("what is lent stays lent", "recall=off"),
    ("streams go no further than their own handles", "beside=off"),
    ("handles as large, however many are mapped", "rate=0"),
    ("no slabs: tiny requests as they come", "slabs=off"),
    ("no pairs of partial pieces first", "pairs=off"),
    ("large and small from the same end", "sides=off"),
    ("no stream-side waits", "waits=off"),
    ("views are found only by the size that they served last", "view_scan=0"),
    ("all handles as large as can be", "grain=1"),
    ("handles of up to 128 MiB", "handle=128MiB"),
    ("handles of up to 32 MiB", "handle=32MiB"),
    ("no slack", "slack=0"),
    ("slack of 2 %", "slack=0.02"),
    ("no growth at a record: stitched beyond the slack", "price=0"),
    ("nothing is stitched up to 8 GiB", "headstart=8GiB"),
];

fn ablations(opened: &[(String, Opened)]) -> Result<String> {
    let mut table = Table::new(&["without", "options", "mean", "worst", "driver time"]);
    for (what, options) in PARTS {
        let Totals { mean, worst, driver_ms } = totals(&all(opened, ("lake", options), H200)?);
        let (mean, worst) = (format!("{mean:.4}"), format!("{worst:.4}"));
        table.row(&[what.into(), options.into(), mean, worst, format!("{driver_ms:.0} ms")]);
    }
    Ok(format!("## What each part brings\n\n{}", table.text()))
}

/// Every size times a factor: neither powers of two nor what the knobs were chosen on.
fn robustness(opened: &mut [(String, Opened)]) -> Result<String> {
    let mut table = Table::new(&["sizes times", "handle", "mean", "worst", "driver time"]);
    let original: Vec<_> = opened.iter().map(|(_, trace)| trace.trace.events.clone()).collect();
    for factor in [0.9, 1.0, 1.1] {
        for ((_, trace), events) in opened.iter_mut().zip(&original) {
            for (event, was) in trace.trace.events.iter_mut().zip(events) {
                event.size = (was.size as f64 * factor / 512.0).ceil() as u64 * 512;
            }
        }
        for handle in ["60MiB", "64MiB", "68MiB", "72MiB", "80MiB", "96MiB"] {
            let options = format!("handle={handle}");
            let Totals { mean, worst, driver_ms } = totals(&all(opened, ("lake", &options), H200)?);
            let (mean, worst) = (format!("{mean:.4}"), format!("{worst:.4}"));
            let time = format!("{driver_ms:.0} ms");
            table.row(&[factor.to_string(), handle.into(), mean, worst, time]);
        }
    }
    for ((_, trace), events) in opened.iter_mut().zip(original) {
        trace.trace.events = events;
    }
    Ok(format!("## Under other sizes\n\n{}", table.text()))
}

/// The smallest devices on which a whole trace runs, to a thousandth of what is live, and the driver time there.
fn smallest(name: &str, opened: &Opened) -> Result<Vec<String>> {
    let settings = [("caching", ""), ("expandable", ""), ("lake", ""), ("lake", "budget=tight")];
    let allocators = settings.map(choice).into_iter().collect::<Result<_>>()?;
    let live = measure(opened, ("bound", ""), H200)?.active_peak_bytes;
    let options = PlanOptions {
        choices: Choices { allocators, ..Choices::default() },
        targets: Vec::new(),
        resolution: (live / 1000).next_multiple_of(GRANULE),
    };
    let mut cells = vec![name.to_owned(), gib(live)];
    for (need, setting) in plan(opened, &options)?.needs.iter().zip(settings) {
        let trial = need.smallest.with_context(|| format!("{name}: {setting:?} never runs"))?;
        let run = measure(opened, setting, Gpu { memory: trial.capacity_bytes, ..H200 })?;
        cells.push(format!("{}, {:.0} ms", gib(trial.capacity_bytes), driver_ms(&run)));
    }
    Ok(cells)
}

fn capacities(opened: &[(String, Opened)]) -> Result<String> {
    let heading = ["trace", "live", "caching", "expandable", "lake", "lake budget=tight"];
    let mut table = Table::new(&heading);
    let rows: Result<Vec<_>> =
        opened.par_iter().map(|(name, trace)| smallest(name, trace)).collect();
    rows?.iter().for_each(|cells| table.row(cells));
    Ok(format!(
        "## The smallest device that will do\n\nGiB, as `gmlake-sim plan` finds it, to 0.1 % of what is live, and the \
         driver time there.\n\n{}",
        table.text()
    ))
}
