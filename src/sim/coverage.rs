//! Coverage: finds out how much of the job a recording shows.

use crate::trace::{
    Coverage, CoverageKind, Event, EventKind, Gap, Records, Trace, WarningKind, live,
};
use crate::units::Bytes;
use crate::verify::Verification;

/// What the end of a recording is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The snapshot's own state.
    Snapshot,
    /// The history stopped before the snapshot was taken.
    Stopped,
    /// The file does not say what was held at the end.
    Unknown,
    /// The same, and the entries alone do not explain what PyTorch did.
    Unexplained,
}

/// How much of its job a recording shows.
pub(crate) fn find(
    records: &Records,
    found: Option<&Verification>,
    trace: &Trace,
    ending: Ending,
) -> Coverage {
    let is_state = records.entries.is_empty() && records.left_out == 0;
    let cut_off = records.cut_off.clone().map(|what| Gap::CutOff { what });
    let exported = records.marks.is_partial.then_some(Gap::Exported);
    // What the file itself says that it lacks.
    let of_file = [is_state.then_some(Gap::StateOnly), cut_off, exported];
    let mut gaps: Vec<Gap> = of_file.into_iter().flatten().collect();
    if is_state {
        return Coverage::new(gaps);
    }
    let leads_elsewhere = found.and_then(|found| found.differences.first());
    let leads_elsewhere = leads_elsewhere.is_some_and(|d| d.entry >= records.entries.len());
    if ending == Ending::Stopped || leads_elsewhere {
        gaps.push(Gap::HistoryStopped);
    }
    let unexplained = unexplained(trace);
    if unexplained > 0 {
        gaps.push(Gap::EntriesMissing { count: unexplained });
    }
    let of_segments = count(trace, &[WarningKind::DriverEntries]);
    if of_segments > 0 {
        gaps.push(Gap::SegmentsMissing { count: of_segments });
    }
    let differs = found.is_some_and(|found| found.difference_count > 0);
    if ending == Ending::Unexplained || ending != Ending::Snapshot && differs {
        gaps.push(Gap::NoFinalState);
    }
    gaps.extend(late_start(records, found, trace));
    gaps.extend(out_of_memory(trace));
    if !gaps.iter().any(|gap| gap.kind() != CoverageKind::StartedLate) {
        gaps.extend(unfinished(trace).filter(|_| records.has_segments));
    }
    Coverage::new(gaps)
}

/// Entries that no complete history has.
fn unexplained(trace: &Trace) -> u64 {
    let kinds = [
        WarningKind::UnknownFree,
        WarningKind::DoubleAlloc,
        WarningKind::DoubleFree,
        WarningKind::BlockEntries,
        WarningKind::AbsurdSize,
    ];
    count(trace, &kinds)
}

fn count(trace: &Trace, kinds: &[WarningKind]) -> u64 {
    let of = trace.warnings.iter().filter(|warning| kinds.contains(&warning.kind));
    of.map(|warning| warning.count).sum()
}

/// Whether memory was held before the first entry.
fn late_start(records: &Records, found: Option<&Verification>, trace: &Trace) -> Option<Gap> {
    let live = live_at_start(trace);
    let held: Bytes = found
        .map_or(0, |found| found.start.layout.segments.iter().map(|segment| segment.size).sum());
    if live == 0 && held == 0 {
        return None;
    }
    let entries = records.entries.len();
    Some(match is_round(entries) {
        true => Gap::TailOnly { entries },
        false => Gap::StartedLate { live, held },
    })
}

/// Bytes requested by the blocks that were live before the first entry.
fn live_at_start(trace: &Trace) -> Bytes {
    let start = &trace.events[..trace.start_events];
    start.iter().filter(|event| event.kind == EventKind::Malloc).map(|event| event.size).sum()
}

/// Whether a person would have chosen this number as the size of a ring buffer.
fn is_round(entries: usize) -> bool {
    entries >= 100 && (entries.is_multiple_of(100) || entries.is_power_of_two())
}

/// The last request that failed.
fn out_of_memory(trace: &Trace) -> Option<Gap> {
    let failed = |event: &Event| event.kind == EventKind::Attempt;
    let sized = trace.events.iter().rposition(failed);
    let at = sized.max(trace.unsized_failures.last().copied())?;
    let served = |event: &&Event| event.kind == EventKind::Malloc;
    let (before, after) = trace.events.split_at(at);
    let count = |events: &[Event]| events.iter().filter(served).count();
    // Cleaning up takes a few requests, too.
    let is_last = count(after) * 100 <= count(before);
    Some(Gap::OutOfMemory { step: trace.step_at(at), is_last, before_backward: false })
}

/// A step that was not finished when the recording ended. Without steps, all that tells is that memory still grew.
fn unfinished(trace: &Trace) -> Option<Gap> {
    let last_step = trace.steps.last();
    let last_of_step = last_step.map(|step| step.end.saturating_sub(1));
    let (mut end, mut before, mut peak, mut grew) = (None, 0, 0, 0);
    for (event, live) in live(trace).enumerate() {
        end = Some(live.bytes);
        if Some(event) == last_of_step {
            before = live.bytes;
        }
        if live.bytes > peak {
            (peak, grew) = (live.bytes, event);
        }
    }
    let end = end?;
    if last_step.is_none() {
        let is_late = 100 * grew >= 99 * trace.events.len();
        return (is_late && 10 * end >= 9 * peak).then_some(Gap::Growing);
    }
    let range = peak.saturating_sub(before);
    (range > 0 && 10 * end.saturating_sub(before) >= range)
        .then(|| Gap::MidStep { step: trace.steps.len() + 1 })
}
