//! `bound-2mib`: what no allocator that maps memory page by page can do without, as an ordinary row of every table.
//!
//! Its sibling `bound` is [`Native`] without rounding: it holds exactly the bytes that are live, and offline placement
//! of real traces comes within a fraction of a percent of that. This one is the bound for expandable segments, GMLake
//! and their like: requests above 1 MiB take whole pages of 2 MiB, each as if stitched together perfectly, and smaller
//! ones go through PyTorch's small pool, which all of them leave as it is.

use super::caching::SMALL_MAX;
use super::{
    AllocError, AllocResult, Allocation, Allocator, BlockId, BlockView, Caching, Environment,
    Native, Request, SlabIndex, Usage,
};
use crate::device::{Device, GRANULE};
use gmlake_core::alloc_conf::AllocConf;
use gmlake_core::program::{PoolId, StreamId};

/// Marks the ids of small blocks.
const SMALL: SlabIndex = 1 << 31;

/// The bound for allocators that hold memory in pages of 2 MiB.
#[derive(Debug, Clone)]
pub struct PagedBound {
    small: Caching,
    large: Native,
    peak: Usage,
}

impl PagedBound {
    /// A bound on a device as `environment` says, with PyTorch's default settings for the small pool.
    pub fn new(environment: &Environment) -> Self {
        let conf = AllocConf::default();
        let stock = Environment { conf, memory_fraction: None, limit: None, ..environment.clone() };
        let large = Native::with_rounding(GRANULE);
        Self { small: Caching::new(&stock), large, peak: Usage::default() }
    }
}

fn small_id(block: BlockId) -> Option<BlockId> {
    (block.index & SMALL != 0).then_some(BlockId { index: block.index & !SMALL, ..block })
}

fn mark_small(block: BlockId) -> BlockId {
    BlockId { index: block.index | SMALL, ..block }
}

impl Allocator for PagedBound {
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        let given = if request.size <= SMALL_MAX {
            let marked = |given: Allocation| Allocation { block: mark_small(given.block), ..given };
            self.small.malloc(device, request).map(marked)
        } else {
            self.large.malloc(device, request)
        };
        self.peak = self.peak.max(self.usage());
        given.map_err(|error| match error {
            // Each half knows only of itself.
            AllocError::OutOfMemory { requested, .. } => {
                AllocError::OutOfMemory { requested, usage: self.usage() }
            }
            error => error,
        })
    }

    fn free_requested(&mut self, block: BlockId, users: &[StreamId]) {
        match small_id(block) {
            Some(block) => self.small.free_requested(block, users),
            None => self.large.free_requested(block, users),
        }
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        match small_id(block) {
            Some(block) => self.small.free_completed(device, block),
            None => self.large.free_completed(device, block),
        }
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        match small_id(block) {
            Some(block) => self.small.free(device, block),
            None => self.large.free(device, block),
        }
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.small.trim(device);
        self.large.trim(device);
    }

    fn release_pool(&mut self, device: &mut dyn Device, pool: PoolId) {
        self.small.release_pool(device, pool);
    }

    fn usage(&self) -> Usage {
        self.small.usage() + self.large.usage()
    }

    fn peak(&self) -> Usage {
        self.peak
    }

    fn retries(&self) -> u64 {
        self.small.retries() + self.large.retries()
    }

    fn walk(&self, visit: &mut dyn FnMut(BlockView)) {
        let mut views = Vec::new();
        self.large.walk(&mut |view| views.push(view));
        self.small.walk(&mut |view| {
            views.push(BlockView { block: view.block.map(mark_small), ..view });
        });
        views.sort_by_key(|view| view.at);
        views.into_iter().for_each(visit);
    }
}
