//! How large handles are: a trade between the bytes that a handle in use keeps from being whole, and the mappings that
//! a stitch takes.
//!
//! Handles are sized after the request that needs them: a large one is made of `grain` of them or more, between a
//! quarter of the largest and the largest. Then a request wastes, and a stitch costs, about the same share at every
//! size.
//!
//! ```text
//!   largest     68 MiB │                      ╭─────── a device of 96 GiB and more
//!               34 MiB │              ╭───────╯
//!               18 MiB │      ╭───────╯              half the device, half the handle
//!                4 MiB │──────┴─────────────────── once half of the device is held (of a small one, an eighth)
//! ```
//!
//! What mapping may cost depends on the work that there is to spread it over, and each request comes with some. So the
//! more mappings were made for each request, the larger handles are made, and the fewer mappings follow: a job that
//! fills the card in a second gets large handles, and so does one that stitches all the time.

use super::Lake;
use crate::device::GRANULE;
use crate::units::{Bytes, GIB, MIB, round_up};

/// Memory of a device on which handles are as large as the options say; with half of it they are half as large. So a
/// handle that a small tensor keeps from being whole costs the same share of any device.
const FULL_SIZE: Bytes = 128 * GIB;

/// Per cent of the device's memory, held by us, from which on memory is short, and every byte counts. What is held in
/// large handles by then can be stitched only where it is free in one place, so it must not be most of the device.
const NEARLY_FULL: Bytes = 48;

/// Memory of a device below which nearly all of it is likely to be live, so that it is short from early on.
const SMALL_DEVICE: Bytes = 48 * GIB;

/// [`NEARLY_FULL`] on a small device.
const NEARLY_FULL_IF_SMALL: Bytes = 12;

/// The largest handle once memory is short.
pub(super) const SMALL: Bytes = 4 * MIB;

/// Requests that count as asked before the first one: a model is loaded in few, and large, requests.
const GRACE: u64 = 2000;

/// How many times larger than the options say handles may be made.
const MOST_HASTE: f64 = 4.0;

/// The power of two that is nearest to so many bytes.
const fn nearest_power_of_two(bytes: Bytes) -> Bytes {
    let above = bytes.next_power_of_two();
    if bytes < above / 4 * 3 { above / 2 } else { above }
}

impl Lake {
    /// The largest handle to make now.
    pub(super) fn largest_handle(&self) -> Bytes {
        let (reserved, capacity) = (self.ledger.now().reserved, self.capacity);
        let small = SMALL.min(self.options.handle);
        let is_small = capacity < SMALL_DEVICE;
        let nearly_full = if is_small { NEARLY_FULL_IF_SMALL } else { NEARLY_FULL };
        if self.is_short || reserved > capacity / 100 * nearly_full {
            return small;
        }
        let largest = self.options.handle as f64 * self.share_of_full_size() * self.haste();
        round_up(largest as Bytes, GRANULE).max(small)
    }

    /// How large the handles for a request should be.
    pub(super) fn handle_size(&self, size: Bytes) -> Bytes {
        let least = round_up(self.largest / 4, GRANULE);
        let grain = size as f64 * self.haste() / self.options.grain.max(1) as f64;
        round_up(grain as Bytes, GRANULE).clamp(least, self.largest)
    }

    /// Memory of the device as a share of [`FULL_SIZE`], at most 1, to a power of two.
    fn share_of_full_size(&self) -> f64 {
        nearest_power_of_two(self.capacity.min(FULL_SIZE)) as f64 / FULL_SIZE as f64
    }

    /// How many times larger handles are made than the options say: in proportion to the mappings made for each request
    /// so far, beyond the rate that is fair. Never on a device of less than full size: memory is worth more there.
    fn haste(&self) -> f64 {
        if self.options.rate <= 0.0 || self.share_of_full_size() < 1.0 {
            return 1.0;
        }
        let made = self.pool.count + self.tally.handles_released;
        let mappings = (made + self.tally.handles_stitched) as f64;
        let requests = (self.tally.requests + GRACE) as f64;
        (mappings / requests / self.options.rate).clamp(1.0, MOST_HASTE)
    }
}
