//! A pool: an allocator that keeps memory of the device and serves requests from it, whatever its policy.
//!
//! The policy decides where a request goes and when memory comes and goes. Everything that does not depend on it is
//! here: ids, accounts, frees that wait for other streams, and the second attempt when memory is short.
//!
//! ```text
//!   client ──malloc/free──▶ Pool: blocks, ledger, pending ──take/give──▶ Policy: which bytes, which segments
//! ```

use super::{
    AllocError, Allocation, Allocator, BlockId, BlockKind, BlockUse, BlockView, Counter, Ledger,
    Request, Slab, SlabIndex, Usage,
};
use crate::device::{Device, DeviceError, DevicePtr};
use crate::trace::{Lifetime, PoolId, StreamId};
use crate::units::Bytes;

/// Where a policy serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Address of the first byte.
    pub(super) at: DevicePtr,
    /// Bytes, at least those asked for.
    pub(super) size: Bytes,
    /// The policy's own number of the place.
    pub(super) key: SlabIndex,
}

/// Memory that a policy holds for later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Free {
    /// Address of the first byte.
    pub(super) at: DevicePtr,
    /// Bytes.
    pub(super) size: Bytes,
    /// The stream that may have it, where the policy keeps streams apart.
    pub(super) stream: StreamId,
}

/// How a pool decides. All sizes are in bytes.
pub(super) trait Policy: Send {
    /// The size that a request is served as.
    fn round(&self, size: Bytes) -> Bytes;

    /// Serves a request of a rounded size.
    ///
    /// # Errors
    /// Out of memory, after all that the policy does about it; or a driver error. Nothing was taken then.
    fn take(
        &mut self,
        device: &mut dyn Device,
        size: Bytes,
        stream: StreamId,
    ) -> Result<Place, DeviceError>;

    /// A place is free again; what `stream` has queued may still use it, and nothing else.
    fn give(&mut self, device: &mut dyn Device, place: Place, stream: StreamId);

    /// Gives back to the device what no place needs.
    fn trim(&mut self, device: &mut dyn Device);

    /// Bytes held from the device.
    fn held(&self) -> Bytes;

    /// First address of the segment that a place is in.
    fn segment(&self, at: DevicePtr) -> DevicePtr;

    /// Shows all memory that is held and not taken, in any order.
    fn walk_free(&self, visit: &mut dyn FnMut(Free));

    /// See [`Allocator::counters`].
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// A request comes, before it is served (perhaps in two attempts).
    fn note_request(&mut self) {}

    /// See [`Allocator::foresee`].
    fn foresee(&mut self, _lifetimes: &dyn Fn() -> Vec<Lifetime>) {}
}

#[derive(Debug, Clone, Copy)]
struct Block {
    place: Place,
    requested: Bytes,
    stream: StreamId,
    state: BlockUse,
}

/// An allocator with a policy.
#[derive(Debug, Clone, Default)]
pub(super) struct Pool<P> {
    policy: P,
    blocks: Slab<Block>,
    ledger: Ledger,
    pending: u64,
    retries: u64,
}

impl<P: Policy> Pool<P> {
    /// An allocator that holds nothing.
    pub(super) fn new(policy: P) -> Self {
        let (blocks, ledger) = (Slab::default(), Ledger::default());
        Self { policy, blocks, ledger, pending: 0, retries: 0 }
    }

    /// A place for a request; when there is none, once more after all frees that only wait for a stream.
    fn obtain(
        &mut self,
        device: &mut dyn Device,
        size: Bytes,
        stream: StreamId,
    ) -> Result<Place, DeviceError> {
        match self.policy.take(device, size, stream) {
            Err(DeviceError::OutOfMemory { .. }) if self.pending > 0 => {}
            other => return other,
        }
        self.retries += 1;
        device.synchronize();
        for index in 0..self.blocks.len() as SlabIndex {
            if self.blocks[index].state == BlockUse::Pending {
                self.complete(device, index);
            }
        }
        self.policy.take(device, size, stream)
    }

    fn complete(&mut self, device: &mut dyn Device, index: SlabIndex) {
        let Block { place, requested, stream, state } = self.blocks[index];
        assert_eq!(state, BlockUse::Pending, "completion of a block that was not freed");
        self.pending -= 1;
        self.blocks[index].state = BlockUse::Free;
        self.blocks.remove(index);
        self.ledger.free_completed(requested, place.size);
        self.policy.give(device, place, stream);
        self.settle();
    }

    /// Takes over what the policy holds now.
    fn settle(&mut self) {
        let (now, before) = (self.policy.held(), self.ledger.now().reserved);
        if now > before {
            self.ledger.grow(now - before);
        } else {
            self.ledger.shrink(before - now);
        }
    }

    fn view_of(&self, index: SlabIndex) -> BlockView {
        let Block { place: Place { at, size, .. }, requested, stream, state } = self.blocks[index];
        BlockView {
            block: Some(self.blocks.id(index)),
            at,
            size,
            requested,
            stream,
            state,
            pool: PoolId::DEFAULT,
            kind: BlockKind::Large,
            segment: self.policy.segment(at),
        }
    }

    fn view_of_free(&self, Free { at, size, stream }: Free) -> BlockView {
        BlockView {
            block: None,
            at,
            size,
            requested: 0,
            stream,
            state: BlockUse::Free,
            pool: PoolId::DEFAULT,
            kind: BlockKind::Large,
            segment: self.policy.segment(at),
        }
    }
}

impl<P: Policy> Allocator for Pool<P> {
    fn malloc(
        &mut self,
        device: &mut dyn Device,
        request: Request,
    ) -> Result<Allocation, AllocError> {
        let Request { size: requested, stream, .. } = request;
        self.policy.note_request();
        let size = self.policy.round(requested);
        let taken = self.obtain(device, size, stream);
        self.settle();
        let place = taken.map_err(|error| match error {
            DeviceError::OutOfMemory { .. } => {
                AllocError::OutOfMemory { requested: size, usage: self.ledger.now() }
            }
            other => other.into(),
        })?;
        let state = BlockUse::Allocated;
        let index = self.blocks.insert(Block { place, requested, stream, state });
        self.ledger.malloc(requested, place.size);
        Ok(Allocation { at: place.at, size: place.size, block: self.blocks.id(index) })
    }

    fn free_requested(&mut self, block: BlockId, _users: &[StreamId]) {
        let index = self.blocks.expect(block);
        let entry = &mut self.blocks[index];
        assert_eq!(entry.state, BlockUse::Allocated, "{block:?} was freed twice");
        entry.state = BlockUse::Pending;
        self.pending += 1;
        self.ledger.free_requested(entry.place.size);
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        if let Some(index) = self.blocks.find(block) {
            self.complete(device, index);
        }
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        self.free_requested(block, &[]);
        self.free_completed(device, block);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.policy.trim(device);
        self.settle();
    }

    fn foresee(&mut self, lifetimes: &dyn Fn() -> Vec<Lifetime>) {
        self.policy.foresee(lifetimes);
    }

    fn usage(&self) -> Usage {
        self.ledger.now()
    }

    fn peak(&self) -> Usage {
        self.ledger.peak()
    }

    fn retries(&self) -> u64 {
        self.retries
    }

    fn counters(&self) -> Vec<Counter> {
        self.policy.counters()
    }

    fn walk(&self, visit: &mut dyn FnMut(BlockView)) {
        let used = (0..self.blocks.len() as SlabIndex)
            .filter(|&index| self.blocks[index].state != BlockUse::Free);
        let mut views: Vec<_> = used.map(|index| self.view_of(index)).collect();
        self.policy.walk_free(&mut |free| views.push(self.view_of_free(free)));
        views.sort_by_key(|view| view.at);
        views.into_iter().for_each(visit);
    }
}
