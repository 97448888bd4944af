//! Giving memory back: garbage collection, oversize release, flush.
//!
//! In this order they are tried when memory is short, each giving up more of the cache than the one before.

use super::block::{Block, BlockState};
use super::pool::pool_index;
use super::{Caching, Wanted};
use crate::allocator::SlabIndex;
use crate::device::{Device, DevicePtr};
use gmlake_core::program::PoolId;
use gmlake_core::units::Bytes;

impl Caching {
    /// Releases the oldest free segments of the default large pool, until no more is held than the threshold allows
    /// or no segment is old enough. Age is counted in searches since the block became free.
    pub(super) fn collect_garbage(&mut self, device: &mut dyn Device) {
        let Some(limit) = self.limit else { return };
        let threshold = (self.conf.garbage_collection_threshold * limit as f64) as Bytes;
        let excess = self.ledger.now().reserved.saturating_sub(threshold);
        let pool = pool_index(PoolId::DEFAULT, false);
        // The average is over all unsplit blocks, expandable ones included; only the others are released.
        let whole: Vec<_> = self.free_blocks(pool, |_| true);
        let mut ages: u64 = whole.iter().map(|&block| self.age(block)).sum();
        let mut count = whole.len() as u64;
        let mut reclaimed = 0;
        while reclaimed < excess && count > 0 {
            let cut = ages as f64 / count as f64;
            let old = |block| self.age(block) as f64 >= cut;
            let victims = self.free_blocks(pool, old);
            let before = reclaimed;
            for block in victims {
                if !self.blocks[block].is_expandable() {
                    reclaimed += self.blocks[block].size;
                    ages -= self.age(block);
                    count -= 1;
                    self.release(device, block);
                }
            }
            if reclaimed == before {
                return;
            }
        }
    }

    /// The unsplit free blocks of a pool that satisfy `wanted`, in the order of the index.
    fn free_blocks(&self, pool: u16, wanted: impl Fn(SlabIndex) -> bool) -> Vec<SlabIndex> {
        let blocks = self.pools[usize::from(pool)].free.iter();
        blocks.filter(|&block| !self.blocks[block].is_split() && wanted(block)).collect()
    }

    fn age(&self, block: SlabIndex) -> u64 {
        let block = &self.blocks[block];
        self.pools[usize::from(block.pool)].searches - block.free_since
    }

    /// Releases cached oversize blocks, enough for the request, and says whether it is worth asking the device again.
    /// Only with `max_split_size`.
    pub(super) fn release_oversize(&mut self, device: &mut dyn Device, wanted: Wanted) -> bool {
        let Some(max) = self.conf.max_split_size else { return false };
        let enough = wanted.size.max(max);
        let free = &self.pools[usize::from(wanted.pool)].free;
        let first = free.list(wanted.stream).and_then(|list| list.best_fit(enough));
        let is_whole = |&block: &SlabIndex| {
            !self.blocks[block].is_expandable() && !self.blocks[block].is_split()
        };
        if let Some(block) = first.map(|at| at.block).filter(is_whole) {
            self.release(device, block);
            return true;
        }
        let below = free.smaller_than(wanted.stream, enough);
        let oversize: Vec<_> = below.take_while(|&block| self.blocks[block].size >= max).collect();
        let mut released = 0;
        for block in oversize {
            if released >= enough {
                break;
            }
            let entry = &self.blocks[block];
            if !entry.is_expandable() && !entry.is_split() {
                released += entry.size;
                self.release(device, block);
            }
        }
        released >= enough
    }

    /// Waits for the GPU, completes all frees, and releases every free segment and page: `empty_cache`.
    pub(super) fn flush(&mut self, device: &mut dyn Device) {
        device.synchronize();
        self.complete_pending(|_| true);
        self.release_free(device, pool_index(PoolId::DEFAULT, false));
        self.release_free(device, pool_index(PoolId::DEFAULT, true));
        for id in self.freeable.clone() {
            self.release_private(device, id);
        }
        self.unreserve_empty(device);
    }

    /// Notes that the private pool `id` has no owner any more: from now on a flush releases it too.
    pub fn disown_pool(&mut self, id: PoolId) {
        if usize::from(pool_index(id, false)) < self.pools.len() && !self.freeable.contains(&id) {
            self.freeable.push(id);
        }
    }

    /// Releases the private pool `id`, whose owner is gone.
    pub(super) fn flush_private(&mut self, device: &mut dyn Device, id: PoolId) {
        if usize::from(pool_index(id, false)) >= self.pools.len() {
            return;
        }
        device.synchronize();
        self.complete_pending(|pool| pool == id);
        self.release_private(device, id);
        self.disown_pool(id);
    }

    fn release_private(&mut self, device: &mut dyn Device, id: PoolId) {
        self.release_free(device, pool_index(id, true));
        self.release_free(device, pool_index(id, false));
    }

    fn complete_pending(&mut self, of_pool: impl Fn(PoolId) -> bool) {
        if self.pending == 0 {
            return;
        }
        let pending = |(_, block): &(SlabIndex, &Block)| {
            block.state == BlockState::Pending && of_pool(self.pools[usize::from(block.pool)].id)
        };
        let pending = self.blocks.iter().filter(pending);
        let mut pending: Vec<_> = pending.map(|(index, block)| (block.at, index)).collect();
        pending.sort_unstable();
        for (_, index) in pending {
            self.pending -= 1;
            self.complete(index);
        }
    }

    /// Releases all free segments of a pool, then unmaps the free pages of its expandable ones.
    fn release_free(&mut self, device: &mut dyn Device, pool: u16) {
        let Some(free) = self.pools.get(usize::from(pool)).map(|pool| &pool.free) else { return };
        let (expandable, others): (Vec<_>, Vec<_>) =
            free.iter().partition(|&block| self.blocks[block].is_expandable());
        for block in others {
            if !self.blocks[block].is_split() {
                self.release(device, block);
            }
        }
        for block in expandable {
            self.unmap_pages(device, block);
        }
    }

    /// Gives a free segment back to the device.
    fn release(&mut self, device: &mut dyn Device, block: SlabIndex) {
        self.take_out(block);
        let entry = self.blocks[block];
        assert!(!entry.is_split(), "release of a part of a segment");
        device.free(DevicePtr(entry.at));
        self.ledger.shrink(entry.size);
        self.blocks.remove(block);
    }
}
