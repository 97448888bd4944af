//! Inspection of a file: its settings, what happened, how large, when it peaked, and what the recording lacks.
//!
//! Nothing is simulated here. The events are gone through once for sizes and live bytes, the recorded entries once for
//! their kinds, the final segments once for what was held.

pub mod show;

use serde::Serialize;

use crate::alloc_conf::AllocConf;
use crate::blame::{By, Namer};
use crate::compare::Unit;
use crate::sim::Opened;
use crate::trace::{
    Action, BlockState, Coverage, Entry, Event, EventKind, PoolId, Records, StreamId, Trace,
    WarningKind, most_live,
};
use crate::units::{Bytes, Count};

/// What is in one device's part of a file.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Inspection {
    /// The file, as given.
    pub file: String,
    /// Index of the device.
    pub device: u32,
    /// Every device in the file, with its number of entries.
    pub devices: Vec<DeviceEntries>,
    /// PyTorch's allocator settings as the file has them, those that differ from the defaults.
    pub settings: Option<Vec<(String, String)>>,
    /// The versions of PyTorch that may have written the file, if its keys tell.
    pub written_by: Option<String>,
    /// Whether it was recorded on the virtual GPU: its times are then those of a host that computed nothing.
    pub is_virtual: bool,
    /// Whether it is the simulation of another allocator than PyTorch's, exported.
    pub is_simulated: bool,
    /// Recorded entries by kind, in PyTorch's order; kinds that do not occur are left out.
    pub entries: Vec<EntryCount>,
    /// Events that a replay carries out.
    pub events: u64,
    /// Requests among them.
    pub requests: u64,
    /// Time between the first and the last event in microseconds; 0 if the file has no times.
    pub span_us: u64,
    /// Training steps.
    pub steps: u64,
    /// The moment at which most bytes were live.
    pub peak: Option<LivePeak>,
    /// Requests by size, in powers of two.
    pub sizes: Vec<SizeClass>,
    /// Requests by pool.
    pub pools: Vec<Share>,
    /// Requests by stream.
    pub streams: Vec<Share>,
    /// Call stacks, if the file has any.
    pub stacks: Option<StackTotals>,
    /// The first request that failed, if one did.
    pub first_failure: Option<Failure>,
    /// What was held at the end, if the file says so.
    pub segments: Option<SegmentTotals>,
    /// How much of the job the recording shows.
    pub coverage: Coverage,
    /// What the recording lacks, one sentence each; empty for a complete one.
    pub missing: Vec<String>,
}

/// The moment at which most bytes were live.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LivePeak {
    /// Bytes requested and in use, unrounded.
    pub requested_bytes: Bytes,
    /// Blocks in use.
    pub blocks: u64,
    /// Index of the event that reached it.
    pub event: u64,
    /// Its moment in microseconds since the first event.
    pub time_us: u64,
    /// Number of its training step, from 1.
    pub step: Option<u64>,
}

/// A device of the file.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct DeviceEntries {
    /// Its index.
    pub device: u32,
    /// Recorded entries.
    pub entries: u64,
}

/// How often a kind of entry occurs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct EntryCount {
    /// PyTorch's name of the kind.
    pub action: &'static str,
    /// How often.
    pub count: u64,
}

/// Requests from `from_bytes` up to, and without, twice as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// The smallest size, a power of two.
    pub from_bytes: Bytes,
    /// Requests of these sizes.
    pub requests: u64,
    /// Bytes that they asked for, all together.
    pub bytes: Bytes,
}

/// What a pool or a stream was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Share {
    /// PyTorch's id of the pool, or handle of the stream.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Bytes that they asked for, all together.
    pub bytes: Bytes,
}

/// The call stacks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StackTotals {
    /// Different stacks.
    pub count: u64,
    /// Requests that have none.
    pub requests_without: u64,
}

/// A request that failed in the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Index of the event.
    pub event: u64,
    /// Bytes asked for, rounded as PyTorch does.
    pub bytes: Bytes,
    /// The line that asked, if the file has stacks.
    pub asked_by: Option<String>,
    /// Requests that failed, all together.
    pub count: u64,
}

/// What was held when the snapshot was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SegmentTotals {
    /// Segments.
    pub count: u64,
    /// Those for small requests.
    pub small: u64,
    /// Those that are mapped ranges of expandable segments.
    pub expandable: u64,
    /// Bytes of all segments.
    pub bytes: Bytes,
    /// Bytes of blocks in use.
    pub active_bytes: Bytes,
    /// Bytes of the largest free block.
    pub largest_free_bytes: Bytes,
    /// Free blocks.
    pub free_blocks: u64,
}

/// Finds out what is in an opened file.
pub fn inspect(opened: &Opened) -> Inspection {
    let Opened { records, trace, .. } = opened;
    let by_pool = |event: &Event| usize::from(event.pool.0);
    let by_stream = |event: &Event| usize::from(event.stream.0);
    Inspection {
        file: opened.file.clone(),
        device: records.device,
        devices: opened
            .devices
            .iter()
            .map(|&(device, entries)| DeviceEntries { device, entries: entries as u64 })
            .collect(),
        settings: records.settings.as_ref().map(settings),
        written_by: records.written_by.map(|writer| writer.to_string()),
        is_virtual: records.marks.is_virtual,
        is_simulated: records.marks.is_simulated,
        entries: entry_counts(records),
        events: trace.events.len() as u64,
        requests: trace.requests(),
        span_us: trace.span_us(),
        steps: trace.steps.len() as u64,
        peak: live_peak(trace),
        sizes: size_classes(trace),
        pools: shares(trace, by_pool, |pool| pool_name(records, PoolId(pool as u8))),
        streams: shares(trace, by_stream, |stream| stream_name(trace, StreamId(stream as u16))),
        stacks: stack_totals(opened),
        first_failure: first_failure(opened),
        segments: records.has_segments.then(|| segment_totals(records)),
        coverage: opened.coverage.clone(),
        missing: missing(records, trace, &opened.coverage),
    }
}

fn stack_totals(opened: &Opened) -> Option<StackTotals> {
    let Opened { records, trace, .. } = opened;
    let without = trace.alloc_stacks.iter().filter(|&&stack| stack == Entry::NO_STACK).count();
    let (count, requests_without) = (records.stacks.stacks.len() as u64, without as u64);
    records.stacks.has_frames().then_some(StackTotals { count, requests_without })
}

fn live_peak(trace: &Trace) -> Option<LivePeak> {
    let (at, live) = most_live(trace, 0..trace.events.len())?;
    let step = trace.steps.iter().position(|step| (step.start..step.end).contains(&at));
    let step = step.map(|index| index as u64 + 1);
    let (event, time_us) = (at as u64, trace.times_us[at]);
    let (requested_bytes, blocks) = (live.bytes, live.blocks);
    (requested_bytes > 0).then_some(LivePeak { requested_bytes, blocks, event, time_us, step })
}

fn first_failure(opened: &Opened) -> Option<Failure> {
    let events = &opened.trace.events;
    let failed = |event: &&Event| event.kind == EventKind::Attempt;
    let at = opened.first_failure()?;
    let bytes = events[at].size;
    let name = || Namer::new(opened, By::Line, false).name(at, bytes);
    let count = events.iter().filter(failed).count() as u64;
    let asked_by = opened.records.stacks.has_frames().then(name);
    Some(Failure { event: at as u64, bytes, asked_by, count })
}

/// The settings that differ from PyTorch's defaults, by their names in `PYTORCH_CUDA_ALLOC_CONF`.
fn settings(conf: &AllocConf) -> Vec<(String, String)> {
    let default = AllocConf::default();
    let size = |bytes: Bytes| Unit::Bytes.show(bytes as f64);
    let (rounding, segment) = (conf.max_non_split_rounding, conf.large_segment_size);
    let threshold = conf.garbage_collection_threshold;
    let divisions = conf.roundup_power2_divisions;
    let yes = |is_on: bool| is_on.then(|| "True".to_owned());
    let rows = [
        ("expandable_segments", yes(conf.expandable_segments)),
        ("max_split_size", conf.max_split_size.map(size)),
        (
            "max_non_split_rounding",
            (rounding != default.max_non_split_rounding).then(|| size(rounding)),
        ),
        ("large_segment_size", (segment != default.large_segment_size).then(|| size(segment))),
        ("garbage_collection_threshold", (threshold > 0.0).then(|| threshold.to_string())),
        (
            "roundup_power2_divisions",
            divisions.iter().any(|&d| d > 1).then(|| format!("{divisions:?}")),
        ),
        ("per_process_memory_fraction", conf.memory_fraction.map(|share| share.to_string())),
        ("throw_on_cudamalloc_oom", yes(conf.throw_on_oom)),
        ("expandable_segments_reserve", conf.expandable_reserve.map(|bytes| bytes.to_string())),
    ];
    let others = conf.without_effect.iter().map(|name| (&**name, "(changes nothing here)"));
    let others = others.map(|(name, value)| (name, Some(value.to_owned())));
    let named = |(name, value): (&str, Option<String>)| Some((name.to_owned(), value?));
    rows.into_iter().chain(others).filter_map(named).collect()
}

fn entry_counts(records: &Records) -> Vec<EntryCount> {
    let mut counts = [0; Action::ALL.len()];
    for entry in &records.entries {
        counts[entry.action as usize] += 1;
    }
    let named = |(action, count): (Action, u64)| EntryCount { action: action.name(), count };
    let mut rows: Vec<_> = Action::ALL.into_iter().zip(counts).map(named).collect();
    rows.push(EntryCount { action: "of unknown kind", count: records.unknown_actions });
    rows.retain(|row| row.count > 0);
    rows
}

fn size_classes(trace: &Trace) -> Vec<SizeClass> {
    let power = |event: &Event| event.size.max(1).ilog2() as usize;
    let class =
        |(power, requests, bytes)| SizeClass { from_bytes: 1_u64 << power, requests, bytes };
    requests_by(trace, power).map(class).collect()
}

fn shares(
    trace: &Trace,
    key: impl Fn(&Event) -> usize,
    name: impl Fn(usize) -> String,
) -> Vec<Share> {
    let share = |(key, requests, bytes)| Share { name: name(key), requests, bytes };
    requests_by(trace, key).map(share).collect()
}

/// Requests and bytes by a small number of each event, in ascending order of that number.
fn requests_by(
    trace: &Trace,
    key: impl Fn(&Event) -> usize,
) -> impl Iterator<Item = (usize, u64, Bytes)> {
    let mut sums: Vec<(u64, Bytes)> = Vec::new();
    for event in trace.events.iter().filter(|event| event.kind == EventKind::Malloc) {
        let key = key(event);
        sums.resize(sums.len().max(key + 1), (0, 0));
        sums[key] = (sums[key].0 + 1, sums[key].1 + event.size);
    }
    let sums = sums.into_iter().enumerate().map(|(key, (requests, bytes))| (key, requests, bytes));
    sums.filter(|&(_, requests, _)| requests > 0)
}

fn pool_name(records: &Records, pool: PoolId) -> String {
    match (pool, records.pools.get(usize::from(pool.0))) {
        (PoolId::DEFAULT, _) => "default".to_owned(),
        (_, Some((owner, number))) => format!("({owner}, {number})"),
        (PoolId(number), None) => format!("private {number}"),
    }
}

fn stream_name(trace: &Trace, stream: StreamId) -> String {
    match trace.streams.get(usize::from(stream.0)) {
        Some(0) | None => "default".to_owned(),
        Some(handle) => format!("{handle:#x}"),
    }
}

fn segment_totals(records: &Records) -> SegmentTotals {
    let mut totals = SegmentTotals::default();
    for segment in &records.segments {
        totals.count += 1;
        totals.small += u64::from(segment.is_small);
        totals.expandable += u64::from(segment.is_expandable);
        totals.bytes += segment.size;
        for block in &segment.blocks {
            if block.state == BlockState::Inactive {
                totals.free_blocks += 1;
                totals.largest_free_bytes = totals.largest_free_bytes.max(block.size);
            } else {
                totals.active_bytes += block.size;
            }
        }
    }
    totals
}

/// What the recording lacks. PyTorch says nothing of it (up to 2.11), so it is inferred from what does not fit
/// together.
fn missing(records: &Records, trace: &Trace, coverage: &Coverage) -> Vec<String> {
    let of = |kind: WarningKind| {
        trace.warnings.iter().find(|warning| warning.kind == kind).map_or(0, |w| w.count)
    };
    let (unknown, before) = (of(WarningKind::UnknownFree), of(WarningKind::LiveBefore));
    let mut missing: Vec<String> = coverage.gaps().iter().map(ToString::to_string).collect();
    if records.entries.is_empty() {
        return missing;
    }
    if before > 0 {
        let was = if before == 1 { "was" } else { "were" };
        missing.push(format!("{} {was} live before the recording began", Count(before, "block")));
    }
    if unknown > 0 {
        missing.push(match unknown {
            1 => "1 free is of a block that was never seen allocated".to_owned(),
            _ => format!("{unknown} frees are of blocks that were never seen allocated"),
        });
    }
    missing.extend(missing_kinds(records));
    if trace.times_us.iter().all(|&time| time == 0) {
        missing.push("there are no times".to_owned());
    }
    missing
}

/// Kinds of entry that a complete recording would have (`skip_actions` leaves kinds out).
fn missing_kinds(records: &Records) -> Vec<String> {
    let has = |action: Action| records.entries.iter().any(|entry| entry.action == action);
    let allocs = records.entries.iter().filter(|entry| entry.action == Action::Alloc).count();
    let live = records.segments.iter().flat_map(|segment| &segment.blocks);
    let live = live.filter(|block| block.state == BlockState::Allocated).count();
    let mut missing = Vec::new();
    if !has(Action::FreeCompleted) && allocs > live && records.has_segments {
        missing.push("there are no frees, although blocks are gone at the end".to_owned());
    }
    if !has(Action::SegmentAlloc) && !has(Action::SegmentMap) && has(Action::Alloc) {
        missing.push(
            "no segment was seen to be made: PyTorch's own growth is not recorded".to_owned(),
        );
    }
    if !records.has_segments {
        missing.push("the state at the end (segments) is not in the file".to_owned());
    }
    missing
}
