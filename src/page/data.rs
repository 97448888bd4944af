//! Data that the page's charts are drawn from: one JSON object for each file, long rows of numbers encoded.

use std::sync::Arc;

use serde::Serialize;

use super::encode::{Numbers, ranges};
use super::lives::Lives;
use crate::allocator::{BlockKind, BlockUse};
use crate::blame::CardHistory;
use crate::compare::Comparison;
use crate::run::{CallNanos, Moment, Peak, PeakBlock, RECORDED, RunSummary, StepSummary, Timeline};
use crate::units::{Bytes, Grouped, Nanos, Size};

/// One file.
#[derive(Serialize)]
pub(super) struct File {
    title: String,
    /// Whether the axis is in microseconds; else it is in events.
    has_times: bool,
    end: u64,
    steps: Vec<u64>,
    device_memory: Option<Bytes>,
    active: Series,
    runs: Vec<Run>,
    lives: Option<Lives>,
    card: Option<CardHistory>,
}

/// A timeline: `count` buckets of `width`, of an axis that ends at `end`.
#[derive(Serialize)]
struct Series {
    width: u64,
    end: u64,
    count: usize,
    data: String,
}

#[derive(Serialize)]
struct Run {
    label: String,
    kind: &'static str,
    reserved: Bytes,
    /// What stands before it.
    sign: &'static str,
    ooms: u64,
    first_oom: Option<u64>,
    peak_at: u64,
    series: Series,
    driver: Option<CallNanos>,
    steps: Vec<Step>,
    converged: Option<u64>,
    peak: Option<PeakData>,
}

#[derive(Serialize)]
struct Step {
    calls: u64,
    sblocks: u64,
    ns: Option<u64>,
}

#[derive(Serialize)]
struct PeakData {
    /// The request that forced the growth, in words.
    words: String,
    requested: Bytes,
    reserved: Bytes,
    pending: Bytes,
    causes: Vec<Bytes>,
    memory: String,
    stitched: String,
}

impl File {
    /// Everything that the charts of one file show.
    pub(super) fn new(comparison: &Comparison, lives: Option<Lives>) -> Self {
        let has_times = comparison.span_us > 0;
        let events = comparison.runs.iter().map(|run| run.events).max().unwrap_or(0);
        let place = |moment: &Moment| if has_times { moment.time_us } else { moment.event };
        Self {
            title: comparison.title().to_owned(),
            has_times,
            end: if has_times { comparison.span_us } else { events },
            steps: comparison.step_starts.iter().map(place).collect(),
            device_memory: comparison.device_memory,
            active: active(comparison),
            runs: (comparison.runs.iter().enumerate())
                .map(|(place, run)| Run::new(run, comparison.peaks.get(&place), has_times))
                .collect(),
            lives,
            card: comparison.card.clone(),
        }
    }
}

/// What was in use, from the first run that served everything: it is nearly the same in all of those.
fn active(comparison: &Comparison) -> Series {
    let runs = &comparison.runs;
    let served = runs.iter().find(|run| run.oom_count == 0 && !run.timeline.buckets.is_empty());
    let empty = Timeline::default();
    let timeline = served.or_else(|| runs.first()).map_or(&empty, |run| &run.timeline);
    Series::new(timeline, ranges(&timeline.buckets, |range| (range.low.active, range.high.active)))
}

impl Series {
    fn new(timeline: &Timeline, data: String) -> Self {
        let Timeline { width, end, ref buckets, .. } = *timeline;
        Self { width, end, count: buckets.len(), data }
    }
}

impl Run {
    fn new(run: &RunSummary, peak: Option<&Arc<Peak>>, has_times: bool) -> Self {
        let timeline = &run.timeline;
        let data = ranges(&timeline.buckets, |range| (range.low.reserved, range.high.reserved));
        let prices = run.prices.as_ref();
        Self {
            label: run.label(),
            kind: kind(run),
            reserved: run.reserved_peak_bytes,
            sign: run.certainty.sign(),
            ooms: run.oom_count,
            first_oom: if has_times { run.first_oom_us } else { run.first_oom_event },
            peak_at: timeline.peak().map_or(0, |(at, _)| at),
            series: Series::new(timeline, data),
            driver: prices.filter(|_| !run.is_bound()).map(|prices| prices.predicted_driver_ns),
            steps: run.steps.iter().map(Step::new).collect(),
            converged: run.converged_after_step,
            peak: peak.map(|peak| PeakData::new(peak, run, has_times)),
        }
    }
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

impl Step {
    fn new(step: &StepSummary) -> Self {
        let created = step.allocator_counters.iter().find(|(name, _)| name == "sblocks_created");
        Self {
            calls: step.device_calls.total(),
            sblocks: created.map_or(0, |&(_, count)| count),
            ns: step.predicted_driver_ns.map(|nanos| nanos.total),
        }
    }
}

impl PeakData {
    fn new(peak: &Peak, run: &RunSummary, has_times: bool) -> Self {
        let place = |moment: &Moment| if has_times { moment.time_us } else { moment.event };
        let now = peak.moment.as_ref().map_or(0, place);
        let age = |block: &PeakBlock| block.since.as_ref().map_or(0, |at| now.abs_diff(place(at)));
        let is_pending = |block: &&PeakBlock| block.view.state == BlockUse::Pending;
        let pending = peak.blocks.iter().filter(is_pending).map(|block| block.view.requested);
        let is_drawn = !run.is_bound();
        Self {
            words: words(peak, run, has_times),
            requested: peak.usage.requested,
            reserved: peak.usage.reserved,
            pending: pending.sum(),
            causes: peak.causes.rows().map(|(_, bytes)| bytes).collect(),
            memory: if is_drawn { memory(&peak.blocks, &age) } else { String::new() },
            stitched: stitched(&peak.blocks, &age),
        }
    }
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
