//! The out-of-memory of a recording, in numbers: what was requested, what there was, and why it did not do.

use serde::Serialize;

use crate::units::Bytes;

/// Why a request was refused, as far as the recording tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shortfall {
    /// More would have been live than there was.
    TooMuch,
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
    /// Bytes that the process could have had, if that is known.
    pub memory_bytes: Option<Bytes>,
    /// Why it was refused.
    pub shortfall: Shortfall,
}
