//! Free blocks in the order (stream, size, address), for exact best fit with ties broken by the lowest address.
//!
//! A block's key is packed into one 128-bit integer, so that comparing two keys is one comparison and the order of
//! the integers is the order of the blocks. There may be ten thousands of chunks of one size, so it is a tree, where
//! the index of the caching allocator ([`FreeIndex`](crate::allocator::free_index::FreeIndex)) has short bins.
//!
//! ```text
//!   ┌── 16 ──┬───── 32 ─────┬─────── 48 ────────┬──── 32 ────┐
//!   │ stream │ size (units) │ address / 512 B   │ slab index │
//!   └────────┴──────────────┴───────────────────┴────────────┘
//! ```

use std::collections::BTreeSet;

use crate::allocator::SlabIndex;
use crate::device::DevicePtr;
use gmlake_core::program::StreamId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SizeKey(u128);

impl SizeKey {
    /// The key of a block of `units` units (which unit is the owner's choice) at an address that is a multiple of
    /// 512 bytes.
    #[inline]
    pub(crate) fn new(stream: StreamId, units: u32, at: DevicePtr, index: SlabIndex) -> Self {
        debug_assert!(at.0 >> 57 == 0 && at.0.is_multiple_of(512), "{at} does not fit into a key");
        let place = u128::from(at.0 >> 9) << 32;
        Self(u128::from(stream.0) << 112 | u128::from(units) << 80 | place | u128::from(index))
    }

    #[inline]
    pub(crate) fn units(self) -> u32 {
        (self.0 >> 80) as u32
    }

    #[inline]
    pub(crate) fn index(self) -> SlabIndex {
        self.0 as u32
    }

    fn stream(self) -> StreamId {
        StreamId((self.0 >> 112) as u16)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SizeOrder {
    keys: BTreeSet<SizeKey>,
}

impl SizeOrder {
    #[inline]
    pub(crate) fn insert(&mut self, key: SizeKey) {
        let is_new = self.keys.insert(key);
        debug_assert!(is_new, "block {} was listed already", key.index());
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: SizeKey) {
        let was_there = self.keys.remove(&key);
        debug_assert!(was_there, "block {} was not listed", key.index());
    }

    /// The smallest block of the stream that has at least `units` units.
    #[inline]
    pub(crate) fn best_fit(&self, stream: StreamId, units: u32) -> Option<SizeKey> {
        let first = self.keys.range(SizeKey::new(stream, units, DevicePtr(0), 0)..).next()?;
        (first.stream() == stream).then_some(*first)
    }

    /// The blocks of one stream, from the largest (and highest address) to the smallest.
    pub(crate) fn largest_first(&self, stream: StreamId) -> impl Iterator<Item = SizeKey> {
        let low = SizeKey(u128::from(stream.0) << 112);
        let high = SizeKey(u128::from(stream.0) << 112 | (u128::MAX >> 16));
        self.keys.range(low..=high).rev().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = SizeKey> {
        self.keys.iter().copied()
    }
}
