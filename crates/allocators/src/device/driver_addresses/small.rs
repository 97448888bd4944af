//! Requests below 2 MiB: pieces of pages that the driver has taken for them.
//!
//! The smallest free piece of any page that holds the request, of equals the one that has been free longest. A page
//! goes back once nothing is left in it.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::device::GRANULE;
use gmlake_core::units::{Bytes, round_up};

/// Requests are rounded up to this.
const UNIT: Bytes = 512;

#[derive(Debug, Clone, Default)]
pub(super) struct Small {
    /// How many changes there were: the age of a hole.
    now: u64,
    /// Size and age of each hole, by address.
    holes: BTreeMap<u64, (Bytes, u64)>,
    by_size: BTreeMap<(Bytes, u64), u64>,
    /// Sizes, by address.
    taken: FxHashMap<u64, Bytes>,
}

impl Small {
    /// Whether a request of this size shares a page.
    pub(super) fn is_for(size: Bytes) -> bool {
        size <= GRANULE - UNIT
    }

    /// Whether this is the address of such a request.
    pub(super) fn holds(&self, at: u64) -> bool {
        self.taken.contains_key(&at)
    }

    /// A piece of a page that is there.
    pub(super) fn take(&mut self, size: Bytes) -> Option<u64> {
        let size = round_up(size.max(1), UNIT);
        let (_, &at) = self.by_size.range((size, 0)..).next()?;
        let hole = self.remove(at);
        if hole > size {
            self.insert(at + size, hole - size);
        }
        self.taken.insert(at, size);
        Some(at)
    }

    /// The front of a new page.
    pub(super) fn take_new(&mut self, page: u64, size: Bytes) -> u64 {
        let size = round_up(size.max(1), UNIT);
        self.insert(page + size, GRANULE - size);
        self.taken.insert(page, size);
        page
    }

    /// Gives a piece back; returns its page once that is empty.
    pub(super) fn give(&mut self, at: u64) -> Option<u64> {
        let size = self.taken.remove(&at)?;
        let page = at / GRANULE * GRANULE;
        let (mut at, mut end) = (at, at + size);
        let before = self.holes.range(page..at).next_back().map(|(&start, hole)| (start, hole.0));
        if let Some((start, size)) = before
            && start + size == at
        {
            self.remove(start);
            at = start;
        }
        if end < page + GRANULE && self.holes.contains_key(&end) {
            end += self.remove(end);
        }
        if end - at == GRANULE {
            return Some(page);
        }
        self.insert(at, end - at);
        None
    }

    fn insert(&mut self, at: u64, size: Bytes) {
        self.now += 1;
        self.holes.insert(at, (size, self.now));
        self.by_size.insert((size, self.now), at);
    }

    fn remove(&mut self, at: u64) -> Bytes {
        let hole = self.holes.remove(&at).unwrap_or_default();
        self.by_size.remove(&hole);
        hole.0
    }
}
