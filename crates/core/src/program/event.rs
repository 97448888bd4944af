//! The event: what a program asks of its allocator, in 16 bytes.

use crate::units::Bytes;

/// Number of one allocation's lifetime in a trace: dense from zero, so that the event loop indexes a `Vec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocId(pub u32);

/// A CUDA stream, numbered in ascending order of its handle (the legacy default stream, handle 0, comes first).
/// PyTorch sorts its pools by handle, so the order of these numbers is part of its behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(pub u16);

/// A memory pool in PyTorch's sense: 0 is the default, the others are private (CUDA graphs, `torch.cuda.MemPool`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PoolId(pub u8);

impl PoolId {
    /// The pool of all requests that asked for no other.
    pub const DEFAULT: Self = Self(0);
}

/// What happens in one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// A request for `size` bytes.
    Malloc,
    /// A free, with nothing on the GPU to wait for: reusable at once.
    Free,
    /// A free of memory that other streams still use: no longer allocated, but active until `FreeCompleted`.
    FreeRequested,
    /// The streams that used the memory are done with it.
    FreeCompleted,
    /// A request that failed in the recording, after which the program went on without it: it is tried, and given
    /// back at once where it succeeds.
    Attempt,
    /// The program called `empty_cache`, or a private pool (`pool`) was released.
    Trim,
}

/// One thing that the program did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Bytes asked for, unrounded. Zero in a `Trim`.
    pub size: Bytes,
    /// Which allocation; meaningless in `Attempt` and `Trim`.
    pub alloc: AllocId,
    /// The stream that the memory was asked for on.
    pub stream: StreamId,
    /// What happens.
    pub kind: EventKind,
    /// The pool that the memory was asked from.
    pub pool: PoolId,
}

const _: () = assert!(size_of::<Event>() == 16);
