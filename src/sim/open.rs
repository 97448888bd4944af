//! Opens a file: from its path to a trace that is ready to be replayed.
//!
//! Everything that the simulator reads comes through here, so that every command understands the same files.

use std::path::Path;
use std::sync::OnceLock;

use rayon::prelude::*;

use super::fingerprint::fingerprint;
use super::live_peak::live_peak;
use super::recording::{Refused, Verification, verify};
use crate::alloc_conf::TorchVersion;
use crate::allocator::Environment;
use crate::device::CallCounts;
use crate::metrics::{RECORDED, RunSummary};
use crate::remote;
use crate::trace::{
    self, Action, Entry, EventKind, Labels, Layout, LoadOptions, MAX_INPUT, Records, Trace,
    TraceError, ingest,
};
use crate::units::{Bytes, Size};

/// How a file is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The device; `None`: the only one with entries.
    pub device: Option<u32>,
    /// The PyTorch that wrote the file; `None`: as its keys tell.
    pub version: Option<TorchVersion>,
    /// Whether to keep the call stacks.
    pub stacks: bool,
    /// A file whose content is larger than this is refused.
    pub max_input: Bytes,
}

impl Default for OpenOptions {
    /// The only device, without stacks, read as what wrote it; at most [`MAX_INPUT`].
    fn default() -> Self {
        Self { device: None, version: None, stacks: false, max_input: MAX_INPUT }
    }
}

/// What was found about one device of a file.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// The file, as given.
    pub file: String,
    /// Every device in the file, with its number of entries.
    pub devices: Vec<(u32, usize)>,
    /// What the file says, entry by entry.
    pub records: Records,
    /// What the program did.
    pub trace: Trace,
    /// What was held when the recording began; empty if it began with the program.
    pub start: Layout,
    /// The memory limit that PyTorch must have run under, in bytes.
    pub limit: Option<Bytes>,
    /// The device's memory in bytes, where the driver refused to give more.
    pub capacity: Option<Bytes>,
    /// The first request that ran out, and what the driver had then.
    pub refused: Option<Refused>,
    /// Whether requests ran out in a private pool, while PyTorch kept the cache of all others.
    pub kept_cache: bool,
    /// What our model of PyTorch had to assume to follow the recording, one sentence each.
    pub notes: Vec<String>,
    /// What the recording itself says about peaks and calls, if it says enough.
    pub recorded: Option<RunSummary>,
    /// What [`Opened::program`] has found out; nothing before it was asked.
    pub program: OnceLock<u128>,
}

impl Opened {
    /// A number that stands for the requests and all else that runs depend on; equal programs have equal ones.
    #[must_use]
    pub fn program(&self) -> u128 {
        let limits = (self.limit, self.capacity);
        *self.program.get_or_init(|| fingerprint(&self.trace, limits))
    }

    /// Name of the allocator that the recording ran on.
    #[must_use]
    pub fn recorded_by(&self) -> &'static str {
        let is_expandable = self.trace.settings.as_ref().is_some_and(|c| c.expandable_segments);
        if is_expandable { "expandable" } else { "caching" }
    }
}

/// Opens one device of a file.
///
/// # Errors
/// If the file cannot be read or understood, or it is not clear which device is meant.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Opened, TraceError> {
    let all = load(path, options)?;
    let devices = devices(&all);
    let records = trace::choose_device(all, options.device, path)?;
    Ok(prepare(path, devices, records, options))
}

/// Opens one device of a file whose content is already in memory, under this name.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(name: &Path, bytes: &[u8], options: &OpenOptions) -> Result<Opened, TraceError> {
    let all = trace::load_bytes(bytes, &load_options(options))?;
    let devices = devices(&all);
    let records = trace::choose_device(all, options.device, name)?;
    Ok(prepare(name, devices, records, options))
}

/// Opens every device of a file that has entries, or the one that was asked for.
///
/// # Errors
/// If the file cannot be read or understood, or has no such device, or no entries at all.
pub fn open_all(path: &Path, options: &OpenOptions) -> Result<Vec<Opened>, TraceError> {
    let mut all = load(path, options)?;
    let devices = devices(&all);
    let is_plain = devices.iter().filter(|&&(_, entries)| entries > 0).count() < 2;
    if options.device.is_some() || is_plain {
        let records = trace::choose_device(all, options.device, path)?;
        return Ok(vec![prepare(path, devices, records, options)]);
    }
    all.retain(|records| !records.entries.is_empty());
    let prepare = |records| prepare(path, devices.clone(), records, options);
    Ok(all.into_par_iter().map(prepare).collect())
}

fn load(path: &Path, options: &OpenOptions) -> Result<Vec<Records>, TraceError> {
    trace::load(path, &load_options(options))
}

fn load_options(options: &OpenOptions) -> LoadOptions {
    let OpenOptions { version, stacks, max_input, .. } = *options;
    LoadOptions { torch_version: version, stacks, max_bytes: max_input }
}

fn devices(all: &[Records]) -> Vec<(u32, usize)> {
    all.iter().map(|records| (records.device, records.entries.len())).collect()
}

/// Makes a trace of the records. PyTorch's own decisions tell what the entries do not say in words: what was live at
/// the beginning, when the cache was emptied, which pool was asked.
fn prepare(
    path: &Path,
    devices: Vec<(u32, usize)>,
    records: Records,
    options: &OpenOptions,
) -> Opened {
    let file = remote::shown(path);
    if !records.has_segments {
        let trace = ingest(&records, &Labels::default());
        return Opened { file, devices, records, trace, ..Opened::default() };
    }
    let conf = records.settings.clone().unwrap_or_default();
    let version = options.version.unwrap_or_else(|| records.version());
    let environment = Environment { version, ..Environment::new(conf) };
    let found = verify(&records, &environment);
    let trace = ingest(&records, &found.labels);
    let mut recorded = recorded(&records, &found);
    recorded.file.clone_from(&file);
    recorded.events = trace.events.len() as u64;
    recorded.first_oom_event = first_failure(&trace);
    let time_of = |event: u64| trace.times_us.get(event as usize).copied();
    recorded.first_oom_us = recorded.first_oom_event.and_then(time_of);
    let (mut notes, limit, capacity) = (notes(&found), found.limit, found.capacity);
    let (refused, kept_cache) = (found.refused, found.diverted > 0);
    let has_room = has_room(&recorded, &trace);
    if !has_room {
        notes.push(NO_ROOM.to_owned());
    }
    if records.entries.is_empty() {
        notes.push(ONLY_STATE.to_owned());
    }
    let (start, recorded) = (found.start.layout, has_room.then_some(recorded));
    Opened {
        file,
        devices,
        records,
        trace,
        start,
        limit,
        capacity,
        refused,
        kept_cache,
        notes,
        recorded,
        program: OnceLock::new(),
    }
}

const ONLY_STATE: &str = "it has no events, only the state when the snapshot was taken: nothing is \
                          known of how it came to that";

const NO_ROOM: &str = "it does not say what PyTorch held: its segments have less room than the \
                       blocks in them, so that there is no row for the recording";

/// Whether what was held had room for what was live. In snapshots that were made up it need not.
fn has_room(recorded: &RunSummary, trace: &Trace) -> bool {
    let live = live_peak(trace).map_or(0, |peak| peak.requested_bytes);
    recorded.reserved_peak_bytes >= live.max(recorded.active_peak_bytes)
}

fn notes(found: &Verification) -> Vec<String> {
    let mut notes = Vec::new();
    if found.difference_count > 0 {
        notes.push(format!(
            "our model of PyTorch decides otherwise than the recording in {} places, so that its \
             peaks may be off",
            found.difference_count
        ));
    }
    if let Some(refused) = found.refused.filter(|refused| refused.was_there()) {
        notes.push(not_short(refused, found.limit));
    } else if let (Some(refused), None, None) = (found.least_refused, found.limit, found.capacity) {
        notes.push(format!(
            "the driver once refused to give {} in all, and gave more at other times: something \
             else used the device then, which is not simulated",
            Size(refused)
        ));
    }
    notes
}

/// A refusal that is not for want of memory.
fn not_short(refused: Refused, limit: Option<Bytes>) -> String {
    let free = Size(refused.device_free.unwrap_or(0));
    match limit {
        Some(limit) => format!(
            "a memory fraction that comes to about {} refused requests, while the driver had {free} \
             free",
            Size(limit)
        ),
        None => format!(
            "memory was not short when a request was refused: the driver had {free} free. What \
             refused it (a memory fraction, a MemPool, the driver) is not recorded and not simulated"
        ),
    }
}

/// The first request that failed in the recording.
fn first_failure(trace: &Trace) -> Option<u64> {
    let position = trace.events.iter().position(|event| event.kind == EventKind::Attempt);
    position.map(|index| index as u64)
}

/// Driver calls in the recording. Calls of the virtual memory management are those of the model, which knows how large
/// the pages are; the others are entries of their own.
fn recorded_calls(records: &Records, found: &Verification) -> CallCounts {
    let count = |action: Action| {
        records.entries.iter().filter(|entry| entry.action == action).count() as u64
    };
    CallCounts {
        mem_alloc: count(Action::SegmentAlloc),
        mem_free: count(Action::SegmentFree),
        ..found.device_calls
    }
}

/// Entries by which an amount of memory grows, and by which it shrinks.
type Changes = (&'static [Action], &'static [Action]);
const ACTIVE: Changes = (&[Action::Alloc], &[Action::FreeCompleted]);
const HELD: Changes =
    (&[Action::SegmentAlloc, Action::SegmentMap], &[Action::SegmentFree, Action::SegmentUnmap]);

/// The peak of an amount by the recording's own entries, from zero on. A replay that has given up does not come that
/// far; what was there when the recording began is known to the replay only.
fn peak_of(records: &Records, found: &Verification, (grow, shrink): Changes) -> Bytes {
    if !found.start.layout.segments.is_empty() {
        return 0;
    }
    let (mut now, mut peak): (Bytes, Bytes) = (0, 0);
    for entry in &records.entries {
        if grow.contains(&entry.action) {
            now += entry.size;
            peak = peak.max(now);
        } else if shrink.contains(&entry.action) {
            now = now.saturating_sub(entry.size);
        }
    }
    peak
}

/// The recording as a row of the table.
fn recorded(records: &Records, found: &Verification) -> RunSummary {
    let is_oom = |entry: &&Entry| entry.action == Action::Oom;
    let mut summary = RunSummary {
        device: records.device,
        allocator: RECORDED.to_owned(),
        requested_peak_bytes: found.peak.requested,
        active_peak_bytes: found.peak.active.max(peak_of(records, found, ACTIVE)),
        reserved_peak_bytes: found.peak.reserved.max(peak_of(records, found, HELD)),
        oom_count: records.entries.iter().filter(is_oom).count() as u64,
        alloc_retries: found.retries,
        device_calls: recorded_calls(records, found),
        timeline: found.timeline.clone(),
        ..RunSummary::default()
    };
    summary.set_ratios();
    summary
}
