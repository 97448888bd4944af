//! Data that the page's charts are drawn from: one JSON object for each file, long rows of numbers encoded.

use std::sync::Arc;

use serde_json::{Value, json};

use super::encode::{Numbers, ranges};
use super::lives::Lives;
use crate::allocator::{BlockKind, BlockUse};
use crate::compare::Comparison;
use crate::run::{Moment, Peak, PeakBlock, RECORDED, RunSummary, StepSummary, Timeline};
use crate::simulation::Range;
use crate::units::{Bytes, Grouped, Nanos, Size};

/// Everything that the charts of one file show. The axis is in microseconds if `has_times`, else in events.
pub(super) fn file(comparison: &Comparison, lives: Option<Lives>) -> Value {
    let has_times = comparison.span_us > 0;
    let place = |moment: &Moment| if has_times { moment.time_us } else { moment.event };
    let steps: Vec<u64> = comparison.step_starts.iter().map(place).collect();
    let empty = Timeline::default();
    let in_use = comparison.in_use().map_or(&empty, |run| &run.timeline);
    let runs = comparison.runs.iter().enumerate();
    let runs = runs.map(|(place, one)| run(one, comparison.peaks.get(&place), has_times));
    json!({
        "title": comparison.title(),
        "has_times": has_times,
        "end": if has_times { comparison.span_us } else { comparison.events() },
        "steps": steps,
        "device_memory": comparison.device_memory,
        "active": series(in_use, |range| (range.low.active, range.high.active)),
        "runs": runs.collect::<Vec<_>>(),
        "lives": lives,
        "card": comparison.card,
    })
}

/// A timeline: `count` buckets of `width`, of an axis that ends at `end`.
fn series(timeline: &Timeline, value: impl Fn(&Range) -> (Bytes, Bytes)) -> Value {
    let Timeline { width, end, buckets, .. } = timeline;
    let data = ranges(buckets, value);
    json!({ "width": width, "end": end, "count": buckets.len(), "data": data })
}

fn run(run: &RunSummary, at_peak: Option<&Arc<Peak>>, has_times: bool) -> Value {
    let driver = run.prices.as_ref().filter(|_| !run.is_bound());
    json!({
        "label": run.label(),
        "kind": kind(run),
        "reserved": run.reserved_peak_bytes,
        // What stands before it.
        "sign": run.certainty.sign(),
        "ooms": run.oom_count,
        "first_oom": if has_times { run.first_oom_us } else { run.first_oom_event },
        "peak_at": run.timeline.peak().map_or(0, |(at, _)| at),
        "series": series(&run.timeline, |range| (range.low.reserved, range.high.reserved)),
        "driver": driver.map(|prices| prices.predicted_driver_ns),
        "steps": run.steps.iter().map(step).collect::<Vec<_>>(),
        "converged": run.converged_after_step,
        "peak": at_peak.map(|at_peak| peak(at_peak, run, has_times)),
    })
}

/// What the page treats a run as.
fn kind(run: &RunSummary) -> &'static str {
    match run {
        _ if run.allocator == RECORDED => "recorded",
        _ if run.is_bound() => "bound",
        _ if run.is_choice() => "choice",
        _ => "plain",
    }
}

fn step(step: &StepSummary) -> Value {
    let created = step.allocator_counters.iter().find(|(name, _)| name == "sblocks_created");
    json!({
        "calls": step.device_calls.total(),
        "sblocks": created.map_or(0, |&(_, count)| count),
        "ns": step.predicted_driver_ns.map(|nanos| nanos.total),
    })
}

fn peak(peak: &Peak, run: &RunSummary, has_times: bool) -> Value {
    let place = |moment: &Moment| if has_times { moment.time_us } else { moment.event };
    let now = peak.moment.as_ref().map_or(0, place);
    let age = |block: &PeakBlock| block.since.as_ref().map_or(0, |at| now.abs_diff(place(at)));
    let is_pending = |block: &&PeakBlock| block.view.state == BlockUse::Pending;
    let pending = peak.blocks.iter().filter(is_pending).map(|block| block.view.requested);
    let is_drawn = !run.is_bound();
    json!({
        // The request that forced the growth.
        "words": words(peak, run, has_times),
        "requested": peak.usage.requested,
        "reserved": peak.usage.reserved,
        "pending": pending.sum::<Bytes>(),
        "causes": peak.causes.rows().map(|(_, bytes)| bytes).collect::<Vec<_>>(),
        "memory": if is_drawn { memory(&peak.blocks, &age) } else { String::new() },
        "stitched": stitched(&peak.blocks, &age),
    })
}

/// When it was, and what for.
fn words(peak: &Peak, run: &RunSummary, has_times: bool) -> String {
    let reserved = Size(peak.usage.reserved);
    let (Some(moment), Some(growth)) = (peak.moment, peak.growth) else {
        return format!("It held {reserved} from the beginning, and never more.");
    };
    let mut place = Vec::new();
    place.extend(run.step_of(moment.event).map(|step| format!("step {step}")));
    if has_times {
        place.push(format!("{} after the first event", Nanos(moment.time_us as f64 * 1e3)));
    }
    place.push(format!("event {}", Grouped(moment.event)));
    format!(
        "A request of {} made it grow to {reserved} ({}).",
        Size(growth.requested),
        place.join(", ")
    )
}

/// The memory, segment by segment: how many blocks, the pool and whether it is for small requests, the stream; for each
/// block its state and size; and if it is in use, how much of that is rounding, and its age.
fn memory(blocks: &[PeakBlock], age: &dyn Fn(&PeakBlock) -> u64) -> String {
    let mut numbers = Numbers::default();
    let own: Vec<_> = blocks.iter().filter(|b| b.view.kind != BlockKind::Stitched).collect();
    for segment in own.chunk_by(|a, b| a.view.segment == b.view.segment) {
        let first = &segment[0].view;
        numbers.push(segment.len() as u64);
        let is_small = first.kind == BlockKind::Small;
        numbers.push(u64::from(first.pool.0) << 1 | u64::from(is_small));
        numbers.push(first.stream.0.into());
        segment.iter().for_each(|block| push_block(&mut numbers, block, age));
    }
    numbers.finish()
}

/// The stitched ranges, block by block.
fn stitched(blocks: &[PeakBlock], age: &dyn Fn(&PeakBlock) -> u64) -> String {
    let mut numbers = Numbers::default();
    let ranges = blocks.iter().filter(|block| block.view.kind == BlockKind::Stitched);
    ranges.for_each(|block| push_block(&mut numbers, block, age));
    numbers.finish()
}

fn push_block(numbers: &mut Numbers, block: &PeakBlock, age: &dyn Fn(&PeakBlock) -> u64) {
    let view = &block.view;
    let (state, is_live) = match view.state {
        BlockUse::Allocated => (0, true),
        BlockUse::Pending => (1, true),
        BlockUse::Free => (2, false),
        BlockUse::Alias => (3, false),
    };
    numbers.push(state);
    numbers.push(view.size);
    if is_live {
        numbers.push(view.size - view.requested);
        numbers.push(age(block));
    }
}
