//! Events per second of every allocator, side by side, and load times:
//! `cargo bench --bench events [-- TRACE... ALLOCATOR...]`.
//!
//! Without traces on the command line, those of `traces/` are loaded, and one of them is replayed; without allocators,
//! all but those on request take part, the paper's with its fragmentation limit at 2 MiB too, where it stitches most.
//! Each trace goes through all allocators in turn, several rounds, so that a slow moment of the machine hits all of
//! them alike; the best round counts. Only the event loop is timed: bare, and as `compare` runs it, with all that it
//! measures.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gmlake::allocator::{ALL, Environment, Options, Spec};
use gmlake::device::{Counted, SimDevice, Watched};
use gmlake::drive::{OnOom, Replay};
use gmlake::sim::{self, Choice, Memory, Opened, Setup};
use gmlake::trace::synthetic::Program;
use gmlake::trace::{Labels, LoadOptions, Trace, choose_device, ingest, load};
use gmlake::units::{GIB, Size};

const ROUNDS: usize = 7;
const EVENTS: usize = 300_000;
/// 311,534 recorded entries of a fine-tuning run with sequences of varying length.
const REPLAYED: &str = "opt-1.3b-LR-var.pickle.xz";

/// What takes part: an allocator with one option set, or none.
#[derive(Clone, Copy)]
struct Row {
    spec: &'static Spec,
    option: Option<(&'static str, &'static str)>,
}

/// One run: the time of the bare event loop and of that of `compare`, driver calls, and the reserved peak.
struct Run {
    time: Duration,
    compared: Duration,
    calls: u64,
    reserved: u64,
}

fn main() {
    // Cargo itself adds options such as `--bench`.
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let (names, given): (Vec<String>, Vec<String>) =
        words.partition(|word| ALL.iter().any(|spec| spec.name == word.as_str()));
    let given: Vec<PathBuf> = given.into_iter().map(PathBuf::from).collect();
    let rows = rows(&names);
    let paths = if given.is_empty() { shipped() } else { given.clone() };
    let mut chosen = Vec::new();
    println!("{:44} {:>10} {:>10} {:>10}", "load, best of 3", "events", "ms", "ns/event");
    for path in paths {
        let (time, trace) =
            (0..3).map(|_| timed_load(&path)).min_by_key(|run| run.0).expect("3 runs");
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (events, ns) = (trace.events.len(), time.as_nanos() as f64);
        println!("{name:44} {events:>10} {:>10.1} {:>10.1}", ns / 1e6, ns / events.max(1) as f64);
        if !given.is_empty() || name == REPLAYED {
            chosen.push((name, trace));
        }
    }
    for (name, trace) in &chosen {
        report(&rows, name, trace);
        report(&rows, &format!("{name}, ten times in a row"), &trace.repeated(10));
    }
    for program in Program::ALL {
        report(
            &rows,
            &format!("{program:?}, made up").to_lowercase(),
            &program.generate(1, EVENTS),
        );
    }
}

/// The allocators with these names, or all.
fn rows(names: &[String]) -> Vec<Row> {
    let mut rows = Vec::new();
    for spec in ALL.iter().filter(|spec| match names {
        [] => spec.role.is_default(),
        _ => names.iter().any(|name| name == spec.name),
    }) {
        rows.push(Row { spec, option: None });
        if spec.name == "gmlake" {
            rows.push(Row { spec, option: Some(("fragment_limit", "128MiB")) });
        }
    }
    rows
}

/// The traces that come with the repository, in order of their names.
fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".pickle.xz"));
    paths.sort();
    paths
}

/// From the file to the events, decompression included.
fn timed_load(path: &Path) -> (Duration, Trace) {
    let start = Instant::now();
    let records = load(path, &LoadOptions::default()).expect("a trace that can be read");
    let records = choose_device(records, None, path).expect("a trace of one device");
    let trace = ingest(&records, &Labels::default());
    (start.elapsed(), trace)
}

fn report(rows: &[Row], name: &str, trace: &Trace) {
    let events = trace.events.len();
    let opened = Opened { trace: trace.clone(), ..Opened::default() };
    println!("\n{name}: {events} events, best of {ROUNDS}");
    println!(
        "{:16} {:>10} {:>12} {:>12} {:>12}",
        "", "ns/event", "in compare", "calls", "reserved"
    );
    let mut best: Vec<Option<Run>> = rows.iter().map(|_| None).collect();
    for _ in 0..ROUNDS {
        for (row, best) in rows.iter().zip(&mut best) {
            let run = run(row, &opened);
            let (time, compared) = (run.time, run.compared);
            let best = best.get_or_insert(run);
            (best.time, best.compared) = (best.time.min(time), best.compared.min(compared));
        }
    }
    for (row, run) in rows.iter().zip(best) {
        let Run { time, compared, calls, reserved } = run.expect("there was a round");
        let [bare, compared] = [time, compared].map(|time| time.as_nanos() as f64 / events as f64);
        let (label, reserved) = (row.label(), Size(reserved).to_string());
        println!("{label:16} {bare:>10.1} {compared:>12.1} {calls:>12} {reserved:>12}");
    }
}

impl Row {
    fn label(&self) -> String {
        let value = self.option.map_or(String::new(), |(_, value)| format!(" {value}"));
        format!("{}{value}", self.spec.name)
    }
}

fn run(row: &Row, opened: &Opened) -> Run {
    let trace = &opened.trace;
    let total_memory = 1024 * GIB;
    let conf = trace.settings.clone().unwrap_or_default();
    let environment = Environment { total_memory, ..Environment::new(conf) };
    let mut options = Options::default();
    if let Some((name, value)) = row.option {
        options.set(name, value);
    }
    let mut allocator = row.spec.build(&options, &environment).expect("the options are valid");
    let mut gpu = Watched::new(SimDevice::new(total_memory), Counted::default());
    let mut replay = Replay::new(trace, OnOom::Skip);
    let start = Instant::now();
    let result = replay.advance(0..trace.events.len(), &mut *allocator, &mut gpu, &mut ());
    let time = start.elapsed();
    let _ = result.expect("the simulated driver does not fail");
    let choice = Choice { spec: row.spec, options };
    let setup = Setup { memory: Memory::Bytes(total_memory), ..Setup::default() };
    let compared = sim::run(opened, &choice, &setup).expect("the simulated driver does not fail");
    let compared = Duration::from_nanos(compared.host_ns.expect("it ran now"));
    Run { time, compared, calls: gpu.watch.calls.total(), reserved: allocator.peak().reserved }
}
