//! Reconstruction: from what a file says to what the program did.
//!
//! PyTorch's own decisions tell what the entries do not say in words: what was live at the beginning, when the cache
//! was emptied, which pool was asked. They also tell where a recording is not the whole job (see `coverage`).
//!
//! ```text
//!   Records ──▶ does the history lead to the final state? ──no──▶ forget the final state
//!                                   │yes                                  │
//!                                   ▼                                     ▼
//!                      verify: PyTorch's model makes every recorded decision again ──▶ Labels ──▶ Trace
//! ```

use super::coverage::{self, Ending};
use super::opened::Opened;
use super::places::ends_before_backward;
use super::recorded_row::row;
use crate::alloc_conf::TorchVersion;
use crate::allocator::Environment;
use crate::run::{RECORDED, RunSummary};
use crate::trace::{Labels, Records, Trace, ingest, peak_live_bytes};
use crate::units::{Bytes, Size};
use crate::verify::{Refused, Verification, begins_with_program, unseen_start, verify};

/// Works out what the program did on one of the file's devices.
pub(crate) fn reconstruct(
    file: String,
    mut records: Records,
    devices: Vec<(u32, usize)>,
    version: Option<TorchVersion>,
) -> Opened {
    let environment = environment(&records, version);
    let (found, ending) = explain(&mut records, &environment);
    let mut labels = found.as_ref().map_or_else(Labels::default, |found| found.labels.clone());
    if !records.has_segments && labels.start.is_empty() {
        labels.start = unseen_start(&records);
    }
    let trace = ingest(&records, &labels);
    let mut coverage = coverage::find(&records, found.as_ref(), &trace, ending);
    if coverage.ends_in_first_step() && ends_before_backward(&records) {
        coverage = coverage.without_backward();
    }
    let mut notes = found.as_ref().map(notes).unwrap_or_default();
    let common = common(&file, &trace, coverage.is_lower_bound());
    let recorded = row(&records, found.as_ref(), common);
    let recorded = recorded.filter(|row| {
        let has_room = has_room(row, &trace);
        if !has_room && records.has_segments {
            notes.push(NO_ROOM.to_owned());
        }
        has_room
    });
    let found = found.unwrap_or_default();
    let (refused, kept_cache) = (found.refused, found.diverted > 0);
    let (limit, capacity, start) = (found.limit, found.capacity, found.start.layout);
    Opened {
        file,
        devices,
        refused,
        kept_cache,
        records,
        trace,
        coverage,
        start,
        limit,
        capacity,
        notes,
        recorded,
        ..Opened::default()
    }
}

fn environment(records: &Records, version: Option<TorchVersion>) -> Environment {
    let conf = records.settings.clone().unwrap_or_default();
    let version = version.unwrap_or_else(|| records.version());
    Environment { version, ..Environment::new(conf) }
}

/// Replays PyTorch's own decisions, if the file has them. Where the final state is not that after the last entry, it is
/// forgotten: undoing the entries from it would invent memory at the beginning.
fn explain(records: &mut Records, environment: &Environment) -> (Option<Verification>, Ending) {
    if records.cut_off.is_some() {
        records.forget_end();
        return (Some(verify(records, environment)), Ending::Unknown);
    }
    if !records.has_segments {
        return (None, Ending::Unknown);
    }
    let found = verify(records, environment);
    let is_doubtful = found.difference_count > 0 || !found.start.layout.segments.is_empty();
    if is_doubtful && !records.entries.is_empty() && begins_with_program(records, environment) {
        records.forget_end();
        return (Some(verify(records, environment)), Ending::Stopped);
    }
    (Some(found), Ending::Snapshot)
}

const NO_ROOM: &str = "it does not say what PyTorch held: its segments have less room than the \
                       blocks in them, so that there is no row for the recording";

/// Whether what was held had room for what was live. In snapshots that were made up it need not.
fn has_room(recorded: &RunSummary, trace: &Trace) -> bool {
    let live = peak_live_bytes(trace);
    recorded.reserved_peak_bytes >= live.max(recorded.active_peak_bytes)
}

/// What the trace knows of the recording's own row.
fn common(file: &str, trace: &Trace, is_lower_bound: bool) -> RunSummary {
    let failed = trace.first_failure();
    RunSummary {
        file: file.to_owned(),
        device: trace.device,
        allocator: RECORDED.to_owned(),
        events: trace.events.len() as u64,
        is_lower_bound,
        first_oom_event: failed.map(|event| event as u64),
        first_oom_us: failed.and_then(|event| trace.times_us.get(event).copied()),
        ..RunSummary::default()
    }
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
             refused it (a memory fraction, a MemPool, the driver) is not recorded or simulated"
        ),
    }
}
