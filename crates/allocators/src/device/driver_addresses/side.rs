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

use std::collections::BTreeMap;

use super::STEP;
use super::heights::Heights;
use gmlake_core::units::Bytes;

#[derive(Debug, Clone)]
pub(super) struct Side {
    origin: u64,
    down: bool,
    /// Lengths of the gaps, by the steps at which they begin.
    gaps: BTreeMap<u64, u64>,
    lengths: Heights,
    /// From here on all is free.
    end: u64,
}

impl Side {
    pub(super) fn new(origin: u64, down: bool) -> Self {
        Self { origin, down, gaps: BTreeMap::new(), lengths: Heights::default(), end: 0 }
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
        let first = match self.lengths.first_at_least(steps + spare) {
            Some(first) => first as u64,
            None => return self.take_end(steps),
        };
        let length = self.remove(first);
        self.insert(first + steps, length - steps);
        Some(self.address(first, steps))
    }

    pub(super) fn give(&mut self, base: u64, size: Bytes) {
        let steps = size / STEP;
        let mut first = if self.down {
            (self.origin - base) / STEP - steps
        } else {
            (base - self.origin) / STEP
        };
        let mut end = first + steps;
        let before = self.gaps.range(..first).next_back().map(|(&start, &length)| (start, length));
        if let Some((start, length)) = before
            && start + length == first
        {
            self.remove(start);
            first = start;
        }
        if self.gaps.contains_key(&end) {
            end += self.remove(end);
        }
        if end == self.end {
            self.end = first;
        } else {
            self.insert(first, end - first);
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

    fn insert(&mut self, first: u64, length: u64) {
        if length > 0 {
            self.gaps.insert(first, length);
            self.lengths.set(first as usize, length);
        }
    }

    fn remove(&mut self, first: u64) -> u64 {
        self.lengths.set(first as usize, 0);
        self.gaps.remove(&first).unwrap_or(0)
    }
}
