//! The recording as a row of the table: what PyTorch held, by its own entries.

use crate::allocator::Usage;
use crate::device::CallCounts;
use crate::run::{RunSummary, Timeline, utilization};
use crate::simulation::Range;
use crate::trace::{Action, Entry, Records, Total};
use crate::units::Bytes;
use crate::verify::Verification;

/// Entries by which an amount of memory grows, and by which it shrinks.
type Changes = (&'static [Action], &'static [Action]);
const ACTIVE: Changes = (&[Action::Alloc], &[Action::FreeCompleted]);
const HELD: Changes =
    (&[Action::SegmentAlloc, Action::SegmentMap], &[Action::SegmentFree, Action::SegmentUnmap]);

/// The row of a recording, by its decisions where they were replayed, else by its totals; `None` if it has neither.
/// `common` is what the trace knows of it.
pub(crate) fn row(
    records: &Records,
    found: Option<&Verification>,
    common: RunSummary,
) -> Option<RunSummary> {
    let row = match found {
        Some(found) => of_verification(records, found, common),
        None => of_totals(records, common)?,
    };
    let utilization = utilization(row.active_peak_bytes, row.reserved_peak_bytes);
    Some(RunSummary { utilization, fragmentation: 1.0 - utilization, ..row })
}

fn of_verification(records: &Records, found: &Verification, common: RunSummary) -> RunSummary {
    RunSummary {
        requested_peak_bytes: found.peak.requested,
        active_peak_bytes: found.peak.active.max(peak_of(records, found, ACTIVE)),
        reserved_peak_bytes: found.peak.reserved.max(peak_of(records, found, HELD)),
        oom_count: failures(records),
        alloc_retries: found.retries,
        device_calls: calls(records, found),
        timeline: found.timeline.clone(),
        ..common
    }
}

fn of_totals(records: &Records, common: RunSummary) -> Option<RunSummary> {
    let totals = &records.totals;
    let usage = |total: &Total| Usage {
        requested: total.allocated,
        allocated: total.allocated,
        active: total.allocated,
        reserved: total.reserved,
    };
    let first = totals.first()?;
    let mut timeline = Timeline::new(records.axis_end(), usage(first));
    for total in totals {
        timeline.push(records.place_of(total.entry), Range::of(usage(total)), usage(total));
    }
    let peak = |of: fn(&Total) -> Bytes| totals.iter().map(of).max().unwrap_or(0);
    Some(RunSummary {
        requested_peak_bytes: peak(|total| total.allocated),
        active_peak_bytes: peak(|total| total.allocated),
        reserved_peak_bytes: peak(|total| total.reserved),
        oom_count: failures(records),
        timeline,
        ..common
    })
}

fn failures(records: &Records) -> u64 {
    records.entries.iter().filter(|entry| entry.action == Action::Oom).count() as u64
}

/// Driver calls in the recording. Calls of the virtual memory management are those of the model, which knows how large
/// the pages are; the others are entries of their own.
fn calls(records: &Records, found: &Verification) -> CallCounts {
    let is = |action: Action| move |entry: &&Entry| entry.action == action;
    let count = |action: Action| records.entries.iter().filter(is(action)).count() as u64;
    CallCounts {
        mem_alloc: count(Action::SegmentAlloc),
        mem_free: count(Action::SegmentFree),
        ..found.device_calls
    }
}

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
