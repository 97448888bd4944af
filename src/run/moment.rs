//! A moment: a place in a trace, by event and by time.

use crate::trace::Trace;

/// A place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Index of the event.
    pub event: u64,
    /// Microseconds since the first event.
    pub time_us: u64,
}

impl Moment {
    /// The moment of event number `event`.
    pub fn of(trace: &Trace, event: usize) -> Self {
        let time_us = trace.times_us.get(event).copied().unwrap_or(trace.span_us());
        Self { event: event as u64, time_us }
    }
}
