//! Events per second of every allocator, side by side: `cargo bench --bench events [-- TRACE...]`.
//!
//! Each trace goes through all allocators in turn, several rounds, so that a slow moment of the machine hits all of
//! them alike; the best round counts. Only the event loop is timed.

use std::time::{Duration, Instant};

use gmlake::alloc_conf::TorchVersion;
use gmlake::allocator::{ALL, Environment, Options, Spec};
use gmlake::device::{Counted, SimDevice};
use gmlake::drive::{OnOom, Replay};
use gmlake::trace::Trace;
use gmlake::trace::synthetic::Program;
use gmlake::units::{GIB, Size};

const ROUNDS: usize = 7;
const EVENTS: usize = 300_000;

/// One run: the time of the event loop, driver calls, and the reserved peak.
struct Run {
    time: Duration,
    calls: u64,
    reserved: u64,
}

fn main() {
    for program in Program::ALL {
        report(&format!("{program:?}, made up").to_lowercase(), &program.generate(1, EVENTS));
    }
}

fn report(name: &str, trace: &Trace) {
    let events = trace.events.len();
    println!("\n{name}: {events} events, best of {ROUNDS}");
    println!("{:16} {:>10} {:>12} {:>12} {:>12}", "", "ns/event", "Mevents/s", "calls", "reserved");
    let mut best: Vec<Option<Run>> = ALL.iter().map(|_| None).collect();
    for _ in 0..ROUNDS {
        for (spec, best) in ALL.iter().zip(&mut best) {
            let run = run(spec, trace);
            if best.as_ref().is_none_or(|best| run.time < best.time) {
                *best = Some(run);
            }
        }
    }
    for (spec, run) in ALL.iter().zip(best) {
        let Run { time, calls, reserved } = run.expect("there was a round");
        let ns = time.as_nanos() as f64 / events as f64;
        let rate = 1e3 / ns;
        let reserved = Size(reserved).to_string();
        println!("{:16} {ns:>10.1} {rate:>12.2} {calls:>12} {reserved:>12}", spec.name);
    }
}

fn run(spec: &Spec, trace: &Trace) -> Run {
    let total_memory = 1024 * GIB;
    let environment = Environment {
        conf: trace.settings.clone().unwrap_or_default(),
        version: TorchVersion::V2_11,
        total_memory,
        memory_fraction: None,
        limit: None,
    };
    let mut allocator = spec.build(&Options::default(), &environment).expect("defaults are valid");
    let mut gpu = Counted::new(SimDevice::new(total_memory));
    let mut replay = Replay::new(trace, OnOom::Skip);
    let start = Instant::now();
    let result = replay.advance(0..trace.events.len(), &mut *allocator, &mut gpu, &mut ());
    let time = start.elapsed();
    let _ = result.expect("the simulated driver does not fail");
    Run { time, calls: gpu.calls.total(), reserved: allocator.peak().reserved }
}
