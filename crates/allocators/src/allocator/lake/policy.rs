//! Policy: how much memory is held, and in which pieces it comes.
//!
//! *How much.* The budget is the most that was ever live, and a little slack. Within it a request that finds no room
//! gets new memory; beyond it, memory that is free must be put together first. So stitching happens only where it saves
//! memory.
//!
//! *In which sizes.* The driver charges for mapping by the handle, and what is free in a handle that is partly in use
//! cannot be stitched but at its two ends. Handles are half as large as the request that needs them, between `handle`
//! and four times that: small tensors, of which many outlive their neighbours, lie in small handles. The less memory
//! the device has left, the smaller all are.
//!
//! ```text
//!   handle   32 MiB ┤            ╭────────────────       request of 64 MiB and more
//!                   │         ╭──╯
//!             8 MiB ┤─────────╯                          up to 16 MiB
//!             2 MiB ┤   ╭─────                           on a device with less than 8 GiB left
//! ```
//!
//! *Back.* Nothing is given back before the device has no more memory, or the program asks for it (`empty_cache`).

use crate::allocator::spec::settings;
use crate::device::GRANULE;
use gmlake_core::units::{Bytes, MIB, round_up};

settings! {
    /// Settings of [`Lake`](super::Lake).
    LakeOptions {
        /// The smallest handle while there is plenty of memory, in bytes: a multiple of 2 MiB.
        handle: Bytes = chunk("handle", "8MiB"),
            "smallest physical handle: larger ones take fewer driver calls and waste more";
        /// Share of the most bytes ever live by which reserved memory may exceed them before memory is stitched.
        slack: f64 = number("slack", "0.003"),
            "share by which reserved may exceed peak live memory before it is stitched";
        /// Stitched ranges that are kept.
        views: usize = whole("views", "4096"),
            "stitched ranges that are kept";
        /// Whether a stream may be made to wait for another one.
        waits: bool = switch("waits", "on"),
            "a stream may wait for another one's memory, rather than grow";
        /// Whether a request goes where its like went when the program was last here.
        repeat: bool = switch("repeat", "on"),
            "what is asked for again goes where it went before";
    }
}

/// The least growth within the budget: requests of a few MiB come in numbers.
pub(super) const STEP: Bytes = 32 * MIB;

/// Handles that a request is made of, at least, while they are not the smallest.
const PER_REQUEST: u64 = 2;

/// The largest handle, in smallest ones.
const LARGEST: u64 = 4;

/// Handles that the memory that the device has left makes, at least.
const PER_DEVICE: u64 = 4096;

/// What the allocator may hold, and what it has learned of the program and the device.
#[derive(Debug, Clone, Default)]
pub(super) struct Policy {
    pub(super) options: LakeOptions,
    /// Physical bytes that the process may hold.
    limit: Bytes,
    /// Most bytes that were ever live, the request at hand included.
    pub(super) live_peak: Bytes,
    /// Whether the device has refused memory.
    pub(super) is_short: bool,
}

impl Policy {
    pub(super) fn new(options: LakeOptions, limit: Bytes) -> Self {
        Self { options, limit, ..Self::default() }
    }

    /// Whether a request goes where its like went. What led to a shortage must not be repeated.
    #[inline]
    pub(super) fn repeats(&self) -> bool {
        self.options.repeat && !self.is_short
    }

    /// Bytes that may come on top of `reserved` before memory is stitched.
    pub(super) fn left_in_budget(&self, reserved: Bytes) -> Bytes {
        let budget = (self.live_peak as f64 * (1.0 + self.options.slack)) as Bytes;
        budget.min(self.limit).saturating_sub(reserved)
    }

    /// Bytes that may come on top of `reserved` at all.
    pub(super) fn left(&self, reserved: Bytes) -> Bytes {
        self.limit.saturating_sub(reserved)
    }

    /// How much to grow by where `missing` bytes are needed and `left` may come; `None`: not at all.
    pub(super) fn growth(missing: Bytes, left: Bytes) -> Option<Bytes> {
        [missing.max(STEP), missing].into_iter().find(|&most| most <= left)
    }

    /// How large the handles for a request should be, with `free` bytes left on the device.
    pub(super) fn handle_size(&self, size: Bytes, free: Bytes) -> Bytes {
        let most = round_up((free / PER_DEVICE).max(1), GRANULE);
        let least = self.options.handle;
        round_up(size / PER_REQUEST, GRANULE).clamp(least, LARGEST * least).min(most)
    }
}
