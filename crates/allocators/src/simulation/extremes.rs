//! The lowest and the highest usage of a run, and when most was reserved.

use crate::allocator::{Held, Usage};
use crate::drive::{Observer, Step};
use gmlake_core::program::EventKind;
use gmlake_core::units::Bytes;

/// The lowest and the highest value of each number within a stretch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Range {
    /// The lowest values.
    pub low: Held,
    /// The highest values.
    pub high: Held,
}

impl Range {
    /// Nothing but one state.
    pub const fn of(usage: Usage) -> Self {
        Self { low: Held::of(usage), high: Held::of(usage) }
    }

    /// Both stretches as one.
    #[inline]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// Follows the lowest and highest usage of a run, and notes the event at which most was reserved.
#[derive(Debug, Clone)]
pub struct Extremes {
    seen: Range,
    reserved: Bytes,
    /// The most so far; of `active` up to the last stretch.
    most: Held,
    /// Index of the first event in which as much was reserved as never before or after; `None`: it was so at the
    /// beginning.
    pub peak_event: Option<usize>,
}

impl Extremes {
    /// Those of a run that begins with `usage`.
    pub fn new(usage: Usage) -> Self {
        let most = Held::of(usage);
        Self { seen: Range::of(usage), reserved: most.reserved, most, peak_event: None }
    }

    /// What was seen since the last call, where `now` is the present usage, with which the next stretch begins.
    pub fn take(&mut self, now: Usage) -> Range {
        self.most.active = self.most.active.max(self.seen.high.active);
        std::mem::replace(&mut self.seen, Range::of(now))
    }

    /// After event number `index` this much is reserved, and during it `most` was. That seldom changes, and takes plain
    /// numbers: a [`Step`] that leaves the loop would be put together for each event.
    #[inline(never)]
    fn reserve(&mut self, reserved: Bytes, most: Bytes, index: usize) {
        self.reserved = reserved;
        let Range { low, high } = &mut self.seen;
        low.reserved = low.reserved.min(reserved);
        high.reserved = high.reserved.max(reserved);
        if most > self.most.reserved {
            (self.most.reserved, self.peak_event) = (most, Some(index));
            high.reserved = high.reserved.max(most);
        }
    }

    /// Up to the end of an attempt this much was active at most.
    fn attempt(&mut self, most: Bytes) {
        let high = &mut self.seen.high;
        if most > self.most.active {
            high.active = high.active.max(most);
        }
    }
}

impl<D> Observer<D> for Extremes {
    #[inline]
    fn after(&mut self, step: &mut Step<'_, D>) {
        let Held { active, reserved } = step.allocator.held();
        let Range { low, high } = &mut self.seen;
        low.active = low.active.min(active);
        high.active = high.active.max(active);
        // What an attempt gets is given back before we look, but it was held.
        let is_attempt = step.event.kind == EventKind::Attempt;
        if reserved != self.reserved || is_attempt {
            let mut most = reserved;
            if is_attempt {
                let peak = step.allocator.peak();
                most = peak.reserved;
                self.attempt(peak.active);
            }
            self.reserve(reserved, most, step.index);
        }
    }
}
