//! Fit: whether the cache would serve a request, without taking anything.

use super::{Caching, Wanted};
use crate::allocator::Request;
use gmlake_core::units::Bytes;

impl Caching {
    /// Whether a free block would serve the request.
    pub fn would_fit(&self, request: Request) -> bool {
        let wanted = self.wanted(request);
        self.pools.len() > usize::from(wanted.pool) && self.search(wanted).is_some()
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
