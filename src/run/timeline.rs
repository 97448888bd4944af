//! Memory over time, thinned out to a few thousand buckets of equal duration.
//!
//! A chart has some two thousand pixels and a trace has some hundred thousand events. A bucket stands for a stretch of
//! time, and keeps the lowest and the highest value inside it and at its beginning, so that no peak is lost, no valley
//! either, and each is drawn where it was:
//!
//! ```text
//!   events     ▁▂▇▂▁▂▁▂▁▃▅▃▁▂▁ ▂      ▂         training is busy, then it waits; the event loop raises and lowers
//!   time       |       |       |       |         a running range (`Extremes`), and the buckets are closed outside of
//!   buckets     1..7    1..5    1..2    2..2     it, a hundred times less often
//! ```
//!
//! Buckets of equally many *events* would be long where little happens: a peak at the end of such a bucket would be
//! drawn at its beginning, and two timelines that count other things (a recording its entries, a run its events) would
//! be drawn side by side. Where a file has no times, there is nothing but the count.

use crate::allocator::Usage;
use crate::simulation::Range;
use crate::units::Bytes;

/// Memory over time, in buckets of equal duration.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// Where the axis ends: microseconds since the first event, or the number of the last event if there are no times.
    pub end: u64,
    /// Length of each bucket, in the same unit.
    pub width: u64,
    /// What was seen in each bucket, in order. A run that ended early has fewer.
    pub buckets: Vec<Range>,
    last: Usage,
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new(0, Usage::default())
    }
}

impl Timeline {
    /// Buckets at most: more than there are pixels in a chart's width, so that one can zoom in.
    pub const BUCKETS: u64 = 4800;

    /// The timeline of a run that ends at `end` (microseconds, or the number of its last event) and begins with
    /// `start`.
    pub fn new(end: u64, start: Usage) -> Self {
        Self { end, width: end / Self::BUCKETS + 1, buckets: Vec::new(), last: start }
    }

    /// Where bucket number `index` begins.
    pub fn start_of(&self, index: usize) -> u64 {
        index as u64 * self.width
    }

    /// Where the bucket ends that a stretch from `at` on is counted with: mostly the open one or the next, which takes
    /// no division.
    pub fn border_after(&self, at: u64) -> u64 {
        let open = self.start_of(self.buckets.len());
        match at {
            _ if at < open => open,
            _ if at < open + self.width => open + self.width,
            _ => (at / self.width + 1) * self.width,
        }
    }

    /// Adds what was `seen` in a stretch that lies within one bucket, and at whose end the usage is `now`. Until the
    /// stretch begins, all stays as it was. A stretch that begins before the last one is counted with that.
    pub fn push(&mut self, at: u64, seen: Range, now: Usage) {
        while self.start_of(self.buckets.len()) <= at.min(self.end) {
            self.buckets.push(Range::of(self.last));
        }
        if let Some(open) = self.buckets.last_mut() {
            *open = open.and(seen);
        }
        self.last = now;
    }

    /// The highest reserved memory, in bytes, and where the first bucket begins that has it; `None` if it is empty.
    pub fn peak(&self) -> Option<(u64, Bytes)> {
        let highest = self.buckets.iter().map(|bucket| bucket.high.reserved).max()?;
        let index = self.buckets.iter().position(|bucket| bucket.high.reserved == highest)?;
        Some((self.start_of(index), highest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(reserved: Bytes) -> Usage {
        Usage { reserved, ..Usage::default() }
    }

    fn ranges(timeline: &Timeline) -> Vec<(Bytes, Bytes)> {
        timeline.buckets.iter().map(|b| (b.low.reserved, b.high.reserved)).collect()
    }

    #[test]
    fn a_bucket_keeps_its_lowest_and_highest_values_and_begins_as_the_one_before_ended() {
        let mut timeline = Timeline::new(3 * Timeline::BUCKETS - 1, usage(2));
        assert_eq!(timeline.width, 3);
        for (at, reserved) in [(0, 1), (1, 7), (2, 4), (3, 5), (9, 3)] {
            timeline.push(at, Range::of(usage(reserved)), usage(reserved));
        }
        assert_eq!(ranges(&timeline), [(1, 7), (4, 5), (5, 5), (3, 5)]);
        assert_eq!(timeline.peak(), Some((0, 7)));
    }

    #[test]
    fn time_that_runs_backwards_or_beyond_the_end_loses_nothing() {
        let mut timeline = Timeline::new(1, usage(0));
        for (at, reserved) in [(1, 3), (0, 9), (70, 1)] {
            timeline.push(at, Range::of(usage(reserved)), usage(reserved));
        }
        assert_eq!(ranges(&timeline), [(0, 0), (0, 9)]);
        let far = u64::MAX / 2;
        assert_eq!(timeline.border_after(far), far + 1);
    }

    #[test]
    fn there_are_never_more_buckets_than_that() {
        for end in [0, 1, 4799, 4800, 4801, 9600, 52_000_000] {
            let mut timeline = Timeline::new(end, usage(0));
            timeline.push(end, Range::of(usage(1)), usage(1));
            assert!(timeline.buckets.len() as u64 <= Timeline::BUCKETS, "{end}");
        }
    }
}
