//! Requests below 2 MiB: pieces of pages that the driver has taken for them.
//!
//! The smallest free piece of any page that holds the request, of equals the one that has been free longest. A page
//! goes back once nothing is left in it.

use rustc_hash::FxHashMap;

use crate::device::GRANULE;
use crate::holes::Holes;
use gmlake_core::units::{Bytes, round_up};

/// Requests are rounded up to this.
const UNIT: Bytes = 512;

#[derive(Debug, Clone)]
pub(super) struct Small {
    holes: Holes,
    /// Sizes, by address.
    taken: FxHashMap<u64, Bytes>,
}

impl Small {
    pub(super) fn new() -> Self {
        Self { holes: Holes::oldest_first(), taken: FxHashMap::default() }
    }

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
        let at = self.holes.best(size)?;
        self.holes.take(at, size);
        self.taken.insert(at, size);
        Some(at)
    }

    /// The front of a new page.
    pub(super) fn take_new(&mut self, page: u64, size: Bytes) -> u64 {
        let size = round_up(size.max(1), UNIT);
        self.holes.give(page + size, GRANULE - size, is_page);
        self.taken.insert(page, size);
        page
    }

    /// Gives a piece back; returns its page once that is empty.
    pub(super) fn give(&mut self, at: u64) -> Option<u64> {
        let size = self.taken.remove(&at)?;
        let (page, free) = self.holes.give(at, size, is_page);
        if free < GRANULE {
            return None;
        }
        self.holes.take(page, GRANULE);
        Some(page)
    }
}

/// Whether a page begins here: a hole ends there.
fn is_page(at: u64) -> bool {
    at.is_multiple_of(GRANULE)
}
