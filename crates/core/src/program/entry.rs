//! Entry: one line of PyTorch's own history, and what it says happened.

use super::{PoolId, StreamId};
use crate::units::Bytes;

/// What an entry of `device_traces` says happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Action {
    /// A block was handed out; `size` is the request, unrounded.
    Alloc,
    /// The client freed a block; `size` is the request.
    FreeRequested,
    /// The block became reusable; `size` is the request.
    FreeCompleted,
    /// A segment came from `cudaMalloc`.
    SegmentAlloc,
    /// A segment went back with `cudaFree`.
    SegmentFree,
    /// A range of an expandable segment was mapped.
    SegmentMap,
    /// A range of an expandable segment was unmapped.
    SegmentUnmap,
    /// A snapshot was taken; `size` is the sum of active block bytes.
    Snapshot,
    /// A request failed; `size` is the *rounded* request, `addr` the device's free bytes.
    Oom,
}

impl Action {
    /// Every action, in the order of the enum.
    pub const ALL: [Self; 9] = [
        Self::Alloc,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Snapshot,
        Self::Oom,
    ];

    /// PyTorch's name of the action.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Snapshot => "snapshot",
            Self::Oom => "oom",
        }
    }

    /// Whether a segment comes from the driver, or goes back to it.
    pub fn is_driver_call(self) -> bool {
        (Self::SegmentAlloc..=Self::SegmentUnmap).contains(&self)
    }

    /// The action with PyTorch's name `name`, if it is one of ours.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name().as_bytes() == name)
    }
}

/// One entry of a device's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Address of the block or segment; free bytes of the device in an `Oom`.
    pub addr: u64,
    /// Bytes; see [`Action`] for which.
    pub size: Bytes,
    /// Microseconds since 1970, or 0 where the file does not say.
    pub time_us: u64,
    /// Number of the call stack (`Records::stacks`), or [`Entry::NO_STACK`].
    pub stack: u32,
    /// The stream.
    pub stream: StreamId,
    /// What happened.
    pub action: Action,
    /// The pool, if the file says; otherwise the default one.
    pub pool: PoolId,
}

impl Entry {
    /// The year 2255 in microseconds since 1970: a clock that says more is wrong. In nanoseconds it is a number, too.
    pub const LATEST_US: u64 = 1 << 53;

    /// The entry was recorded without a call stack, or stacks were skipped.
    pub const NO_STACK: u32 = u32::MAX;
}

const _: () = assert!(size_of::<Entry>() == 32);
