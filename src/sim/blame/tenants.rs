//! Tenants: who had a piece of free memory last.
//!
//! A free segment is nobody's, but somebody left it behind. The run is watched for the addresses that it hands out; of
//! those within a free block, the last one is its tenant.

use std::sync::{Arc, Mutex, PoisonError};

use crate::allocator::{
    AllocError, Allocation, Allocator, BlockId, BlockView, Counter, Native, Request, Usage,
};
use crate::device::{Device, DeviceError};
use crate::sim::run::Stage;
use crate::trace::{EventKind, Layout, PoolId, StreamId, Trace};
use crate::units::Bytes;

/// Where each request was served, in order: address and size, or nothing.
type Log = Arc<Mutex<Vec<Option<(u64, Bytes)>>>>;

/// The requests of a run, and where they were served.
pub(super) struct Tenants {
    log: Log,
    first: usize,
}

impl Tenants {
    /// Watches the rest of a run.
    pub(super) fn watch(stage: &mut Stage<'_>) -> Self {
        let log = Log::default();
        let first = stage.replay.outcome.events;
        let inner = std::mem::replace(&mut stage.allocator, Box::new(Native::new()));
        stage.allocator = Box::new(Watched { inner, log: Arc::clone(&log) });
        Self { log, first }
    }

    /// The request that had each of the free blocks last, `None` if nobody had it since the run began. The blocks are
    /// in address order.
    pub(super) fn last(&self, trace: &Trace, free: &[&BlockView]) -> Vec<Option<usize>> {
        let is_request = |event: &usize| {
            matches!(trace.events[*event].kind, EventKind::Malloc | EventKind::Attempt)
        };
        let requests: Vec<usize> = (self.first..trace.events.len()).filter(is_request).collect();
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = vec![None; free.len()];
        let mut missing = free.len();
        for (&event, served) in requests.iter().zip(log.iter()).rev() {
            let Some((at, size)) = *served else { continue };
            let from = free.partition_point(|block| block.at.0 + block.size <= at);
            let inside = free[from..].iter().take_while(|block| block.at.0 < at + size).count();
            for place in &mut last[from..from + inside] {
                missing -= usize::from(place.is_none());
                place.get_or_insert(event);
            }
            if missing == 0 {
                break;
            }
        }
        last
    }
}

/// An allocator that notes where it serves requests.
struct Watched {
    inner: Box<dyn Allocator>,
    log: Log,
}

impl Allocator for Watched {
    fn malloc(
        &mut self,
        device: &mut dyn Device,
        request: Request,
    ) -> Result<Allocation, AllocError> {
        let result = self.inner.malloc(device, request);
        let served = result.as_ref().ok().map(|given| (given.at.0, given.size));
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(served);
        result
    }

    fn free_requested(&mut self, block: BlockId, users: &[StreamId]) {
        self.inner.free_requested(block, users);
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        self.inner.free_completed(device, block);
    }

    fn take_recalled(&mut self) -> Vec<BlockId> {
        self.inner.take_recalled()
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        self.inner.free(device, block);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.inner.trim(device);
    }

    fn release_pool(&mut self, device: &mut dyn Device, pool: PoolId) {
        self.inner.release_pool(device, pool);
    }

    fn restore(
        &mut self,
        device: &mut dyn Device,
        layout: &Layout,
    ) -> Result<Option<Vec<BlockId>>, DeviceError> {
        self.inner.restore(device, layout)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn peak(&self) -> Usage {
        self.inner.peak()
    }

    fn retries(&self) -> u64 {
        self.inner.retries()
    }

    fn counters(&self) -> Vec<Counter> {
        self.inner.counters()
    }

    fn walk(&self, visit: &mut dyn FnMut(BlockView)) {
        self.inner.walk(visit);
    }
}
