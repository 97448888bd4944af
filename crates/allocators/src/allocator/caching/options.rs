//! Options that a recording does not name: `no_split` and `use_on_oom` of a `MemPool`, and rejection at once.
//!
//! What it shows of the first two is memory that was not cut, and requests that another pool served.

use super::pool::pool_index;
use super::{Caching, Wanted};
use crate::allocator::SlabIndex;
use gmlake_core::program::PoolId;
use gmlake_core::units::Bytes;

impl Caching {
    /// Says that segments of a private pool are handed out whole (`no_split`, 2.10 and later).
    pub fn set_no_split(&mut self, id: PoolId) {
        for is_small in [true, false] {
            let pool = pool_index(id, is_small);
            self.pool_entry(pool);
            self.pools[usize::from(pool)].is_whole = true;
        }
    }

    /// Says that a private pool serves requests from outside for which the device has no memory (`use_on_oom`). The one
    /// that was named last is asked first; PyTorch's order is that of a hash table.
    pub fn set_use_on_oom(&mut self, id: PoolId) {
        self.pool_entry(pool_index(id, false));
        self.fallbacks.retain(|&known| known != id);
        self.fallbacks.insert(0, id);
    }

    /// Whether to hold this many bytes is refused at once (`throw_on_cudamalloc_oom`), which a recording does not show.
    /// The share that the settings name counts. A process that began with it has it for a limit, which comes first; so
    /// this is for one that got these settings later.
    pub(super) fn rejects(&self, needed: Bytes) -> bool {
        let named =
            self.conf.memory_fraction.filter(|&share| self.conf.throw_on_oom && share < 1.0);
        named.is_some_and(|share| needed > (share * self.total_memory as f64) as Bytes)
    }

    /// A free block of another pool that serves a request of the default one.
    pub(super) fn find_elsewhere(&mut self, wanted: Wanted) -> Option<(SlabIndex, Wanted)> {
        if self.fallbacks.is_empty() || wanted.pool > 1 {
            return None;
        }
        // Only up to 2.9 may it be an expandable one.
        let expandable = wanted.expandable && !self.version.is_at_least(10);
        let is_small = wanted.pool == 0;
        self.fallbacks.clone().into_iter().find_map(|id| {
            let other = Wanted { pool: pool_index(id, is_small), expandable, ..wanted };
            self.find(other).map(|block| (block, other))
        })
    }
}
