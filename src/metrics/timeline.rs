//! Memory over time, thinned out to a fixed number of buckets.
//!
//! A chart has some two thousand pixels and a trace has some hundred thousand events. A bucket stands for a number of
//! consecutive events and keeps the highest values inside it, so that no peak is lost:
//!
//! ```text
//!   usage      ▁▂▇▂ ▁▁▂▁ ▃▅▃▁          the event loop only raises a running maximum ([`Watch`]), at requests;
//!   buckets     7    2    5             the buckets are closed outside of it, a thousand times less often
//! ```

use crate::allocator::{Allocator, Usage};
use crate::drive::Observer;
use crate::trace::{Event, EventKind};

/// Memory over time, in buckets of equally many events.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Events in each bucket.
    pub stride: usize,
    /// Highest usage in each bucket, in order.
    pub buckets: Vec<Usage>,
    /// The moment at which each bucket begins, in microseconds since the first event; empty if it is not known.
    pub times_us: Vec<u64>,
    open: Usage,
    filled: usize,
}

impl Timeline {
    /// Buckets for a plot: more than there are pixels in a chart's width.
    pub const BUCKETS: usize = 2000;

    /// An empty timeline for a run of `events` events.
    #[must_use]
    pub fn for_events(events: usize) -> Self {
        let stride = events.div_ceil(Self::BUCKETS).max(1);
        let buckets = Vec::with_capacity(events.div_ceil(stride));
        Self { stride, buckets, ..Self::default() }
    }

    /// The state after one more event.
    #[inline]
    pub fn push(&mut self, usage: Usage) {
        self.push_many(usage, 1);
    }

    /// The highest state in `events` more events, which must not reach over the end of a bucket.
    #[inline]
    pub fn push_many(&mut self, highest: Usage, events: usize) {
        self.open = self.open.max(highest);
        self.filled += events;
        debug_assert!(self.filled <= self.stride, "{} events in a bucket", self.filled);
        if self.filled == self.stride {
            self.finish();
        }
    }

    /// Closes the last bucket.
    pub fn finish(&mut self) {
        if self.filled > 0 {
            self.buckets.push(std::mem::take(&mut self.open));
            self.filled = 0;
        }
    }
}

/// Watches a run for its highest usage. Usage only grows when something is requested, so nothing is looked at after
/// any other event.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    highest: Usage,
}

impl Watch {
    /// The highest usage since the last call, where `now` is the present one, at which the next stretch begins.
    pub fn take(&mut self, now: Usage) -> Usage {
        std::mem::replace(&mut self.highest, now).max(now)
    }
}

impl Observer for Watch {
    #[inline]
    fn after(&mut self, _: usize, event: &Event, allocator: &dyn Allocator) {
        if matches!(event.kind, EventKind::Malloc | EventKind::Attempt) {
            self.highest = self.highest.max(allocator.usage());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_keep_the_highest_values_and_the_last_may_be_short() {
        let mut timeline = Timeline::for_events(2 * Timeline::BUCKETS + 1);
        assert_eq!(timeline.stride, 3);
        for reserved in [1, 7, 2, 4] {
            timeline.push(Usage { reserved, ..Usage::default() });
        }
        timeline.finish();
        timeline.finish();
        let reserved: Vec<_> = timeline.buckets.iter().map(|usage| usage.reserved).collect();
        assert_eq!(reserved, [7, 4]);
    }
}
