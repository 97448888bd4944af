//! `calibrate`: what the memory calls of this GPU cost, next to the paper's.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use gmlake::cuda::Gpu;
use gmlake::replay::calibrate::{self, Calibration, Probe, Sample, call_times};
use gmlake::replay::chart::write_building;
use gmlake::replay::{
    LATENCY_TOTALS, PAPER_TABLE_1, building, latency, latency_chunks, native_latency, table_1,
};
use gmlake::report::{Export, ImageFormat, write_answer};
use gmlake::units::{Bytes, Size};

use crate::args::CalibrateArgs;
use crate::prices;
use crate::show::{Screen, nanos};

/// Whether it ran to its end.
pub(crate) fn calibrate(args: &CalibrateArgs, stop: &AtomicBool) -> Result<bool> {
    let (format, files) = open(args)?;
    let written = [&args.out, &args.export_json, &args.call_times];
    let screen = Screen::beside(written.map(Option::as_deref));
    let gpu = Gpu::open(args.device)?;
    screen.say(&format!("GPU {}: {}, driver for CUDA {}\n", gpu.index, gpu.name, gpu.cuda))?;
    let budget = Duration::from_secs_f64(args.seconds);
    let found = calibrate::calibrate(&gpu, &args.name, budget, stop)?;
    write(files, format, &found)?;
    prices::show(&screen, &found.profile, &found.rare, found.observed)?;
    paper_table(&screen, &found.samples, found.rounds)?;
    latencies(&screen, &found.samples)?;
    busy(&screen, &found.samples)?;
    probes(&screen, &found)?;
    if let Some(reason) = &found.stopped {
        screen.say(&format!("stopped early: {reason}"))?;
    }
    Ok(found.stopped.is_none())
}

/// What is to be written, each only when it is complete: the picture, the profile, the measurements, and the calls.
type Files = [Option<Export>; 4];

fn open(args: &CalibrateArgs) -> Result<(Option<ImageFormat>, Files)> {
    let format = args.export_plot.as_deref().map(ImageFormat::of).transpose()?;
    let open = |path: &Option<PathBuf>| path.as_deref().map(Export::open).transpose();
    let (picture, profile) = (open(&args.export_plot)?, open(&args.out)?);
    Ok((format, [picture, profile, open(&args.export_json)?, open(&args.call_times)?]))
}

fn write(files: Files, format: Option<ImageFormat>, found: &Calibration) -> Result<()> {
    let [picture, profile, measurements, times] = files;
    profile.map_or(Ok(()), |file| file.finish_json(&found.profile))?;
    if let Some(file) = measurements {
        file.finish(|out| Ok(write_answer("calibrate", found, out)?))?;
    }
    if let Some((file, format)) = picture.zip(format) {
        file.finish(|out| Ok(write_building(&building(found), format, out)?))?;
    }
    if let Some(file) = times {
        file.finish(|out| Ok(call_times::write(&found.programs, out)?))?;
    }
    Ok(())
}

/// The paper's Table 1 next to ours.
fn paper_table(screen: &Screen, samples: &[Sample], rounds: u64) -> io::Result<()> {
    let Some(here) = table_1(samples) else {
        return screen.say("Table 1 of the paper: left out, it needs 8 GiB of free memory\n");
    };
    screen.say(&format!(
        "Time to build 2 GiB out of chunks, in units of one cuMemAlloc: medians of {rounds} rounds on an \
         idle GPU, next to Table 1 of the paper (A100, CUDA 11.4)"
    ))?;
    let heading = ["call", "2 MiB", "paper", "128 MiB", "paper", "1024 MiB", "paper"];
    let mut rows = Vec::new();
    for (ours, theirs) in here.iter().zip(PAPER_TABLE_1) {
        let mut cells = vec![ours.call.to_owned()];
        for (here, there) in ours.ratios.iter().zip(theirs.ratios) {
            cells.extend([format!("{here:.3}"), there.to_string()]);
        }
        rows.push(cells);
    }
    screen.table(&heading, rows)
}

/// The paper's latency figure; of its values the text only gives "over 100 times" for chunks of 2 MiB.
fn latencies(screen: &Screen, samples: &[Sample]) -> io::Result<()> {
    screen.say("Time to build a block out of chunks, and as a multiple of one cuMemAlloc")?;
    screen.say("(the paper: over 100 cuMemAllocs with chunks of 2 MiB)")?;
    let cells = |name: &str, cell: &dyn Fn(Bytes) -> Option<String>| {
        let cells = LATENCY_TOTALS.iter().map(|&total| cell(total).unwrap_or("-".to_owned()));
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
    };
    let heading = cells("chunk", &|total| Some(Size(total).to_string()));
    let mut rows = vec![cells("cuMemAlloc", &|total| native_latency(samples, total).map(nanos))];
    rows.extend(latency_chunks().into_iter().map(|chunk| {
        cells(&Size(chunk).to_string(), &|total| {
            let time = latency(samples, total, chunk)?;
            let times = native_latency(samples, total).map(|one| time as f64 / one as f64);
            let times = times.map_or(String::new(), |times| format!("  {times:.1}x"));
            Some(nanos(time) + &times)
        })
    }));
    screen.table(&heading, rows)
}

/// Calls that were also measured while the queue was full.
fn busy(screen: &Screen, samples: &[Sample]) -> io::Result<()> {
    screen.say("Time of calls while 8 ms of work or more is queued on the GPU")?;
    let mut rows = Vec::new();
    for loaded in samples.iter().filter(|sample| sample.busy) {
        let is_same = |sample: &&Sample| {
            !sample.busy
                && (sample.call, sample.handles, sample.size, sample.chunk)
                    == (loaded.call, loaded.handles, loaded.size, loaded.chunk)
        };
        let idle = samples.iter().find(is_same).map_or("-".to_owned(), |s| nanos(s.p50_ns));
        rows.push(vec![
            loaded.call.to_owned(),
            loaded.handles.to_string(),
            Size(loaded.size).to_string(),
            idle,
            nanos(loaded.p50_ns),
            nanos(loaded.p90_ns),
        ]);
    }
    screen.table(&["call", "handles", "size", "idle", "busy", "p90"], rows)
}

fn probes(screen: &Screen, found: &Calibration) -> io::Result<()> {
    let row = |probe: &Probe| {
        let note = if probe.as_expected { "" } else { "differs from the model" };
        [probe.question, &probe.answer, note].map(str::to_owned).to_vec()
    };
    let rows = found.probes.iter().map(row).collect();
    screen.table(&["check of the driver", "answer", ""], rows)
}
