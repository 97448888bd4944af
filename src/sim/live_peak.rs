//! The peak of live bytes: the moment at which a program needs most, whatever the allocator.

use std::ops::Range;

use serde::Serialize;

use crate::trace::{Trace, live};
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

/// The first event of a range after which most bytes are live in it, and how many; `None` of a range without events.
pub(crate) fn most_live(trace: &Trace, range: Range<usize>) -> Option<(usize, Bytes, u64)> {
    let events = live(trace).enumerate().take(range.end).skip(range.start);
    let states = events.map(|(event, (bytes, blocks))| (event, bytes, blocks));
    states.reduce(|most, state| if state.1 > most.1 { state } else { most })
}

/// The moment at which most bytes were live.
pub(crate) fn live_peak(trace: &Trace) -> Option<Peak> {
    let (at, requested_bytes, blocks) = most_live(trace, 0..trace.events.len())?;
    let step = trace.steps.iter().position(|step| (step.start..step.end).contains(&at));
    let step = step.map(|index| index as u64 + 1);
    let (event, time_us) = (at as u64, trace.times_us[at]);
    (requested_bytes > 0).then_some(Peak { requested_bytes, blocks, event, time_us, step })
}
