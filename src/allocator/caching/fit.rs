//! Fit: whether the cache would serve a request, without taking anything.

use super::block::BlockState;
use super::{Caching, Wanted};
use crate::allocator::{BlockId, NIL, Request, SlabIndex};
use crate::units::Bytes;

impl Caching {
    /// Whether a free block would serve the request.
    #[must_use]
    pub fn would_fit(&self, request: Request) -> bool {
        let wanted = self.wanted(request);
        self.pools.len() > usize::from(wanted.pool) && self.search(wanted).is_some()
    }

    /// Whether one would if the frees of `pending` were complete, and none does as long as they are not.
    #[must_use]
    pub fn would_fit_after(&self, pending: &[BlockId], request: Request) -> bool {
        let wanted = self.wanted(request);
        let freed: Vec<SlabIndex> = pending.iter().filter_map(|&id| self.blocks.find(id)).collect();
        let serves = |&block: &SlabIndex| {
            let entry = &self.blocks[block];
            let size = self.merged_size(block, &freed);
            entry.pool == wanted.pool
                && entry.stream == wanted.stream
                && (self.is_usable(wanted, size) || self.has_room_after(&freed, wanted, size))
        };
        freed.iter().any(serves) && !self.would_fit(request)
    }

    /// Whether an expandable block that is too large for the search would be found where the segment is to grow.
    fn has_room_after(&self, freed: &[SlabIndex], wanted: Wanted, size: Bytes) -> bool {
        if !wanted.expandable || self.conf.max_split_size.is_none() || size < wanted.size {
            return false;
        }
        let mut after = self.clone();
        for &block in freed {
            after.merge_neighbours(block);
            after.put_back(block);
        }
        let found = after.room_to_grow(wanted).map(|block| after.blocks[block]);
        found.is_some_and(|block| block.state == BlockState::Free && block.size >= wanted.size)
    }

    /// Size of a block with all that is free beside it, `freed` included.
    fn merged_size(&self, block: SlabIndex, freed: &[SlabIndex]) -> Bytes {
        let is_free = |at: SlabIndex| {
            at != NIL && (self.blocks[at].state == BlockState::Free || freed.contains(&at))
        };
        let mut size = self.blocks[block].size;
        let mut at = self.blocks[block].prev;
        while is_free(at) {
            size += self.blocks[at].size;
            at = self.blocks[at].prev;
        }
        at = self.blocks[block].next;
        while is_free(at) {
            size += self.blocks[at].size;
            at = self.blocks[at].next;
        }
        size
    }

    /// Whether a free block of `size` bytes may serve the request.
    #[inline]
    pub(super) fn is_usable(&self, wanted: Wanted, size: Bytes) -> bool {
        size >= wanted.size
            && self.conf.max_split_size.is_none_or(|max| {
                if wanted.size < max {
                    size < max
                } else {
                    size < wanted.size + self.conf.max_non_split_rounding
                }
            })
    }
}
