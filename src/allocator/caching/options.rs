//! Options of a `MemPool`: `no_split`, and `use_on_oom`.
//!
//! A recording does not name them. What it shows is memory that was not cut, and requests that another pool served.

use super::pool::pool_index;
use super::{Caching, Wanted};
use crate::allocator::SlabIndex;
use crate::trace::PoolId;

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
