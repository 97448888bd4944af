//! Placements: where each request of a run was served, noted while the run goes on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::run::Stage;
use crate::allocator::{
    AllocError, Allocation, Allocator, BlockId, BlockView, Counter, Native, Request, Usage,
};
use crate::device::{Device, DeviceError};
use crate::trace::{Layout, Lifetime, PoolId, StreamId};
use crate::units::Bytes;

/// Address and size of what each request got, in order; `None`: it was not served.
type Log = Vec<Option<(u64, Bytes)>>;

/// The places of a run's requests.
pub(crate) struct Placements {
    log: Arc<Mutex<Log>>,
}

impl Placements {
    /// Notes the places from now on.
    pub(crate) fn watch(stage: &mut Stage<'_>) -> Self {
        let log = Arc::<Mutex<Log>>::default();
        let inner = std::mem::replace(&mut stage.allocator, Box::new(Native::new()));
        stage.allocator = Box::new(Watched { inner, log: Arc::clone(&log) });
        Self { log }
    }

    /// The places so far.
    pub(crate) fn all(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An allocator that notes where it serves requests.
struct Watched {
    inner: Box<dyn Allocator>,
    log: Arc<Mutex<Log>>,
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

    fn foresee(&mut self, lifetimes: &dyn Fn() -> Vec<Lifetime>) {
        self.inner.foresee(lifetimes);
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
