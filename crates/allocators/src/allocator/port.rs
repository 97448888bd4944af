//! The port: what an allocator is asked, and what it answers.

use std::ops::Range;

use crate::device::{Device, DeviceError, DevicePtr, Result};
use gmlake_core::program::{BlockState, Layout, Lifetime, PoolId, SegmentBlock, StreamId};
use gmlake_core::units::{Bytes, Size};

/// Index of a value in its slab, good as long as the owner keeps the value there.
pub type SlabIndex = u32;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Bytes, more than zero.
    pub size: Bytes,
    /// The stream that will use the memory first. Memory freed on a stream may be used again on it at once.
    pub stream: StreamId,
    /// The pool to serve it from. Allocators without private pools ignore it; see [`Beside`](super::Beside).
    pub pool: PoolId,
}

/// An allocator's own number of a block, good until the block is free again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// Place in the allocator's [`Slab`](super::Slab).
    pub index: SlabIndex,
    /// Changes whenever the place is given up.
    pub generation: u32,
}

/// What a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Address of the first byte; the bytes up to `at + size` are contiguous and backed by memory.
    pub at: DevicePtr,
    /// Bytes that can be used, at least those requested.
    pub size: Bytes,
    /// The block, to free it by.
    pub block: BlockId,
}

/// Where the memory is, in bytes. Always `reserved >= active >= allocated`, and `active >= requested`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Asked for by the client, unrounded, in blocks that are active (c10: `requested_bytes`).
    pub requested: Bytes,
    /// Handed out and not freed by the client, after rounding (c10: `allocated_bytes`).
    pub allocated: Bytes,
    /// `allocated`, and freed blocks that a stream still uses (c10: `active_bytes`).
    pub active: Bytes,
    /// Physical memory held from the device, used or not (c10: `reserved_bytes`).
    pub reserved: Bytes,
}

/// The two of them that are followed over time, in bytes; small enough to be returned in registers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// [`Usage::active`].
    pub active: Bytes,
    /// [`Usage::reserved`].
    pub reserved: Bytes,
}

impl Held {
    /// These of all numbers.
    #[inline]
    pub const fn of(Usage { active, reserved, .. }: Usage) -> Self {
        Self { active, reserved }
    }

    /// The smaller of each pair of numbers.
    #[inline]
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        let (active, reserved) = (self.active, self.reserved);
        Self { active: active.min(other.active), reserved: reserved.min(other.reserved) }
    }

    /// The larger of each pair of numbers.
    #[inline]
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        let (active, reserved) = (self.active, self.reserved);
        Self { active: active.max(other.active), reserved: reserved.max(other.reserved) }
    }
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            requested: self.requested + other.requested,
            allocated: self.allocated + other.allocated,
            active: self.active + other.active,
            reserved: self.reserved + other.reserved,
        }
    }
}

impl Usage {
    /// The larger of each pair of numbers.
    #[inline]
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            requested: self.requested.max(other.requested),
            allocated: self.allocated.max(other.allocated),
            active: self.active.max(other.active),
            reserved: self.reserved.max(other.reserved),
        }
    }
}

/// State of a block that [`Allocator::blocks`] shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockUse {
    /// In a client's hands.
    Allocated,
    /// Freed by the client, in use by a stream.
    Pending,
    /// Free, and ready to serve a request.
    Free,
    /// Addresses over memory that is shown elsewhere: an idle stitched range (GMLake's sBlock), or a block whose memory
    /// a tensor uses through such a range.
    Alias,
}

/// What kind of memory a block is, in [`Allocator::blocks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKind {
    /// Part of a pool that serves only small requests.
    Small,
    /// Any other memory.
    Large,
    /// A range of addresses of its own over memory that other blocks own (GMLake's sBlock): those are shown, too, as
    /// [`BlockUse::Alias`] while a tensor uses them through this one.
    Stitched,
}

/// One block, as shown by [`Allocator::blocks`].
///
/// The sizes of all blocks that are no alias add up to [`Usage::reserved`]; so do those of all that are not stitched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockView {
    /// Its number, if it is allocated or pending.
    pub block: Option<BlockId>,
    /// Where it begins.
    pub at: DevicePtr,
    /// Its size.
    pub size: Bytes,
    /// What the client asked for; 0 if it is not active.
    pub requested: Bytes,
    /// Its stream.
    pub stream: StreamId,
    /// Its state.
    pub state: BlockUse,
    /// The pool that it belongs to.
    pub pool: PoolId,
    /// Its kind of memory.
    pub kind: BlockKind,
    /// First address of the segment (contiguous range held from the device) that it is part of.
    pub segment: DevicePtr,
}

impl BlockView {
    /// A block that no client has, a segment by itself.
    pub(super) fn unnamed(at: DevicePtr, size: Bytes, stream: StreamId, state: BlockUse) -> Self {
        let (pool, kind) = (PoolId::DEFAULT, BlockKind::Large);
        Self { block: None, at, size, requested: 0, stream, state, pool, kind, segment: at }
    }

    /// Free memory between two addresses.
    pub(super) fn gap(gap: Range<u64>, stream: StreamId) -> Self {
        Self::free(DevicePtr(gap.start), gap.end - gap.start, stream)
    }

    /// Free memory, a segment by itself.
    pub(super) fn free(at: DevicePtr, size: Bytes, stream: StreamId) -> Self {
        Self::unnamed(at, size, stream, BlockUse::Free)
    }

    /// The block as PyTorch's snapshot would list it.
    pub(crate) fn recorded(&self) -> SegmentBlock {
        let state = match self.state {
            BlockUse::Allocated => BlockState::Allocated,
            BlockUse::Pending => BlockState::PendingFree,
            BlockUse::Free | BlockUse::Alias => BlockState::Inactive,
        };
        SegmentBlock { address: self.at.0, size: self.size, requested: self.requested, state }
    }
}

/// A named number that an allocator counts in addition to driver calls, such as "stitches" (see
/// [`Allocator::counters`]).
pub type Counter = (&'static str, u64);

/// Why there is no memory for a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// There is certainly no memory: all that could be given back or put together was.
    #[error("out of memory: {} requested, {} in use, {} held", Size(*.requested), Size(.usage.active), Size(.usage.reserved))]
    OutOfMemory {
        /// Bytes asked for.
        requested: Bytes,
        /// The allocator's usage at that moment.
        usage: Usage,
    },
    /// The driver failed otherwise.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What a request is answered with.
pub type AllocResult = Result<Allocation, AllocError>;

/// A GPU memory allocator.
///
/// A free has two moments, as in PyTorch's traces: the client lets go (`free_requested`), and the streams that used
/// the memory are done (`free_completed`). Mostly they are one, [`Allocator::free`]. A stale [`BlockId`] is a bug of
/// the caller and panics.
pub trait Allocator: Send {
    /// Serves a request.
    ///
    /// # Errors
    /// Out of memory, after all that the allocator can do about it; or a driver error. The state is consistent after
    /// either, and nothing was handed out.
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult;

    /// The client lets go of a block which other streams still use: these at most (its own may be among them). If there
    /// are none, it is not known which.
    fn free_requested(&mut self, block: BlockId, users: &[StreamId]);

    /// The streams are done with a block whose free was requested. Nothing happens if the id is stale: the allocator
    /// has synchronised with the GPU since, when memory was short, and knew already.
    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId);

    /// The client lets go of a block that no other stream uses.
    fn free(&mut self, device: &mut dyn Device, block: BlockId);

    /// Gives back all memory that no block needs (`torch.cuda.empty_cache`).
    fn trim(&mut self, device: &mut dyn Device);

    /// Releases a private pool: its memory goes back as soon as it is free. The default has no such pools.
    fn release_pool(&mut self, _device: &mut dyn Device, _pool: PoolId) {}

    /// Takes over the memory that a recording held when it began, and returns the active blocks in address order.
    /// `None`: this allocator works otherwise than PyTorch's; what was live is requested from it anew.
    ///
    /// # Errors
    /// If the device does not have that memory.
    fn restore(
        &mut self,
        _device: &mut dyn Device,
        _layout: &Layout,
    ) -> Result<Option<Vec<BlockId>>> {
        Ok(None)
    }

    /// Learns what is to come, before the first request: the lifetime of every request, in their order. Only a plan
    /// that is made offline asks for them; PyTorch does not know them.
    fn foresee(&mut self, _lifetimes: &dyn Fn() -> Vec<Lifetime>) {}

    /// The present numbers.
    fn usage(&self) -> Usage;

    /// Those that are followed over time; cheap enough to be read after every event.
    fn held(&self) -> Held {
        Held::of(self.usage())
    }

    /// The highest value that each number ever had.
    fn peak(&self) -> Usage;

    /// Times that the allocator gave everything back and tried again (c10: `num_alloc_retries`).
    fn retries(&self) -> u64 {
        0
    }

    /// What it did wrong, once somebody found out: every later call is in vain. Only a plug-in, and an allocator under
    /// the checker, can say so.
    fn fault(&self) -> Option<&str> {
        None
    }

    /// What the allocator counts of its own doings, in a fixed order.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// Every block, in address order; for snapshots and checks only.
    fn blocks(&self) -> Vec<BlockView>;
}
