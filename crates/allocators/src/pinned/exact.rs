//! Pinned memory that is never much more than was in use at once: `gmlake.enable(host=True)`.
//!
//! ```text
//!   request ─▶ a free block of that size ─▶ else one is pinned; free blocks that would then be too many are unpinned
//!   free ────▶ kept for the next request
//! ```
//!
//! PyTorch rounds to powers of two, or keeps nothing. Here blocks have the size of their requests and are kept, as
//! long as all together stay below the most that was in use. So what a step pins, the next step finds again.

use std::collections::BTreeSet;

use gmlake_core::units::Bytes;
use rustc_hash::FxHashMap;

use super::in_pages;

/// A block may exceed a request by a part of this size, and all blocks the most that was in use.
const SLACK: Bytes = 256;

/// Which blocks are pinned. Addresses are the caller's, who pins and unpins them.
#[derive(Debug, Default)]
pub struct ExactPinned {
    /// By size.
    free: BTreeSet<(Bytes, u64)>,
    sizes: FxHashMap<u64, Bytes>,
    in_use: Bytes,
    pinned: Bytes,
    /// The most that was in use.
    most: Bytes,
}

impl ExactPinned {
    /// Hands out a free block for a request of `size` bytes; none if there is none of that size.
    pub fn take(&mut self, size: Bytes) -> Option<u64> {
        let size = in_pages(size) as Bytes;
        let &(found, at) = self.free.range((size, 0)..).next()?;
        if found > size + size / SLACK {
            return None;
        }
        self.free.remove(&(found, at));
        self.hand_out(found);
        Some(at)
    }

    /// A free block that is to be unpinned before so many more bytes are pinned, and is forgotten here.
    pub fn evict_for(&mut self, size: Bytes) -> Option<u64> {
        let size = in_pages(size) as Bytes;
        let most = self.most.max(self.in_use + size);
        let excess = (self.pinned + size).saturating_sub(most + most / SLACK);
        if excess == 0 {
            return None;
        }
        let smallest = self.free.range((excess, 0)..).next();
        let &block = smallest.or_else(|| self.free.last())?;
        Some(self.forget(block))
    }

    /// Any free block, to be unpinned; with none left, the most that was in use is what is now.
    pub fn evict(&mut self) -> Option<u64> {
        let Some(&block) = self.free.last() else {
            self.most = self.in_use;
            return None;
        };
        Some(self.forget(block))
    }

    /// Notes a block that was pinned for a request of `size` bytes, and is handed out.
    pub fn pin(&mut self, at: u64, size: Bytes) {
        let size = in_pages(size) as Bytes;
        self.sizes.insert(at, size);
        self.pinned += size;
        self.hand_out(size);
    }

    /// Takes a block back that neither the program nor a GPU uses; false if it is none that is pinned here.
    pub fn put(&mut self, at: u64) -> bool {
        let Some(&size) = self.sizes.get(&at) else { return false };
        let is_new = self.free.insert((size, at));
        self.in_use -= if is_new { size } else { 0 };
        is_new
    }

    /// Bytes that are pinned.
    pub fn pinned(&self) -> Bytes {
        self.pinned
    }

    fn hand_out(&mut self, size: Bytes) {
        self.in_use += size;
        self.most = self.most.max(self.in_use);
    }

    fn forget(&mut self, block: (Bytes, u64)) -> u64 {
        self.free.remove(&block);
        self.sizes.remove(&block.1);
        self.pinned -= block.0;
        block.1
    }
}
