//! The flush inside a malloc: what it completed and gave back, told from what was so before.
//!
//! A recording does not say where a malloc began. Frees that other streams held up complete when a malloc begins, or when
//! it runs short and waits for the GPU; and PyTorch does not search its cache again after that. So where a block would
//! have fitted with these frees complete, and the malloc grew or failed all the same, they completed in its flush:
//!
//! ```text
//!   free_requested 0xa…
//!   free_completed 0xa…    as it is freed?  Then the malloc would have taken it.
//!   oom                    So it completed in the flush.
//! ```

use super::verify::{Verifier, end_of_operation};
use crate::allocator::BlockId;
use crate::trace::{Action, Entry, PoolId};

impl Verifier<'_> {
    /// Whether the frees that are next complete only in the flush of the malloc that follows; `freed` is the block
    /// whose free was requested right before.
    pub(super) fn completes_in_flush(&self, freed: Option<BlockId>) -> bool {
        let first = self.device.device.next;
        let last = end_of_operation(self.entries, first);
        let Some(end) = self.entries.get(last).filter(|end| is_request(end)) else { return false };
        let grows = |entry: &Entry| {
            matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap | Action::Oom)
        };
        if !self.entries[first..=last].iter().any(grows) {
            return false;
        }
        let completed = self.entries[first..last].iter();
        let completed = completed.take_while(|entry| entry.action == Action::FreeCompleted);
        let blocks = completed.filter_map(|entry| Some(self.live.get(&entry.addr)?.block));
        let blocks: Vec<BlockId> = blocks.chain(freed).collect();
        !blocks.is_empty() && self.model.would_fit_after(&blocks, self.request(last, end))
    }

    /// Private pools of which a malloc gave something back have no owner any more, though no entry said so.
    pub(super) fn disown_pools(&mut self, first: usize, last: usize, requested: PoolId) {
        for index in first..last {
            let entry = &self.entries[index];
            if matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap) {
                let pool = self.assumed.lifetimes.pool_at(index, entry);
                if pool != PoolId::DEFAULT && pool != requested {
                    self.model.disown_pool(pool);
                }
            }
        }
    }
}

fn is_request(entry: &Entry) -> bool {
    matches!(entry.action, Action::Alloc | Action::Oom)
}
