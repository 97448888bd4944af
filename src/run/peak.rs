//! The peak: what an allocator held at the moment at which it held most. A moment is a place in a trace, by event and
//! by time.

use super::causes::{Causes, Growth};
use crate::allocator::{BlockView, Usage};
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

/// A block at the peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeakBlock {
    /// The block.
    pub view: BlockView,
    /// When it was asked for, if it is in use.
    pub since: Option<Moment>,
}

/// All that was held when a request had just made an allocator hold more than ever before.
#[derive(Debug, Clone, Default)]
pub struct Peak {
    /// The event; `None`: it was so at the beginning.
    pub moment: Option<Moment>,
    /// The usage then.
    pub usage: Usage,
    /// The request that forced the growth.
    pub growth: Option<Growth>,
    /// Where the memory went that was not asked for: reserved minus requested, to the byte.
    pub causes: Causes,
    /// Every block, in address order.
    pub blocks: Vec<PeakBlock>,
}
