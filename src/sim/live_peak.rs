//! The peak of live bytes: the moment at which a program needs most, whatever the allocator.

use serde::Serialize;

use crate::trace::{EventKind, Trace};
use crate::units::Bytes;

/// The moment at which most bytes were live.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Peak {
    /// Bytes asked for and in use, unrounded.
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

/// The moment at which most bytes were live.
pub(super) fn live_peak(trace: &Trace) -> Option<Peak> {
    let (mut live, mut blocks): (Bytes, u64) = (0, 0);
    let mut peak: Option<Peak> = None;
    for (index, event) in trace.events.iter().enumerate() {
        match event.kind {
            EventKind::Malloc => {
                live += event.size;
                blocks += 1;
                if peak.is_none_or(|peak| live > peak.requested_bytes) {
                    let (event, time_us) = (index as u64, trace.times_us[index]);
                    peak = Some(Peak { requested_bytes: live, blocks, event, time_us, step: None });
                }
            }
            EventKind::Free | EventKind::FreeCompleted => {
                live = live.saturating_sub(event.size);
                blocks = blocks.saturating_sub(1);
            }
            EventKind::FreeRequested | EventKind::Attempt | EventKind::Trim => {}
        }
    }
    let mut peak = peak?;
    let at = peak.event as usize;
    let step = trace.steps.iter().position(|step| (step.start..step.end).contains(&at));
    peak.step = step.map(|index| index as u64 + 1);
    Some(peak)
}
