//! An allocator whose every allocation is written and read through its address.
//!
//! A stamp is made when memory is handed out. It is looked for when the client lets go, and once more when the streams
//! are done, for until then the memory may not be reused. An allocator that has waited for the whole GPU may know
//! earlier that the streams are done; the device counts these waits, and pending stamps of before are let go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::allocator::{
    AllocError, Allocation, Allocator, BlockId, BlockView, Counter, Request, Usage,
};
use crate::cuda::{DriverError, Painter, Stamp};
use crate::device::Device;
use crate::trace::{Lifetime, PoolId, StreamId};
use crate::units::Bytes;

/// What was found by looking.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verified {
    /// Allocations that were stamped.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Times that a stamp was looked for.
    pub checks: u64,
    /// Bytes that were not as written, in units of four.
    pub corrupted_bytes: Bytes,
    /// The first place where that was so.
    pub first_corruption: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Live {
    stamp: Stamp,
    /// Set once the client has let go: how often the device had been synchronised then.
    pending_since: Option<u64>,
}

/// An allocator, and the stamps on what it handed out.
pub(super) struct Stamped {
    allocator: Box<dyn Allocator>,
    painter: Painter,
    synchronizations: Arc<AtomicU64>,
    live: FxHashMap<BlockId, Live>,
    pub(super) verified: Verified,
    /// Time spent on stamps, in nanoseconds.
    pub(super) elapsed_ns: u64,
    /// The first failure of the driver in writing or reading stamps.
    pub(super) error: Option<DriverError>,
}

impl Stamped {
    pub(super) fn new(
        allocator: Box<dyn Allocator>,
        painter: Painter,
        synchronizations: Arc<AtomicU64>,
    ) -> Self {
        Self {
            allocator,
            painter,
            synchronizations,
            live: FxHashMap::default(),
            verified: Verified::default(),
            elapsed_ns: 0,
            error: None,
        }
    }

    /// Looks for every stamp that is still there.
    pub(super) fn check_all(&mut self) {
        let mut blocks: Vec<_> = self.live.keys().copied().collect();
        blocks.sort_unstable();
        for block in blocks {
            self.check(block);
        }
    }

    fn synchronized(&self) -> u64 {
        self.synchronizations.load(Ordering::Relaxed)
    }

    fn stamp(&mut self, given: &Allocation) {
        let start = Instant::now();
        match self.painter.paint(given.at, given.size) {
            Ok(stamp) => {
                self.live.insert(given.block, Live { stamp, pending_since: None });
                self.verified.allocations += 1;
                self.verified.bytes += given.size;
            }
            Err(error) => drop(self.error.get_or_insert(error)),
        }
        self.elapsed_ns += start.elapsed().as_nanos() as u64;
    }

    fn check(&mut self, block: BlockId) {
        let Some(Live { stamp, pending_since }) = self.live.get(&block).copied() else { return };
        if pending_since.is_some_and(|waits| waits < self.synchronized()) {
            return;
        }
        let start = Instant::now();
        match self.painter.check(&stamp) {
            Ok(wrong) => {
                self.verified.checks += 1;
                self.verified.corrupted_bytes += wrong;
                if wrong > 0 {
                    let (at, size) = (stamp.at, stamp.size);
                    let place = format!("{wrong} of {size} bytes at {at} are not as written");
                    self.verified.first_corruption.get_or_insert(place);
                }
            }
            Err(error) => drop(self.error.get_or_insert(error)),
        }
        self.elapsed_ns += start.elapsed().as_nanos() as u64;
    }
}

impl Allocator for Stamped {
    fn malloc(
        &mut self,
        device: &mut dyn Device,
        request: Request,
    ) -> Result<Allocation, AllocError> {
        let given = self.allocator.malloc(device, request);
        let given = given?;
        self.stamp(&given);
        Ok(given)
    }

    fn free_requested(&mut self, block: BlockId, users: &[StreamId]) {
        self.check(block);
        let now = self.synchronized();
        if let Some(live) = self.live.get_mut(&block) {
            live.pending_since = Some(now);
        }
        self.allocator.free_requested(block, users);
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        self.check(block);
        self.live.remove(&block);
        self.allocator.free_completed(device, block);
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        self.check(block);
        self.live.remove(&block);
        self.allocator.free(device, block);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.allocator.trim(device);
    }

    fn release_pool(&mut self, device: &mut dyn Device, pool: PoolId) {
        self.allocator.release_pool(device, pool);
    }

    fn foresee(&mut self, lifetimes: &dyn Fn() -> Vec<Lifetime>) {
        self.allocator.foresee(lifetimes);
    }

    fn usage(&self) -> Usage {
        self.allocator.usage()
    }

    fn peak(&self) -> Usage {
        self.allocator.peak()
    }

    fn retries(&self) -> u64 {
        self.allocator.retries()
    }

    fn counters(&self) -> Vec<Counter> {
        self.allocator.counters()
    }

    fn walk(&self, visit: &mut dyn FnMut(BlockView)) {
        self.allocator.walk(visit);
    }
}
