//! `run`: traces through allocators, one after another.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gmlake::cuda::{Coverage, Gpu};
use gmlake::device::Profile;
use gmlake::replay::{Pace, Plan, ReplaySummary, replay, scaled};
use gmlake::report::write_answer;
use gmlake::sim::{self, Choice, choose_with};
use gmlake::trace::{LoadOptions, Trace};

use crate::args::{RunArgs, Speed, Verify};
use crate::{show, times};

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
    let mut json = create(args.export_json.as_deref())?;
    let mut log = create(args.call_log.as_deref())?;
    let mut call_times = times::create(args.call_times.as_deref())?;
    let mut summaries: Vec<ReplaySummary> = Vec::new();
    let mut is_clean = true;
    for file in &args.files {
        let trace = open(file, args)?;
        let first = summaries.len();
        for choice in &choices {
            let runs = repeat(&trace, choice, &plan, args.repeat, stop);
            let runs = runs.with_context(|| format!("{}: {}", file.display(), choice.spec.name))?;
            is_clean &= runs.len() == args.repeat as usize;
            let Some(mut summary) = ReplaySummary::median(runs) else { break };
            summary.file = file.display().to_string();
            is_clean &= summary.is_clean();
            if let Some(log) = &mut log {
                write_log(log, &summary)?;
            }
            if let Some(file) = &mut call_times {
                times::write(file, &summary.file, &summary.allocator, &summary.observations)?;
            }
            show::run(&summary)?;
            (summary.log, summary.observations) = Default::default();
            summaries.push(summary);
            if let Some(json) = &mut json {
                write_json(json, &summaries)?;
            }
        }
        show::overview(&summaries[first..])?;
    }
    Ok(is_clean)
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
        eprintln!("gmlake-replay: {}: {warning}", path.display());
    }
    let is_whole = args.scale == 1.0;
    Ok(if is_whole { opened.trace } else { scaled(&opened.trace, args.scale) })
}

/// A file is opened before anything runs, so that a wrong path costs nothing.
fn create(path: Option<&Path>) -> Result<Option<File>> {
    let open =
        |path| File::create(path).with_context(|| format!("cannot write {}", Path::display(path)));
    path.map(open).transpose()
}

/// All results so far, in place of those of before: what is on disk is always whole.
fn write_json(file: &mut File, summaries: &[ReplaySummary]) -> Result<()> {
    use std::io::Seek;
    file.rewind()?;
    file.set_len(0)?;
    let mut out = BufWriter::new(file);
    write_answer("run", summaries, &mut out)?;
    out.flush()?;
    Ok(())
}

fn write_log(file: &mut File, summary: &ReplaySummary) -> Result<()> {
    let mut out = BufWriter::new(file);
    writeln!(out, "# {} {}", summary.file, summary.allocator)?;
    for entry in &summary.log.entries {
        writeln!(out, "{entry}")?;
    }
    out.flush()?;
    Ok(())
}
