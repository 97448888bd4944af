//! The out-of-memory of a recording, in numbers: what was requested, what there was, and why it did not do.

use serde::Serialize;

use crate::units::Bytes;

/// Why a request was refused, as far as the recording tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shortfall {
    /// More would have been live than there was.
    TooMuch,
    /// More would have been live than the limit that is simulated; the real one may have been a little higher.
    Unclear,
    /// There was enough, but not in one free block of the right pool and stream.
    Fragmented,
    /// PyTorch kept the cache of other pools, since a `MemPool` or the capture of a CUDA graph was active.
    CacheKept,
    /// The driver had enough: something else refused.
    NotShort,
}

/// The first request that ran out of memory in a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedOom {
    /// Index of the event.
    pub event: u64,
    /// Its training step, from 1; the unfinished one counts.
    pub step: Option<u64>,
    /// The line that requested it, if call stacks tell.
    pub line: Option<String>,
    /// The user's own line that called it, if that is another one.
    pub own_line: Option<String>,
    /// Bytes requested.
    pub requested_bytes: Bytes,
    /// Bytes that PyTorch held then.
    pub reserved_bytes: Bytes,
    /// Bytes that were live then.
    pub live_bytes: Bytes,
    /// Bytes that the driver had left, if the recording tells.
    pub device_free_bytes: Option<Bytes>,
    /// Bytes that PyTorch requested from the driver for it: a whole segment, or pages.
    pub driver_request_bytes: Bytes,
    /// Bytes that the process could have had, if that is known.
    pub memory_bytes: Option<Bytes>,
    /// Why it was refused.
    pub shortfall: Shortfall,
}

impl RecordedOom {
    /// Bytes that were held and not live; `None` if they are less than the least block, which is rounding.
    pub fn free_bytes(&self) -> Option<Bytes> {
        let free = self.reserved_bytes.saturating_sub(self.live_bytes);
        Some(free).filter(|&free| free > 0 && free >= self.reserved_bytes / 1000)
    }

    /// Bytes that the driver could still have given, if that is known.
    pub fn left_bytes(&self) -> Option<Bytes> {
        let unreserved = || self.memory_bytes?.checked_sub(self.reserved_bytes);
        self.device_free_bytes.or_else(unreserved)
    }
}
