//! Opens a file: from its path to a trace that is ready to be replayed.
//!
//! Everything that the simulator reads comes through here, so that every command understands the same files. Reading is
//! `trace::load`. What the file does not say in words is worked out by `reconstruct`: PyTorch's decisions tell what was
//! live at the beginning, when the cache was emptied, which pool was asked, and where a recording is not the whole job.
//!
//! ```text
//!   path ─load─▶ Records ──▶ does the history lead to the final state? ──no──▶ forget the final state
//!                                     │yes                                             │
//!                                     ▼                                                ▼
//!                            verify: PyTorch's model makes every recorded decision again ──▶ Labels ──▶ Trace
//! ```

use std::path::Path;
use std::sync::OnceLock;

use rayon::prelude::*;

use super::coverage::{self, Ending};
use super::opened::Opened;
use super::places::ends_before_backward;
use super::recorded_row::{Tally, row};
use crate::alloc_conf::TorchVersion;
use crate::allocator::Environment;
use crate::remote;
use crate::run::{RECORDED, RunSummary};
use crate::trace::{
    self, Certainty, Draft, Labels, Layout, LoadOptions, Records, Trace, TraceError,
};
use crate::trace::{Warning, both, ingest, peak_live_bytes};
use crate::units::{Bytes, Size};
use crate::verify::{Refused, Verification, begins_with_program, counted, range_in_words};
use crate::verify::{
    contradictions, given_back_unseen, leads_elsewhere, missing_kinds, unseen_start, verify,
};

/// Opens one device of a file.
///
/// # Errors
/// If the file cannot be read or understood, or it is not clear which device is meant.
pub fn open(path: &Path, options: &LoadOptions) -> Result<Opened, TraceError> {
    reconstruct(path, trace::load(path, &with_flushes(options))?, options)
}

/// Opens one device of a file whose content is already in memory, under this name.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(name: &Path, bytes: &[u8], options: &LoadOptions) -> Result<Opened, TraceError> {
    reconstruct(name, trace::load_bytes(bytes, &with_flushes(options))?, options)
}

/// Opens every device of a file that has entries, or the one that was asked for. If none has entries, every device with
/// segments.
///
/// # Errors
/// If the file cannot be read or understood, or has no such device, or no entries at all.
pub fn open_all(path: &Path, options: &LoadOptions) -> Result<Vec<Opened>, TraceError> {
    let mut all = trace::load(path, &with_flushes(options))?;
    let devices = devices(&all);
    let has_entries = devices.iter().any(|&(_, entries)| entries > 0);
    let is_one = |records: &Records| match has_entries {
        true => !records.entries.is_empty(),
        false => !records.segments.is_empty(),
    };
    let is_plain = all.iter().filter(|records| is_one(records)).count() < 2;
    if options.device.is_some() || is_plain {
        return Ok(vec![reconstruct(path, all, options)?]);
    }
    all.retain(is_one);
    let one = |records| {
        let opened = reconstruct(path, vec![records], options)?;
        Ok(Opened { devices: devices.clone(), ..opened })
    };
    all.into_par_iter().map(one).collect()
}

/// The options, with the call stacks that tell who emptied the cache.
fn with_flushes(options: &LoadOptions) -> LoadOptions {
    LoadOptions { stacks_of_flushes: true, ..options.clone() }
}

/// Every device, with its number of entries.
fn devices(all: &[Records]) -> Vec<(u32, usize)> {
    all.iter().map(|records| (records.device, records.entries.len())).collect()
}

/// Works out what the program did on the device that is meant.
fn reconstruct(
    path: &Path,
    all: Vec<Records>,
    options: &LoadOptions,
) -> Result<Opened, TraceError> {
    let devices = devices(&all);
    let mut records = trace::choose_device(all, options.device, path)?;
    if records.marks.is_simulated {
        records.forget_driver();
    }
    let environment = environment(&records, options.torch_version);
    let Explained { found, ending, trace, own } = explain(&mut records, &environment);
    let mut labels = found.as_ref().map_or_else(Labels::default, |found| found.labels.clone());
    if !records.has_segments && labels.start.is_empty() {
        labels.start = unseen_start(&records);
    }
    let mut trace = trace.unwrap_or_else(|| ingest(&records, &labels));
    let odd = odd_entries(&records, found.as_ref(), ending, &labels);
    if !odd.is_empty() {
        trace.warnings.extend(odd);
        trace.warnings.sort_by_key(|warning| warning.kind);
    }
    let of_trace = || (peak_live_bytes(&trace), trace.first_failure());
    let (mut coverage, (live_peak, failed)) =
        both(|| coverage::find(&records, found.as_ref(), &trace, ending), of_trace);
    if coverage.ends_in_first_step() && ends_before_backward(&records) {
        coverage = coverage.without_backward();
    }
    let mut notes = found.as_ref().map(notes).unwrap_or_default();
    let file = remote::shown(path);
    // What was held before is inferred: where the model then differs, entries may be missing.
    let is_doubtful = found.as_ref().is_some_and(Verification::doubts_start);
    let of_held = if is_doubtful { Certainty::About } else { coverage.of_what_was_seen() };
    let common = common(&file, &trace, failed, live_peak, of_held);
    let mut recorded = row(&records, found.as_ref(), &own, common);
    if coverage.lacks_segments() {
        recorded = None;
        notes.push(NOT_HELD.to_owned());
    } else if recorded.as_ref().is_some_and(|row| !has_room(row, live_peak)) {
        recorded = None;
        notes.extend(records.has_segments.then(|| NO_ROOM.to_owned()));
    }
    let mut found = found.unwrap_or_default();
    if coverage.lacks_segments() {
        found.forget_memory();
    }
    let Verification { refused, diverted, limit, capacity, start, memory_range, .. } = found;
    let (kept_cache, start) = (diverted > 0, start.layout);
    let failure = OnceLock::from(failed);
    let known = Opened { failure, ..Opened::default() };
    let opened = Opened { file, devices, records, trace, coverage, start, memory_range, ..known };
    Ok(Opened { limit, capacity, refused, kept_cache, notes, recorded, ..opened })
}

fn environment(records: &Records, version: Option<TorchVersion>) -> Environment {
    let conf = records.settings.clone().unwrap_or_default();
    let version = version.unwrap_or_else(|| records.version());
    Environment { version, ..Environment::new(conf) }
}

/// What PyTorch's decisions tell, with the trace if that was made on the way, and what the entries come to.
struct Explained {
    found: Option<Verification>,
    ending: Ending,
    trace: Option<Trace>,
    own: Tally,
}

/// Entries that cannot all be true. Where PyTorch's model makes every decision again, there are none; but without frees
/// it makes those of a history that stopped.
fn odd_entries(
    records: &Records,
    found: Option<&Verification>,
    ending: Ending,
    labels: &Labels,
) -> Vec<Warning> {
    let is_repeated = found.is_some_and(|found| found.difference_count == 0);
    let held = found.map(|found| &found.start.layout);
    let odd = match is_repeated {
        true if ending != Ending::Stopped => return Vec::new(),
        true => Vec::new(),
        false => contradictions(records, &labels.start, held.unwrap_or(&Layout::default())),
    };
    if !odd.is_empty() || ending == Ending::Unknown && !records.has_decisions() {
        return odd;
    }
    let unseen = found.filter(|_| ending == Ending::Stopped);
    let unseen = unseen.and_then(|found| given_back_unseen(records, found));
    unseen.into_iter().chain(missing_kinds(records, ending != Ending::Stopped)).collect()
}

/// Replays PyTorch's own decisions, if the file has them. Where the final state is not that after the last entry, it is
/// forgotten: undoing the entries from it would invent memory at the beginning.
fn explain(records: &mut Records, environment: &Environment) -> Explained {
    let only = |found, ending, own| Explained { found, ending, trace: None, own };
    let is_cut = records.cut_off.is_some() && records.has_decisions();
    if is_cut || !records.has_segments {
        records.forget_end();
        let found = records.has_decisions().then(|| verify(records, environment));
        let own = Tally::of(&records.entries);
        return match found {
            // Of what began in the middle, or needs the pools of the final state, the model makes nothing.
            Some(found) if found.difference_count > 0 && !is_cut => {
                only(None, Ending::Unexplained, own)
            }
            found => only(found, Ending::Unknown, own),
        };
    }
    let beside = || (Draft::new(records), Tally::of(&records.entries));
    let (found, (draft, own)) = both(|| verify(records, environment), beside);
    let is_doubtful = found.difference_count > 0 || !found.start.layout.segments.is_empty();
    if !is_doubtful || records.entries.is_empty() {
        let trace = Some(draft.finish(&found.labels));
        return Explained { found: Some(found), ending: Ending::Snapshot, trace, own };
    }
    drop(draft);
    if leads_elsewhere(records) || begins_with_program(records, environment) {
        records.forget_end();
        return only(Some(verify(records, environment)), Ending::Stopped, own);
    }
    only(Some(found), Ending::Snapshot, own)
}

const NOT_HELD: &str = "it does not say what PyTorch held: entries of segments are missing, so \
                        that there is no row for the recording";

const NO_ROOM: &str = "it does not say what PyTorch held: its segments have less room than the \
                       blocks in them, so that there is no row for the recording";

/// Whether what was held had room for what was live. In snapshots that were made up it need not.
fn has_room(recorded: &RunSummary, live_peak: Bytes) -> bool {
    recorded.reserved_peak_bytes >= live_peak.max(recorded.active_peak_bytes)
}

/// What the trace knows of the recording's own row.
fn common(
    file: &str,
    trace: &Trace,
    failed: Option<usize>,
    live_peak: Bytes,
    certainty: Certainty,
) -> RunSummary {
    RunSummary {
        file: file.to_owned(),
        device: trace.device,
        allocator: RECORDED.to_owned(),
        events: trace.events.len() as u64,
        requested_peak_bytes: live_peak,
        certainty,
        first_oom_event: failed.map(|event| event as u64),
        first_oom_us: failed.and_then(|event| trace.times_us.get(event).copied()),
        ..RunSummary::default()
    }
}

fn notes(found: &Verification) -> Vec<String> {
    let mut notes = Vec::new();
    if found.difference_count > 0 {
        notes.push(format!(
            "our model of PyTorch decides otherwise than the recording in {} {}, so that its \
             peaks may be off",
            counted(found.difference_count),
            if found.difference_count == 1 { "place" } else { "places" }
        ));
    }
    if let Some(refused) = found.refused.filter(|refused| refused.was_there()) {
        notes.push(not_short(refused, found));
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
fn not_short(refused: Refused, found: &Verification) -> String {
    let free = Size(refused.device_free.unwrap_or(0));
    match (found.limit, &found.memory_range) {
        (Some(_), Some(range)) => format!(
            "a memory limit {} refused requests, while the driver had {free} free",
            range_in_words(range)
        ),
        (Some(limit), None) => format!(
            "a memory fraction that comes to about {} refused requests, while the driver had {free} \
             free",
            Size(limit)
        ),
        (None, _) => format!(
            "memory was not short when a request was refused: the driver had {free} free. What \
             refused it (a memory fraction, a MemPool, the driver) is not recorded or simulated"
        ),
    }
}
