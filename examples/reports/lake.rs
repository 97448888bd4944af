//! `reports/lake.md`: what `lake` reaches on the jobs that it was chosen on, on those that judge it, and on recordings.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use gmlake::device::{GRANULE, Profile};
use gmlake::plan::{PlanOptions, plan};
use gmlake::run::{RunSummary, StepSummary};
use gmlake::sim::{Choice, Choices, Memory, Opened, Setup, run};
use rayon::prelude::*;

use crate::{Table, Traces, gib};

const HEAD: &str = include_str!("lake_head.md");

/// Steps of jobs that ran on an H200 as well, with the lengths of the predicted ones.
const RECORDED: &str = include_str!("../lake/recorded-steps.csv");

/// Bytes of the simulated H200.
const H200: u64 = 141 << 30;

/// Steps that count as paid once; what comes later is paid for ever.
const FIRST_STEPS: usize = 4;

/// Steps of a long job after which all that varies has been seen.
const SEEN_STEPS: usize = 32;

/// A job: its requests, and how long its steps take.
struct Job {
    name: String,
    opened: Opened,
    /// Seconds of each step: estimated for a predicted job, measured for a recorded one; empty if not known.
    seconds: Vec<f64>,
    is_varied: bool,
}

/// The set that only says what goes on for ever.
const LONG: &str = "Validation set, jobs of varied lengths with 64 steps";

/// Jobs of one folder.
struct Set {
    title: &'static str,
    jobs: Vec<Job>,
}

/// Recordings under other settings, late or cut short, of a second rank, or not of a program that repeats.
fn is_comparable(name: &str) -> bool {
    let others = [".expandable", ".late", ".ring", ".gc", ".split", ".frames", ".r1", ".r2", ".r3"];
    !others.iter().any(|part| name.contains(part))
        && !["graphs", "pools", "streams"].contains(&name)
}

/// Seconds of the steps of each job, and whether its lengths vary, from the `summary.csv` that `make.py` wrote.
fn predicted_steps(folder: &Path) -> Result<BTreeMap<String, (Vec<f64>, bool)>> {
    let mut steps = BTreeMap::new();
    for row in csv::Reader::from_path(folder.join("summary.csv"))?.deserialize() {
        let row: BTreeMap<String, String> = row?;
        let seconds = row["step_seconds"].split(' ').filter_map(|text| text.parse().ok()).collect();
        steps.insert(row["name"].clone(), (seconds, row["varied"] == "yes"));
    }
    Ok(steps)
}

/// Seconds of the steps of a recording, from the counters next to it, which say when each began. The last one is taken
/// to be as long as the one before.
fn recorded_steps(path: &Path, name: &str) -> Option<Vec<f64>> {
    let text = std::fs::read_to_string(path.with_file_name(format!("{name}.stats.json"))).ok()?;
    let facts: serde_json::Value = serde_json::from_str(&text).ok()?;
    let starts = facts["step_start_us"].as_array()?.iter();
    let starts: Vec<f64> = starts.filter_map(serde_json::Value::as_f64).collect();
    let mut seconds: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) / 1e6).collect();
    seconds.extend(seconds.last().copied());
    Some(seconds)
}

/// How long the steps of a job are by estimate, for each second on an H200: from the fifth on, as far as recorded.
fn estimated_per_recorded(job: &Job) -> Result<Option<f64>> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(RECORDED.as_bytes());
    for row in reader.deserialize() {
        let (name, seconds): (String, String) = row?;
        if job.name.split('.').next() == Some(&name) {
            let recorded: Vec<f64> =
                seconds.split(' ').map(str::parse).collect::<Result<_, _>>()?;
            let late = |seconds: &[f64]| seconds[FIRST_STEPS..recorded.len()].iter().sum::<f64>();
            return Ok(Some(late(&job.seconds) / late(&recorded)));
        }
    }
    Ok(None)
}

fn sets(traces: &Traces) -> Result<Vec<Set>> {
    let titles = ["Training set", "Validation set", "Recordings of H200s", LONG];
    let mut sets: Vec<Set> = titles.map(|title| Set { title, jobs: Vec::new() }).into();
    let mut summaries = BTreeMap::new();
    for name in traces.names() {
        let path = traces.path(name).context("it was listed")?;
        let folder = path.parent().context("it lies in a folder")?;
        let (set, steps) = match folder.file_name().and_then(|name| name.to_str()) {
            Some("training") => (0, true),
            Some("validation") => (1, true),
            Some("long") => (3, true),
            _ if is_comparable(name) => (2, false),
            _ => continue,
        };
        let (seconds, is_varied) = if steps {
            if !summaries.contains_key(folder) {
                summaries.insert(folder.to_owned(), predicted_steps(folder)?);
            }
            summaries[folder].get(name).cloned().with_context(|| format!("{name}: no steps"))?
        } else {
            (recorded_steps(path, name).unwrap_or_default(), name.contains("-var"))
        };
        let opened = traces.open(name)?.context("it was listed")?;
        sets[set].jobs.push(Job { name: name.to_owned(), opened, seconds, is_varied });
    }
    sets.retain(|set| !set.jobs.is_empty());
    Ok(sets)
}

/// An allocator by its name, and its options as `name=value,...`.
fn choice((allocator, options): (&str, &str)) -> Result<Choice> {
    let pairs: Vec<_> = options.split(',').filter_map(|pair| pair.split_once('=')).collect();
    crate::choice(allocator, &pairs)
}

/// One run on a simulated H200 with so much memory.
fn measure(opened: &Opened, setting: (&str, &str), memory: u64) -> Result<RunSummary> {
    let profile = Profile::built_in("h200");
    let setup = Setup { memory: Memory::Bytes(memory), profile, ..Setup::default() };
    Ok(run(opened, &choice(setting)?, &setup)?)
}

/// What a job pays under an allocator.
struct Cost {
    utilization: f64,
    reserved: u64,
    /// Milliseconds of driver time, all together and up to the end of the fourth step.
    driver_ms: f64,
    once_ms: f64,
    /// Share of the later steps that goes into driver calls, in per cent; of those with known steps.
    later_percent: Option<f64>,
    /// The same of the steps after all that varies has been seen.
    settled_percent: Option<f64>,
    last_calls: u64,
}

fn driver_ms(run: &RunSummary) -> f64 {
    run.prices.as_ref().map_or(0.0, |prices| prices.predicted_driver_ns.total as f64 / 1e6)
}

fn step_ms(step: &StepSummary) -> f64 {
    step.predicted_driver_ns.as_ref().map_or(0.0, |nanos| nanos.total as f64 / 1e6)
}

/// Driver time of all steps but the first `passed`, as a share of these steps in per cent.
fn percent_after(passed: usize, run: &RunSummary, job: &Job) -> Option<f64> {
    let known = run.steps.len().min(job.seconds.len());
    let seconds: f64 = job.seconds[..known].iter().skip(passed).sum();
    let driver_ms: f64 = run.steps.iter().skip(passed).map(step_ms).sum();
    (seconds > 0.0).then(|| driver_ms / seconds / 10.0)
}

fn cost(job: &Job, setting: (&str, &str)) -> Result<Cost> {
    let run = measure(&job.opened, setting, H200)?;
    let later_ms: f64 = run.steps.iter().skip(FIRST_STEPS).map(step_ms).sum();
    Ok(Cost {
        utilization: run.utilization,
        reserved: run.reserved_peak_bytes,
        driver_ms: driver_ms(&run),
        once_ms: driver_ms(&run) - later_ms,
        later_percent: percent_after(FIRST_STEPS, &run, job),
        settled_percent: percent_after(SEEN_STEPS, &run, job),
        last_calls: run.steps.last().map_or(0, |step| step.device_calls.total()),
    })
}

fn costs(set: &Set, setting: (&str, &str)) -> Result<Vec<Cost>> {
    set.jobs.par_iter().map(|job| cost(job, setting)).collect()
}

/// Median and largest of some numbers.
fn spread(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.last().copied().unwrap_or(0.0);
    (sorted.get(sorted.len() / 2).copied().unwrap_or(0.0), last)
}

/// Mean and its standard error over jobs.
fn mean(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let square: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    (mean, (square / (count - 1.0).max(1.0) / count).sqrt())
}

const HEADING: [&str; 7] = [
    "allocator",
    "mean utilization",
    "worst",
    "once, ms: median, worst",
    "later, %: median and worst of varied lengths",
    "driver time, of gmlake-released's",
    "jobs above expandable",
];

fn row(
    set: &Set,
    setting: (&str, &str),
    released_ms: f64,
    expandable: &[Cost],
) -> Result<Vec<String>> {
    let costs = costs(set, setting)?;
    let utilization: Vec<f64> = costs.iter().map(|cost| cost.utilization).collect();
    let (mean, error) = mean(&utilization);
    let worst = utilization.iter().copied().fold(1.0, f64::min);
    let (once, most_once) = spread(costs.iter().map(|cost| cost.once_ms));
    let varied = costs.iter().zip(&set.jobs).filter(|(_, job)| job.is_varied);
    let (later, most_later) = spread(varied.filter_map(|(cost, _)| cost.later_percent));
    let driver: f64 = costs.iter().map(|cost| cost.driver_ms).sum();
    let above = costs.iter().zip(expandable).filter(|(cost, other)| cost.reserved > other.reserved);
    let (allocator, options) = setting;
    Ok(vec![
        format!("{allocator} {options}").trim().to_owned(),
        format!("{mean:.4} ± {error:.4}"),
        format!("{worst:.4}"),
        format!("{once:.0}, {most_once:.0}"),
        format!("{later:.2}, {most_later:.2}"),
        format!("{:.3}", driver / released_ms),
        above.count().to_string(),
    ])
}

fn table(sets: &[Set], title: &str, settings: &[(&str, &str)]) -> Result<String> {
    let mut text = format!("## {title}\n\n");
    for set in sets {
        let released: f64 =
            costs(set, ("gmlake-released", ""))?.iter().map(|cost| cost.driver_ms).sum();
        let expandable = costs(set, ("expandable", ""))?;
        let mut table = Table::new(&HEADING);
        for &setting in settings {
            table.row(&row(set, setting, released, &expandable)?);
        }
        text += &format!("### {}: {} jobs\n\n{}", set.title, set.jobs.len(), table.text());
    }
    Ok(text)
}

/// What jobs pay that are long enough to settle.
fn for_ever(long: &Set) -> Result<String> {
    let text =
        format!("## What goes on for ever\n\n### {}: {} jobs\n\n", long.title, long.jobs.len());
    let heading =
        ["allocator", "mean utilization", "worst", "steps 5 to 64, %", "steps 33 to 64, %"];
    let mut table = Table::new(&heading);
    for allocator in ["expandable", "gmlake-released", "gmlake", "lake"] {
        let costs = costs(long, (allocator, ""))?;
        let utilization: Vec<f64> = costs.iter().map(|cost| cost.utilization).collect();
        let (mean, error) = mean(&utilization);
        let later = spread(costs.iter().filter_map(|cost| cost.later_percent));
        let settled = spread(costs.iter().filter_map(|cost| cost.settled_percent));
        table.row(&[
            allocator.to_owned(),
            format!("{mean:.4} ± {error:.4}"),
            format!("{:.4}", utilization.iter().copied().fold(1.0, f64::min)),
            format!("{:.2}, {:.2}", later.0, later.1),
            format!("{:.2}, {:.2}", settled.0, settled.1),
        ]);
    }
    Ok(text + &table.text() + &each_for_ever(long)?)
}

/// The same for each job under `lake`, and on recorded steps.
fn each_for_ever(long: &Set) -> Result<String> {
    let heading = [
        "job",
        "utilization",
        "steps 5 to 64, %",
        "steps 33 to 64, %",
        "ms a step",
        "recorded: steps 33 to 64, %",
        "ms a step",
    ];
    let (mut table, mut best_known) = (Table::new(&heading), Vec::new());
    for (job, cost) in long.jobs.iter().zip(costs(long, ("lake", ""))?) {
        let later = job.seconds.get(FIRST_STEPS..).unwrap_or_default();
        let (step_ms, settled) = (1e3 * mean(later).0, cost.settled_percent.unwrap_or_default());
        let pace = estimated_per_recorded(job)?;
        best_known.push(settled * pace.unwrap_or(1.0));
        table.row(&[
            job.name.clone(),
            format!("{:.4}", cost.utilization),
            format!("{:.3}", cost.later_percent.unwrap_or_default()),
            format!("{settled:.3}"),
            format!("{step_ms:.0}"),
            pace.map_or("-".to_owned(), |pace| format!("{:.3}", settled * pace)),
            pace.map_or("-".to_owned(), |pace| format!("{:.0}", step_ms / pace)),
        ]);
    }
    let (median, worst) = spread(best_known.into_iter());
    Ok(format!(
        "Median and worst. Each job under `lake`, with its estimated steps, and where some of them were recorded on an H200, \
         with those:\n\n{}With recorded steps where there are some: {median:.3} % in the median, {worst:.3} % at worst.\n\n",
        table.text()
    ))
}

fn each(sets: &[Set]) -> Result<String> {
    let mut text = "## Each job\n\nUtilization; for `lake` also milliseconds once, the share of later steps, and driver \
                    calls in the last step.\n\n"
        .to_owned();
    for set in sets {
        let heading = ["job", "expandable", "gmlake", "lake", "once, ms", "later, %", "last step"];
        let mut table = Table::new(&heading);
        let (expandable, gmlake) = (costs(set, ("expandable", ""))?, costs(set, ("gmlake", ""))?);
        for (place, (job, cost)) in set.jobs.iter().zip(costs(set, ("lake", ""))?).enumerate() {
            table.row(&[
                job.name.clone(),
                format!("{:.4}", expandable[place].utilization),
                format!("{:.4}", gmlake[place].utilization),
                format!("{:.4}", cost.utilization),
                format!("{:.0}", cost.once_ms),
                cost.later_percent.map_or("-".to_owned(), |percent| format!("{percent:.3}")),
                cost.last_calls.to_string(),
            ]);
        }
        text += &format!("### {}\n\n{}", set.title, table.text());
    }
    Ok(text)
}

/// The smallest devices on which a whole trace runs, to a thousandth of what is live, and the driver time there.
fn smallest(job: &Job) -> Result<Vec<String>> {
    let settings = [("caching", ""), ("expandable", ""), ("gmlake", ""), ("lake", "")];
    let allocators = settings.map(choice).into_iter().collect::<Result<_>>()?;
    let live = measure(&job.opened, ("bound", ""), H200)?.active_peak_bytes;
    let options = PlanOptions {
        choices: Choices { allocators, ..Choices::default() },
        targets: Vec::new(),
        resolution: (live / 1000).next_multiple_of(GRANULE),
    };
    let mut cells = vec![job.name.clone(), gib(live)];
    for (need, setting) in plan(&job.opened, &options)?.needs.iter().zip(settings) {
        let trial =
            need.smallest.with_context(|| format!("{}: {setting:?} never runs", job.name))?;
        let run = measure(&job.opened, setting, trial.capacity_bytes)?;
        cells.push(format!("{}, {:.0} ms", gib(trial.capacity_bytes), driver_ms(&run)));
    }
    Ok(cells)
}

fn capacities(sets: &[Set]) -> Result<String> {
    let mut table = Table::new(&["recording", "live", "caching", "expandable", "gmlake", "lake"]);
    let recordings = sets.iter().filter(|set| set.title.starts_with("Recordings"));
    let jobs: Vec<&Job> = recordings.flat_map(|set| &set.jobs).collect();
    let rows: Result<Vec<_>> = jobs.into_par_iter().map(smallest).collect();
    rows?.iter().for_each(|cells| table.row(cells));
    Ok(format!(
        "## The smallest device that will do\n\nGiB, as `gmlake-sim plan` finds it, to 0.1 % of what is live, and the \
         driver time there.\n\n{}",
        table.text()
    ))
}

pub(crate) fn report(traces: &Traces) -> Result<String> {
    let (long, sets): (Vec<_>, Vec<_>) =
        sets(traces)?.into_iter().partition(|set| set.title == LONG);
    let all = ["caching", "expandable", "gmlake-released", "gmlake", "lake"].map(|name| (name, ""));
    let sizes = ["handle=2MiB", "handle=4MiB", "", "handle=16MiB", "handle=32MiB", "handle=64MiB"];
    let parts = ["", "repeat=off", "waits=off", "slack=0", "slack=0.01"];
    let parts = [
        table(&sets, "All allocators", &all)?,
        long.first().map_or(Ok(String::new()), for_ever)?,
        table(&sets, "The frontier: sizes of handles", &sizes.map(|size| ("lake", size)))?,
        table(&sets, "What each part brings", &parts.map(|part| ("lake", part)))?,
        capacities(&sets)?,
        each(&sets)?,
    ];
    Ok(format!("{HEAD}\n{}", parts.join("\n")))
}
