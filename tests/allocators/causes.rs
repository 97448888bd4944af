//! Causes of reserved memory at the peak: they add up to the byte, for every allocator on every shipped trace.

use std::path::Path;

use crate::common::recordings;
use gmlake::allocator::{BlockKind, BlockUse, find};
use gmlake::compare::{Comparison, compare};
use gmlake::run::{Cause, Peak, RunSummary};
use gmlake::sim::{Choices, Memory, Opened, Setup, choose, open};
use gmlake::trace::LoadOptions;
use gmlake::units::{Bytes, GIB};
use rayon::prelude::*;

fn choices(allocators: &[&str], memory: Memory) -> Choices {
    let names: Vec<String> = allocators.iter().map(|&name| name.to_owned()).collect();
    let setup = Setup { memory, ..Setup::default() };
    let allocators = choose(&names, &[]).expect("we have these allocators");
    Choices { allocators, setup, has_peaks: true, ..Choices::default() }
}

fn peaks(comparison: &Comparison) -> impl Iterator<Item = (&RunSummary, &Peak)> {
    let simulated = comparison.runs.iter().filter(|run| find(&run.allocator).is_some());
    assert_eq!(simulated.count(), comparison.peaks.len(), "every peak was asked for");
    comparison.peaks.iter().map(|(&place, peak)| (&comparison.runs[place], &**peak))
}

fn sum(peak: &Peak, keep: impl Fn(BlockUse, BlockKind) -> bool) -> Bytes {
    let kept = peak.blocks.iter().filter(|block| keep(block.view.state, block.view.kind));
    kept.map(|block| block.view.size).sum()
}

fn check(what: &str, run: &RunSummary, peak: &Peak) {
    let what = format!("{what}, {}", run.allocator);
    let usage = peak.usage;
    assert_eq!(peak.causes.total(), usage.reserved - usage.requested, "{what}: causes");
    assert_eq!(sum(peak, |state, _| state != BlockUse::Alias), usage.reserved, "{what}: blocks");
    assert_eq!(sum(peak, |_, kind| kind != BlockKind::Stitched), usage.reserved, "{what}: memory");
    let most = run.timeline.peak().map_or(0, |(_, reserved)| reserved);
    assert_eq!(usage.reserved, most, "{what}: the second pass stops at the peak of the first");
    assert_eq!(usage.reserved, run.reserved_peak_bytes, "{what}: peak");
    for block in &peak.blocks {
        let is_live = matches!(block.view.state, BlockUse::Allocated | BlockUse::Pending);
        assert_eq!(block.since.is_some(), is_live, "{what}: {block:?}");
        let (Some(since), Some(peak)) = (block.since, peak.moment) else { continue };
        assert!(since.event <= peak.event, "{what}: {block:?}");
    }
}

fn opened(path: &Path) -> Opened {
    open(path, &LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn varied_lengths() -> Opened {
    opened(&Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/opt-1.3b-LR-var.pickle.xz"))
}

#[test]
fn causes_add_up_on_every_trace_for_every_allocator() {
    let paths: Vec<_> = recordings::all().into_values().collect();
    assert!(paths.len() >= 15, "the recordings of traces/ are missing");
    paths.par_iter().for_each(|path| {
        let (opened, name) = (opened(path), path.display().to_string());
        let all = compare(&opened, &choices(&[], Memory::AsRecorded)).expect("it runs");
        for (run, peak) in peaks(&all) {
            check(&name, run, peak);
        }
    });
}

#[test]
fn causes_add_up_where_memory_runs_out() {
    let opened = varied_lengths();
    let small = compare(&opened, &choices(&[], Memory::Bytes(20 * GIB))).expect("it runs");
    assert!(small.runs.iter().filter(|run| run.oom_count > 0).count() >= 5);
    for (run, peak) in peaks(&small) {
        check("20 GiB", run, peak);
    }
}

#[test]
fn the_causes_are_those_that_one_knows_of() {
    let opened = varied_lengths();
    let all = compare(&opened, &choices(&[], Memory::AsRecorded)).expect("it runs");
    let share = |allocator: &str, cause: Cause| {
        let (_, peak) = peaks(&all).find(|(run, _)| run.allocator == allocator).unwrap();
        peak.causes.bytes(cause) as f64 / peak.usage.reserved as f64
    };
    for cause in Cause::ALL {
        assert_eq!(share("bound", cause), 0.0, "a bound wastes nothing: {cause:?}");
        let is_rounding = cause == Cause::Rounding;
        assert!(is_rounding || share("vmm", cause) == 0.0, "vmm keeps nothing free: {cause:?}");
    }
    assert!(share("vmm", Cause::Rounding) > 0.01);
    // The caching allocator strands whole segments, expandable segments only have holes.
    assert!(share("caching", Cause::TooSmall) > 0.1);
    assert!(share("expandable", Cause::TooSmall) < 0.01);
    assert!(share("expandable", Cause::Remainder) > 0.1);
}
