//! The recording as a row of the table: what PyTorch held, by its own entries.

use crate::allocator::Usage;
use crate::device::CallCounts;
use crate::run::{RunSummary, Timeline, utilization};
use crate::simulation::Range;
use crate::trace::{Action, Entry, Records, Total};
use crate::units::Bytes;
use crate::verify::Verification;

/// The row of a recording, by its decisions where they were replayed, else by its totals; `None` if it has neither.
/// `own` is what its entries come to, and `common` what the trace knows of it.
pub(crate) fn row(
    records: &Records,
    found: Option<&Verification>,
    own: &Tally,
    common: RunSummary,
) -> Option<RunSummary> {
    let row = match found {
        Some(found) => of_verification(found, own, common),
        None => of_totals(records, own, common)?,
    };
    let utilization = utilization(row.active_peak_bytes, row.reserved_peak_bytes);
    Some(RunSummary { utilization, fragmentation: 1.0 - utilization, ..row })
}

fn of_verification(found: &Verification, own: &Tally, common: RunSummary) -> RunSummary {
    let (mem_alloc, mem_free) = (own.mem_alloc, own.mem_free);
    // What was there when the recording began is known to the replay only.
    let is_whole = found.start.layout.segments.is_empty();
    let held_peak = if is_whole { own.held.peak } else { 0 };
    let live_peak = common.requested_peak_bytes;
    RunSummary {
        requested_peak_bytes: found.peak.requested.max(live_peak),
        active_peak_bytes: found.peak.active.max(live_peak),
        reserved_peak_bytes: found.peak.reserved.max(held_peak),
        oom_count: own.failures,
        alloc_retries: found.retries,
        device_calls: CallCounts { mem_alloc, mem_free, ..found.device_calls },
        timeline: found.timeline.clone(),
        ..common
    }
}

fn of_totals(records: &Records, own: &Tally, common: RunSummary) -> Option<RunSummary> {
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
        oom_count: own.failures,
        timeline,
        ..common
    })
}

/// What the entries of a recording come to by themselves, from zero on: a replay that has given up does not come that
/// far. Calls of the virtual memory management are not here; the model knows how large the pages are.
#[derive(Default)]
pub(crate) struct Tally {
    held: Level,
    failures: u64,
    mem_alloc: u64,
    mem_free: u64,
}

impl Tally {
    /// Adds them up.
    pub(crate) fn of(entries: &[Entry]) -> Self {
        let mut tally = Self::default();
        for entry in entries {
            match entry.action {
                Action::SegmentAlloc => {
                    tally.held.grow(entry.size);
                    tally.mem_alloc += 1;
                }
                Action::SegmentFree => {
                    tally.held.shrink(entry.size);
                    tally.mem_free += 1;
                }
                Action::SegmentMap => tally.held.grow(entry.size),
                Action::SegmentUnmap => tally.held.shrink(entry.size),
                Action::Oom => tally.failures += 1,
                _ => {}
            }
        }
        tally
    }
}

/// An amount of memory, and the most that it was.
#[derive(Default, Clone, Copy)]
struct Level {
    now: Bytes,
    peak: Bytes,
}

impl Level {
    fn grow(&mut self, bytes: Bytes) {
        self.now += bytes;
        self.peak = self.peak.max(self.now);
    }

    fn shrink(&mut self, bytes: Bytes) {
        self.now = self.now.saturating_sub(bytes);
    }
}
