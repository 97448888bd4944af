//! Two allocators behind one: PyTorch's own serves some of the requests, beside another that serves the rest.
//!
//! ```text
//!                 ┌─ in a private pool ────────▶ PyTorch's ┐
//!   request ──▶ ──┤  (`bound-2mib`: small ones)            ├──▶ the device
//!                 └─ any other ────────────────▶ another   ┘
//! ```
//!
//! A CUDA graph finds its memory again when it is replayed, and a `MemPool` keeps its own: whatever is freed there
//! serves no other request. So lake's full mount leaves private pools to PyTorch, as do all allocators that have none.

use super::caching::SMALL_MAX;
use super::{
    AllocError, AllocResult, Allocation, Allocator, BlockId, BlockView, Caching, Choice, Counter,
    Environment, OptionError, Request, SlabIndex, Usage,
};
use crate::device::Device;
use gmlake_core::program::{Lifetime, PoolId, StreamId};

/// Marks the ids of PyTorch's blocks.
const STOCK: SlabIndex = 1 << 31;

/// What PyTorch's allocator serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// Small requests.
    Small,
    /// Private pools. Either gives back its cache where the other finds no memory.
    Pools,
}

impl Share {
    fn has(self, request: &Request) -> bool {
        match self {
            Self::Small => request.size <= SMALL_MAX,
            Self::Pools => request.pool != PoolId::DEFAULT,
        }
    }
}

/// An allocator, and PyTorch's beside it.
pub struct Beside<A: ?Sized = dyn Allocator> {
    stock: Caching,
    other: Box<A>,
    share: Share,
    peak: Usage,
}

impl<A: Allocator + ?Sized> Beside<A> {
    /// PyTorch's, as `environment` says, serves its share, on a device whose memory is the limit.
    pub(super) fn new(environment: &Environment, other: Box<A>, share: Share) -> Self {
        let unlimited = Environment { memory_fraction: None, limit: None, ..environment.clone() };
        let (stock, peak) = (Caching::new(&unlimited), Usage::default());
        Self { stock, other, share, peak }
    }

    #[inline]
    fn ask(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        if !self.share.has(&request) {
            return self.other.malloc(device, request);
        }
        let marked = |given: Allocation| Allocation { block: marked(given.block), ..given };
        self.stock.malloc(device, request).map(marked)
    }

    /// A request that was refused: once more, where that may help.
    #[cold]
    fn refused(
        &mut self,
        error: AllocError,
        device: &mut dyn Device,
        request: Request,
    ) -> AllocResult {
        let mut given = Err(error);
        if self.share == Share::Pools && matches!(given, Err(AllocError::OutOfMemory { .. })) {
            self.trim(device);
            given = self.ask(device, request);
        }
        given.map_err(|error| match error {
            // Each half knows only of itself.
            AllocError::OutOfMemory { requested, .. } => {
                AllocError::OutOfMemory { requested, usage: self.usage() }
            }
            error => error,
        })
    }
}

impl Choice {
    /// Makes the allocator for a program. Private pools, if it has any, are PyTorch's: [`Beside`] any other allocator.
    ///
    /// # Errors
    /// As [`Spec::build`](super::Spec::build).
    pub fn build(
        &self,
        environment: &Environment,
        has_private_pools: bool,
    ) -> Result<Box<dyn Allocator>, OptionError> {
        let allocator = self.spec.build(&self.options, environment)?;
        Ok(match has_private_pools && self.spec.role.lacks_pools() {
            true => Box::new(Beside::new(environment, allocator, Share::Pools)),
            false => allocator,
        })
    }
}

/// The id by which PyTorch's allocator knows a block, if it is one of its.
fn of_stock(block: BlockId) -> Option<BlockId> {
    (block.index & STOCK != 0).then_some(BlockId { index: block.index & !STOCK, ..block })
}

fn marked(block: BlockId) -> BlockId {
    BlockId { index: block.index | STOCK, ..block }
}

impl<A: Allocator + ?Sized> Allocator for Beside<A> {
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        let given = self.ask(device, request);
        let given = given.or_else(|error| self.refused(error, device, request));
        self.peak = self.peak.max(self.usage());
        given
    }

    fn free_requested(&mut self, block: BlockId, users: &[StreamId]) {
        match of_stock(block) {
            Some(block) => self.stock.free_requested(block, users),
            None => self.other.free_requested(block, users),
        }
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        match of_stock(block) {
            Some(block) => self.stock.free_completed(device, block),
            None => self.other.free_completed(device, block),
        }
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        match of_stock(block) {
            Some(block) => self.stock.free(device, block),
            None => self.other.free(device, block),
        }
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.stock.trim(device);
        self.other.trim(device);
    }

    fn release_pool(&mut self, device: &mut dyn Device, pool: PoolId) {
        self.stock.release_pool(device, pool);
    }

    fn foresee(&mut self, lifetimes: &dyn Fn() -> Vec<Lifetime>) {
        self.other.foresee(lifetimes);
    }

    fn usage(&self) -> Usage {
        self.stock.usage() + self.other.usage()
    }

    fn peak(&self) -> Usage {
        self.peak
    }

    fn retries(&self) -> u64 {
        self.stock.retries() + self.other.retries()
    }

    fn fault(&self) -> Option<&str> {
        self.other.fault()
    }

    fn counters(&self) -> Vec<Counter> {
        self.other.counters()
    }

    fn blocks(&self) -> Vec<BlockView> {
        let marked = |view: BlockView| BlockView { block: view.block.map(marked), ..view };
        let mut views = self.other.blocks();
        views.extend(self.stock.blocks().into_iter().map(marked));
        views.sort_by_key(|view| view.at);
        views
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, find};
    use super::*;
    use crate::device::SimDevice;
    use gmlake_core::alloc_conf::AllocConf;
    use gmlake_core::units::{Bytes, GIB};

    fn lake(has_private_pools: bool) -> Box<dyn Allocator> {
        let choice = Choice { spec: find("lake").unwrap(), options: Options::default() };
        choice.build(&Environment::new(AllocConf::default()), has_private_pools).unwrap()
    }

    fn request(size: Bytes, pool: u8) -> Request {
        Request { size, stream: StreamId(0), pool: PoolId(pool) }
    }

    #[test]
    fn what_a_private_pool_holds_serves_no_other_request_until_its_release() {
        for (has_pools, reserved) in [(true, 2 * GIB), (false, GIB)] {
            let (mut device, mut lake) = (SimDevice::new(4 * GIB), lake(has_pools));
            let freed = lake.malloc(&mut device, request(GIB, 1)).unwrap();
            lake.free(&mut device, freed.block);
            let kept = lake.malloc(&mut device, request(GIB, 0)).unwrap();
            assert_eq!(lake.usage().reserved, reserved);
            lake.release_pool(&mut device, PoolId(1));
            lake.trim(&mut device);
            assert_eq!(lake.usage().reserved, GIB);
            lake.free(&mut device, kept.block);
            assert_eq!((lake.usage().active, lake.peak().reserved), (0, reserved));
        }
    }

    #[test]
    fn each_makes_room_for_the_other() {
        let (mut device, mut lake) = (SimDevice::new(3 * GIB), lake(true));
        for (pool, size) in [(0, 2 * GIB), (1, 2 * GIB), (0, GIB)] {
            let given = lake.malloc(&mut device, request(size, pool)).unwrap();
            lake.free(&mut device, given.block);
        }
        // The pool's own cache stays: nothing else may have it.
        assert_eq!(lake.usage().reserved, 3 * GIB);
        let refused = lake.malloc(&mut device, request(2 * GIB, 0)).unwrap_err();
        assert!(matches!(refused, AllocError::OutOfMemory { usage, .. } if usage.active == 0));
        assert_eq!(lake.usage().reserved, 2 * GIB);
    }
}
