//! `native`: every request goes straight to `cuMemAlloc`, every free to `cuMemFree`. The floor. Without rounding it is
//! `bound`, the bytes that are live.
//!
//! Nothing is cached, so nothing is lost: reserved is what is live. The price is a driver call for each event, and
//! `cuMemFree` waits for the whole GPU queue: the paper measured a training throughput 9.7 times lower (section 2.2).
//! Memory is charged in units of 512 bytes; how the driver packs small allocations into pages is the device's matter
//! (`device/pages.rs`).

use super::ALIGNMENT;
use super::pool::{Place, Policy, Pool};
use crate::device::{Device, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, round_up};

/// The allocator without a cache.
pub type Native = Pool<Uncached>;

impl Native {
    /// An allocator that holds nothing.
    pub fn new() -> Self {
        Self::with_rounding(ALIGNMENT)
    }

    /// An allocator that holds nothing and rounds each request to a multiple of `rounding` bytes.
    pub fn with_rounding(rounding: Bytes) -> Self {
        Self::of(Uncached { rounding, held: 0 })
    }
}

/// The policy to ask the device for each request.
#[derive(Debug, Clone)]
pub struct Uncached {
    rounding: Bytes,
    held: Bytes,
}

impl Policy for Uncached {
    fn round(&self, size: Bytes) -> Bytes {
        round_up(size, self.rounding)
    }

    #[inline]
    fn take(&mut self, device: &mut dyn Device, size: Bytes, _stream: StreamId) -> Result<Place> {
        let at = device.malloc(size)?;
        self.held += size;
        Ok(Place { at, size })
    }

    #[inline]
    fn give(&mut self, device: &mut dyn Device, place: Place, _stream: StreamId) {
        self.held -= place.size;
        device.free(place.at);
    }

    fn held(&self) -> Bytes {
        self.held
    }
}
