//! The real recordings, read and compared with what PyTorch counted.

use std::path::Path;
use std::time::Instant;

use crate::common::recordings;
use gmlake::trace::{Action, Labels, LoadOptions, Records, Trace, choose_device, ingest, load};
use serde_json::Value;

fn read(path: &Path) -> (Records, Value) {
    let records = load(path, &LoadOptions::default()).expect("a good recording");
    let stats = path.to_string_lossy().replace(".pickle.xz", ".stats.json");
    let stats = std::fs::read(stats).expect("the truth lies next to it");
    let stats = serde_json::from_slice(&stats).expect("JSON");
    (choose_device(records, None, path).expect("one device"), stats)
}

/// The number of `alloc` entries is PyTorch's own counter, unless the recording is a part.
#[test]
fn every_recording_has_the_allocations_that_pytorch_counted() {
    for (name, path) in recordings::all() {
        let start = Instant::now();
        let (records, stats) = read(&path);
        let took = start.elapsed();
        let allocs = records.entries.iter().filter(|e| e.action == Action::Alloc).count() as u64;
        let counted = stats["stats"]["allocation.all.allocated"].as_u64().unwrap();
        eprintln!("{name}: {} entries, {allocs} allocs, {took:.0?}", records.entries.len());
        let is_partial = name.contains("late") || name.contains("ring");
        assert!(allocs == counted || is_partial && allocs < counted, "{name}");
        let held: u64 = records.segments.iter().map(|segment| segment.size).sum();
        assert_eq!(Some(held), stats["stats"]["reserved_bytes.all.current"].as_u64(), "{name}");
        assert!(records.warnings.is_empty(), "{:?}", records.warnings);
    }
}

/// The recording script noted when each step began: what we take for a step's beginning must be one, and nearly all
/// must be found. Without the annotations repetition is all there is to go by, which tells the length of a step, but
/// less well where it begins.
#[test]
fn steps_are_where_the_program_was() {
    let mut found_without = 0;
    for (name, path) in recordings::all() {
        let (mut records, stats) = read(&path);
        let Some(truth) = stats["step_start_us"].as_array() else { continue };
        let origin = records.entries[0].time_us;
        let since = |us: &Value| us.as_u64().unwrap().saturating_sub(origin);
        let truth: Vec<u64> = truth.iter().map(since).collect();
        let annotated = ingest(&records, &Labels::default());
        check_steps(&annotated, &truth, 10, &name);
        records.annotations.clear();
        let repeated = ingest(&records, &Labels::default());
        check_steps(&repeated, &truth, 4, &format!("{name} without annotations"));
        found_without += usize::from(repeated.steps.len() > 2);
    }
    assert!(found_without >= 5, "repetition was found in {found_without} traces only");
}

/// Compares by events, not by time: the program runs ahead of the GPU and waits for it between two steps.
/// A beginning may be off by one part in `parts` of a step.
fn check_steps(trace: &Trace, truth: &[u64], parts: usize, name: &str) {
    let event_at = |us: u64| trace.times_us.partition_point(|&at| at < us);
    let truth: Vec<usize> = truth.iter().map(|&us| event_at(us)).filter(|&at| at > 0).collect();
    let steps = &trace.steps;
    let starts: Vec<usize> = steps.iter().map(|step| step.start).filter(|&at| at > 0).collect();
    eprintln!("{name}: {} steps, {} found", truth.len(), steps.len());
    assert!(steps.windows(2).all(|pair| pair[0].end <= pair[1].start), "{name}: {steps:?}");
    assert!(steps.iter().all(|step| step.start < step.end), "{name}: {steps:?}");
    for start in &starts {
        let distance = truth.iter().map(|at| at.abs_diff(*start)).min().unwrap_or(0);
        let length = truth.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(usize::MAX);
        assert!(distance <= length / parts, "{name}: {start} is no beginning; {truth:?}");
    }
    assert!(steps.is_empty() || starts.len() + 2 >= truth.len(), "{name}: {steps:?}, {truth:?}");
}
