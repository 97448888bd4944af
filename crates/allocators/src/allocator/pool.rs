//! A pool: an allocator that keeps memory of the device and serves requests from it, whatever its policy.
//!
//! The policy decides where a request goes and when memory comes and goes. Everything that does not depend on it is
//! here: ids, accounts, frees that wait for other streams, and the second attempt when memory is short.
//!
//! ```text
//!   client ──malloc/free──▶ Pool: blocks, ledger, pending ──take/give──▶ Policy: which bytes, which segments
//! ```

use super::live::{Live, LiveBlock};
use super::{AllocResult, Allocator, BlockId, BlockView, Counter, Request, Usage};
use crate::device::{Device, DeviceError, DevicePtr, Result};
use gmlake_core::program::{Lifetime, StreamId};
use gmlake_core::units::Bytes;

/// Where a policy serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub(super) at: DevicePtr,
    /// Bytes, at least those asked for.
    pub(super) size: Bytes,
}

impl Place {
    fn of(block: &LiveBlock<()>) -> Self {
        Self { at: block.at, size: block.size }
    }
}

/// How a pool decides. All sizes are in bytes.
pub trait Policy: Send {
    /// The size that a request is served as.
    fn round(&self, size: Bytes) -> Bytes;

    /// Serves a request of a rounded size. Errors: out of memory, after all that the policy does about it; or a driver
    /// error. Nothing was taken then.
    fn take(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place>;

    /// A block is freed, and its place is given next. Not called for frees that waited until the device was
    /// synchronised.
    fn before_free(&mut self, _device: &mut dyn Device) {}

    /// A place is free again; what `stream` has queued may still use it, and nothing else.
    fn give(&mut self, device: &mut dyn Device, place: Place, stream: StreamId);

    /// Gives back to the device what no place needs; by default there is nothing of that kind.
    fn trim(&mut self, _device: &mut dyn Device) {}

    /// Bytes held from the device.
    fn held(&self) -> Bytes;

    /// First address of the segment that a place is in; by default each place is one.
    fn segment(&self, at: DevicePtr) -> DevicePtr {
        at
    }

    /// All memory that is held and not taken, in any order; by default there is none.
    fn free(&self) -> Vec<BlockView> {
        Vec::new()
    }

    /// See [`Allocator::counters`].
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// A request comes, before it is served (perhaps in two attempts).
    fn note_request(&mut self) {}

    /// See [`Allocator::fault`].
    fn fault(&self) -> Option<&str> {
        None
    }

    /// See [`Allocator::foresee`].
    fn foresee(&mut self, _lifetimes: &dyn Fn() -> Vec<Lifetime>) {}
}

/// An allocator with a policy.
#[derive(Debug, Clone, Default)]
pub struct Pool<P> {
    policy: P,
    live: Live<()>,
    retries: u64,
}

impl<P: Policy> Pool<P> {
    /// An allocator that holds nothing.
    pub(super) fn of(policy: P) -> Self {
        Self { policy, live: Live::default(), retries: 0 }
    }

    /// What decides.
    #[cfg(test)]
    pub(super) fn policy(&self) -> &P {
        &self.policy
    }

    /// A place for a request; when there is none, once more after all frees that only wait for a stream.
    fn obtain(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place> {
        match self.policy.take(device, size, stream) {
            Err(DeviceError::OutOfMemory { .. }) if self.live.has_pending() => {}
            other => return other,
        }
        self.retries += 1;
        device.synchronize();
        for block in self.live.take_pending() {
            self.policy.give(device, Place::of(&block), block.stream);
        }
        self.policy.take(device, size, stream)
    }

    fn give_back(&mut self, device: &mut dyn Device, block: LiveBlock<()>) {
        self.policy.before_free(device);
        self.policy.give(device, Place::of(&block), block.stream);
        self.settle();
    }

    /// Takes over what the policy holds now.
    fn settle(&mut self) {
        self.live.ledger.hold(self.policy.held());
    }
}

impl<P: Policy> Allocator for Pool<P> {
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        self.policy.note_request();
        let size = self.policy.round(request.size);
        let taken = self.obtain(device, size, request.stream);
        self.settle();
        let place = taken.map_err(|error| self.live.explain(error, size))?;
        Ok(self.live.hand_out((), place.at, request, place.size))
    }

    fn free_requested(&mut self, block: BlockId, _users: &[StreamId]) {
        self.live.request_free(block);
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        if let Some(block) = self.live.complete(block) {
            self.give_back(device, block);
        }
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        let block = self.live.free(block);
        self.give_back(device, block);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.policy.trim(device);
        self.settle();
    }

    fn foresee(&mut self, lifetimes: &dyn Fn() -> Vec<Lifetime>) {
        self.policy.foresee(lifetimes);
    }

    fn usage(&self) -> Usage {
        self.live.ledger.now()
    }

    fn peak(&self) -> Usage {
        self.live.ledger.peak()
    }

    fn retries(&self) -> u64 {
        self.retries
    }

    fn fault(&self) -> Option<&str> {
        self.policy.fault()
    }

    fn counters(&self) -> Vec<Counter> {
        self.policy.counters()
    }

    fn blocks(&self) -> Vec<BlockView> {
        let taken = self.live.views().map(|(_, view)| view);
        let placed = |view: BlockView| BlockView { segment: self.policy.segment(view.at), ..view };
        let mut views: Vec<_> = taken.chain(self.policy.free()).map(placed).collect();
        views.sort_by_key(|view| view.at);
        views
    }
}
