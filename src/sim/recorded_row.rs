//! The recording as a row of the table: what PyTorch held, by its own entries.

use crate::allocator::Usage;
use crate::device::CallCounts;
use crate::run::{RECORDED, Range, RunSummary, Timeline};
use crate::trace::{Action, Entry, Records, Total};
use crate::units::Bytes;
use crate::verify::Verification;

/// Entries by which an amount of memory grows, and by which it shrinks.
type Changes = (&'static [Action], &'static [Action]);
const ACTIVE: Changes = (&[Action::Alloc], &[Action::FreeCompleted]);
const HELD: Changes =
    (&[Action::SegmentAlloc, Action::SegmentMap], &[Action::SegmentFree, Action::SegmentUnmap]);

/// The row of a recording whose decisions were replayed.
pub(crate) fn of_verification(records: &Records, found: &Verification) -> RunSummary {
    let mut summary = RunSummary {
        device: records.device,
        allocator: RECORDED.to_owned(),
        requested_peak_bytes: found.peak.requested,
        active_peak_bytes: found.peak.active.max(peak_of(records, found, ACTIVE)),
        reserved_peak_bytes: found.peak.reserved.max(peak_of(records, found, HELD)),
        oom_count: failures(records),
        alloc_retries: found.retries,
        device_calls: calls(records, found),
        timeline: found.timeline.clone(),
        ..RunSummary::default()
    };
    summary.set_ratios();
    summary
}

/// The row of a file that has PyTorch's totals in place of its decisions, if it has them.
pub(crate) fn of_totals(records: &Records) -> Option<RunSummary> {
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
    let mut summary = RunSummary {
        device: records.device,
        allocator: RECORDED.to_owned(),
        requested_peak_bytes: peak(|total| total.allocated),
        active_peak_bytes: peak(|total| total.allocated),
        reserved_peak_bytes: peak(|total| total.reserved),
        oom_count: failures(records),
        timeline,
        ..RunSummary::default()
    };
    summary.set_ratios();
    Some(summary)
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
