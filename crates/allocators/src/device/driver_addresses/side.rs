//! One side of the address space: where the kernel puts the driver's ranges.
//!
//! Places are counted in steps of 32 MiB from an origin, downwards for allocations, upwards for reservations. A new
//! range takes the first gap that is large enough, else goes behind all others. For an allocation the driver asks the
//! kernel for almost a step more and gives back what it does not need, to get a multiple of 32 MiB: a gap that fits
//! exactly is passed over.
//!
//! ```text
//!   steps from the origin   0    2          6    8       11
//!                           ├────┤          ├────┤       ┆
//!                           │    │   gap    │    │ all free from here
//!   2 or 3 steps: the gap at 2;  4 steps: at 8 (the gap has no step to spare)
//! ```

use super::STEP;
use crate::holes::Holes;
use gmlake_core::units::Bytes;

#[derive(Debug, Clone)]
pub(super) struct Side {
    origin: u64,
    down: bool,
    /// In steps.
    gaps: Holes,
    /// From here on all is free.
    end: u64,
}

impl Side {
    pub(super) fn new(origin: u64, down: bool) -> Self {
        Self { origin, down, gaps: Holes::default(), end: 0 }
    }

    /// The lowest address in use on a side that goes down.
    pub(super) fn bottom(&self) -> u64 {
        self.origin - self.end * STEP
    }

    /// The end of what is in use on a side that goes up.
    pub(super) fn top(&self) -> u64 {
        self.origin + self.end * STEP
    }

    /// Whether a range at this address is one of a side that goes up.
    pub(super) fn holds(&self, base: u64) -> bool {
        (self.origin..self.top()).contains(&base)
    }

    /// The address of a new range; `None` when the addresses run out.
    pub(super) fn take(&mut self, size: Bytes) -> Option<u64> {
        let steps = size / STEP;
        let spare = u64::from(self.down);
        let Some(first) = self.gaps.first(steps + spare) else { return self.take_end(steps) };
        self.gaps.take(first, steps);
        Some(self.address(first, steps))
    }

    pub(super) fn give(&mut self, base: u64, size: Bytes) {
        let steps = size / STEP;
        let first = if self.down {
            (self.origin - base) / STEP - steps
        } else {
            (base - self.origin) / STEP
        };
        let (first, length) = self.gaps.give(first, steps, |_| false);
        if first + length == self.end {
            self.gaps.take(first, length);
            self.end = first;
        }
    }

    fn take_end(&mut self, steps: u64) -> Option<u64> {
        let room = if self.down { self.origin } else { u64::MAX - self.origin };
        let end = self.end.checked_add(steps)?;
        if end > room / STEP {
            return None;
        }
        let first = std::mem::replace(&mut self.end, end);
        Some(self.address(first, steps))
    }

    fn address(&self, first: u64, steps: u64) -> u64 {
        if self.down { self.origin - (first + steps) * STEP } else { self.origin + first * STEP }
    }
}
