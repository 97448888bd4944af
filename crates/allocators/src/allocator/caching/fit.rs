//! Fit: which free block serves a request, and whether one does, without taking it.

use super::block::Blocks;
use super::{Caching, Wanted};
use crate::allocator::Request;
use crate::allocator::free_index::{Cursor, StreamList};
use gmlake_core::alloc_conf::AllocConf;
use gmlake_core::units::Bytes;

impl Caching {
    /// Whether a free block would serve the request.
    pub fn would_fit(&self, request: Request) -> bool {
        let wanted = self.wanted(request);
        let free = self.pools.get(usize::from(wanted.pool));
        let free = free.and_then(|pool| pool.free.list(wanted.stream));
        free.is_some_and(|free| wanted.search(&self.blocks, &self.conf, free).is_some())
    }
}

impl Wanted {
    /// Best fit, and what PyTorch makes of it: the position of the block to take.
    #[inline(always)]
    pub(super) fn search(
        &self,
        blocks: &Blocks,
        conf: &AllocConf,
        free: &StreamList,
    ) -> Option<Cursor> {
        let mut at = free.best_fit(self.size)?;
        if blocks.is_doubtful(at.block, self.expandable) {
            at = blocks.step_over(free, at, self.expandable)?;
        }
        // A block that is too large ends the search, even if one that would do follows: so does PyTorch.
        self.is_served_by(blocks[at.block].size, conf).then_some(at)
    }

    /// Whether a free block of `size` bytes may serve the request.
    #[inline]
    fn is_served_by(&self, size: Bytes, conf: &AllocConf) -> bool {
        size >= self.size
            && conf.max_split_size.is_none_or(|max| {
                if self.size < max {
                    size < max
                } else {
                    size < self.size + conf.max_non_split_rounding
                }
            })
    }
}
