//! `run`: traces through allocators, one after another.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gmlake::cuda::{Coverage, Gpu};
use gmlake::device::Profile;
use gmlake::remote;
use gmlake::replay::{Pace, Plan, ReplaySummary, replay, scaled};
use gmlake::sim::{self, Choice, choose_with};
use gmlake::trace::{LoadOptions, Trace};

use crate::args::{RunArgs, Speed, Verify};
use crate::outputs::{Calls, Json};
use crate::show::{self, Screen};

/// Whether everything was as it should be.
pub(crate) fn run(args: &RunArgs, stop: &AtomicBool) -> Result<bool> {
    if args.files.is_empty() {
        bail!("nothing to replay: name a FILE");
    }
    let plug_ins = args.plugin.iter().map(|file| gmlake::plugin::load(file));
    let plug_ins = plug_ins.collect::<Result<Vec<_>, _>>()?;
    let choices = choose_with(&plug_ins, &args.allocators, &args.options)?;
    let plan = plan(args)?;
    // A missing GPU is reported before anything is read.
    drop(Gpu::open(args.device)?);
    let json = args.export_json.as_deref().map(Json::open).transpose()?;
    let mut runs = Runs { args, choices, plan, stop, json, done: Vec::new() };
    let (log, times) = (args.call_log.as_deref(), args.call_times.as_deref());
    let answer = Calls::collect(log, times, |calls| runs.all(calls));
    if let Some(json) = runs.json {
        json.finish(&runs.done)?;
    }
    answer
}

/// The runs of a command line, and what came of them.
struct Runs<'a> {
    args: &'a RunArgs,
    choices: Vec<Choice>,
    plan: Plan,
    stop: &'a AtomicBool,
    json: Option<Json>,
    done: Vec<ReplaySummary>,
}

impl Runs<'_> {
    /// Every file on every allocator; whether everything was as it should be.
    fn all(&mut self, calls: &mut Calls<'_>) -> Result<bool> {
        let args = self.args;
        let written = [&args.export_json, &args.call_log, &args.call_times];
        let screen = Screen::beside(written.map(Option::as_deref));
        let mut is_clean = true;
        for file in &args.files {
            let trace = open(file, args)?;
            let first = self.done.len();
            for choice in &self.choices {
                let runs = repeat(&trace, choice, &self.plan, args.repeat, self.stop);
                let place = || format!("{}: {}", remote::shown(file), choice.spec.name);
                let runs = runs.with_context(place)?;
                is_clean &= runs.len() == args.repeat as usize;
                let Some(mut summary) = ReplaySummary::median(runs) else { break };
                summary.file = remote::shown(file);
                is_clean &= summary.is_clean();
                calls.write(&summary)?;
                show::run(&screen, &summary)?;
                (summary.log, summary.observations) = Default::default();
                self.done.push(summary);
                self.json.as_ref().map_or(Ok(()), |json| json.update(&self.done))?;
            }
            show::overview(&screen, &self.done[first..])?;
        }
        Ok(is_clean)
    }
}

/// The same run again and again, until the user has had enough.
fn repeat(
    trace: &Trace,
    choice: &Choice,
    plan: &Plan,
    times: u32,
    stop: &AtomicBool,
) -> Result<Vec<ReplaySummary>> {
    let mut runs = Vec::new();
    for _ in 0..times {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        runs.push(replay(trace, choice, plan, stop)?);
    }
    Ok(runs)
}

fn plan(args: &RunArgs) -> Result<Plan> {
    let profile = Profile::open(&args.profile)?;
    Ok(Plan {
        device: args.device,
        pace: match args.speed {
            Speed::AsRecorded => Pace::AsRecorded,
            Speed::Max => Pace::Max,
        },
        verify: match args.verify {
            Verify::None => None,
            Verify::Sample => Some(Coverage::Sample),
            Verify::All => Some(Coverage::All),
        },
        background: Duration::from_secs_f64(args.background_load / 1e3),
        limit: args.max_seconds.map(Duration::from_secs_f64),
        keep_times: args.call_times.is_some(),
        profile,
    })
}

/// Reads a trace; what its entries leave open is found by replaying the recording.
fn open(path: &Path, args: &RunArgs) -> Result<Trace> {
    let options = LoadOptions {
        device: args.trace_device,
        snapshot: args.snapshot,
        ..LoadOptions::default()
    };
    let opened = sim::open(path, &options)?;
    for warning in &opened.trace.warnings {
        show::complain(&format!("{}: {warning}", remote::shown(path)));
    }
    let is_whole = args.scale == 1.0;
    Ok(if is_whole { opened.trace } else { scaled(&opened.trace, args.scale) })
}
