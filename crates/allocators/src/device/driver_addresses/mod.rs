//! Addresses as the CUDA driver hands them out.
//!
//! The driver asks the kernel for ranges of address space, in multiples of 32 MiB, and cuts allocations out of them:
//!
//! ```text
//!                      low                                                                    high
//!   take(198 MiB)                                         ┌─ range of 224 MiB ──────────┬────┐
//!                                                         │ 198                         │ 26 │
//!   take(20), take(32)                      ┌─ 32 MiB ────┼─────────────────────────────┼──┬─┤
//!                                           │ 32          │ 198                         │20│6│
//!                                           └─────────────┴─────────────────────────────┴──┴─┘
//!   a range is new: the highest gap                       an allocation: the newest range that has a hole for it,
//!   that is 32 MiB larger                                 there the smallest such hole, of equals the lowest
//! ```
//!
//! A range goes back once nothing is left in it. Reservations share the ranges, but begin one of their own upwards from
//! 12 GiB, and take the first hole in place of the smallest. Requests below 2 MiB share pages ([`small`]).
//!
//! Found on an H200 under driver 580.159, from 6,614 calls of programs that allocate, free and reserve; then 1,266 of
//! 1,266 calls of programs written afterwards got these addresses (`tests/data/driver_addresses.py`). In a process the
//! other mappings of the kernel, which cannot be known, move the ranges; their order mostly stays
//! (`reports/addresses.md`).

mod heights;
mod range;
mod side;
mod small;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use self::heights::Heights;
use self::range::Range;
use self::side::Side;
use self::small::Small;
use super::GRANULE;
use gmlake_core::units::{Bytes, MIB, round_up};

/// Ranges are multiples of this, in size and place.
const STEP: Bytes = 32 * MIB;
/// Where reservations begin.
const LOWEST_RESERVATION: u64 = 0x3_0200_0000;
/// What a context takes before the program does, the oldest first: range, and how much of it. As on an H200.
const CONTEXT: [(Bytes, Bytes); 2] = [(96 * MIB, 72 * MIB), (416 * MIB, 414 * MIB)];

/// How a hole is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Smallest,
    Lowest,
}

/// The address space of a process, and what of it the driver has handed out.
#[derive(Debug, Clone)]
pub struct DriverAddresses {
    /// Ranges of allocations, counted downwards.
    high: Side,
    /// Ranges of reservations, counted upwards.
    low: Side,
    /// By address.
    ranges: BTreeMap<u64, Range>,
    /// The address of each range, in the order in which they came; some are gone.
    births: Vec<u64>,
    /// The largest hole of each.
    largest: Heights,
    /// Sizes, by address.
    taken: FxHashMap<u64, Bytes>,
    small: Small,
}

impl DriverAddresses {
    /// All addresses below `top`.
    pub fn new(top: u64) -> Self {
        Self {
            high: Side::new(top / STEP * STEP, true),
            low: Side::new(LOWEST_RESERVATION, false),
            ranges: BTreeMap::new(),
            births: Vec::new(),
            largest: Heights::default(),
            taken: FxHashMap::default(),
            small: Small::new(),
        }
    }

    /// All addresses below `top`, less those that a new context takes.
    pub fn with_context(top: u64) -> Self {
        let mut addresses = Self::new(top);
        for (size, taken) in CONTEXT {
            // A range is made as large as what is asked of it: the whole is taken first.
            if let Some(at) = addresses.take(size) {
                addresses.taken.insert(at, taken);
                addresses.free(at + taken, size - taken);
            }
        }
        addresses
    }

    /// The address of a new allocation; `None` when there is no room left.
    pub fn take(&mut self, size: Bytes) -> Option<u64> {
        if Small::is_for(size) {
            if let Some(at) = self.small.take(size) {
                return Some(at);
            }
            let page = self.take_granules(GRANULE, Choice::Smallest)?;
            return Some(self.small.take_new(page, size));
        }
        self.take_granules(size.checked_next_multiple_of(GRANULE)?, Choice::Smallest)
    }

    /// The address of a new reservation; `None` when there is no room left.
    pub fn reserve(&mut self, size: Bytes) -> Option<u64> {
        self.take_granules(size.checked_next_multiple_of(GRANULE)?, Choice::Lowest)
    }

    /// What was allocated or reserved at this address is free again.
    ///
    /// # Panics
    ///
    /// Panics if nothing was.
    pub fn give(&mut self, at: u64) {
        if self.small.holds(at) {
            if let Some(page) = self.small.give(at) {
                self.give(page);
            }
            return;
        }
        let size = self.taken.remove(&at).unwrap_or_else(|| panic!("nothing was taken at {at:#x}"));
        self.free(at, size);
    }

    fn take_granules(&mut self, size: Bytes, choice: Choice) -> Option<u64> {
        let newest = self.largest.last_at_least(size);
        let base = newest.map(|birth| self.births[birth]);
        let base = base.or_else(|| self.add_range(round_up(size, STEP), choice))?;
        let range = self.ranges.get_mut(&base)?;
        let at = range.take(size, choice)?;
        self.largest.set(range.birth, range.largest());
        self.taken.insert(at, size);
        Some(at)
    }

    fn add_range(&mut self, size: Bytes, choice: Choice) -> Option<u64> {
        let side = if choice == Choice::Smallest { &mut self.high } else { &mut self.low };
        let base = side.take(size)?;
        if self.high.bottom() < self.low.top() {
            let side = if choice == Choice::Smallest { &mut self.high } else { &mut self.low };
            side.give(base, size);
            return None;
        }
        if self.births.len() > 2 * self.ranges.len() + 64 {
            self.renumber();
        }
        let range = Range::new(base, size, self.births.len());
        self.births.push(base);
        self.largest.set(range.birth, size);
        self.ranges.insert(base, range);
        Some(base)
    }

    /// Ranges that are gone leave numbers behind.
    fn renumber(&mut self) {
        let mut ranges: Vec<_> = self.ranges.values_mut().collect();
        ranges.sort_unstable_by_key(|range| range.birth);
        self.births.clear();
        self.largest = Heights::default();
        for (birth, range) in ranges.into_iter().enumerate() {
            range.birth = birth;
            self.births.push(range.base);
            self.largest.set(birth, range.largest());
        }
    }

    fn free(&mut self, at: u64, size: Bytes) {
        let Some((&base, range)) = self.ranges.range_mut(..=at).next_back() else { return };
        range.give(at, size);
        let (birth, whole) = (range.birth, range.size);
        if range.largest() < whole {
            self.largest.set(birth, range.largest());
            return;
        }
        self.largest.set(birth, 0);
        self.ranges.remove(&base);
        let side = if self.low.holds(base) { &mut self.low } else { &mut self.high };
        side.give(base, whole);
    }
}

#[cfg(test)]
mod tests;
