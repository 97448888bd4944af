//! Pages: physical memory as the driver packs what `cuMemAlloc` hands out.
//!
//! ```text
//!   page 0 │ 700 KiB │ 12 │ free 1 MiB ...      │   requests below 2 MiB: the smallest free piece of a page that
//!   page 1 │ 1.5 MiB           │ free 0.5 MiB   │   holds them, the first of several; a page goes when it is empty
//!          │ 2 MiB │ 2 MiB │ 2 MiB, half used   │   larger ones: pages of their own
//! ```
//!
//! Found on an H200: on nine replays of `native` this rule gives what the driver reports at the peak, to a page
//! (`reports/vmm/README.md`). A program with a cache asks for whole pages, and never sees it.

use rustc_hash::FxHashMap;

use super::{DevicePtr, GRANULE};
use crate::holes::Holes;
use gmlake_core::units::{Bytes, round_up};

/// Requests are rounded up to this.
const UNIT: Bytes = 512;

/// Pages that are shared by small requests, one behind the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    gaps: Holes,
    /// Place and size, by the address that the program knows.
    blocks: FxHashMap<DevicePtr, (u64, Bytes)>,
    /// Where the newest page begins.
    newest: u64,
}

impl Pages {
    /// Bytes of pages that `size` bytes would take beyond those in use.
    pub(super) fn lack(&self, size: Bytes) -> Bytes {
        if size < GRANULE && self.gaps.best(round_up(size, UNIT)).is_some() {
            0
        } else {
            round_up(size, GRANULE)
        }
    }

    /// The driver handed out `size` bytes at `at`.
    pub(super) fn take(&mut self, at: DevicePtr, size: Bytes) {
        if size >= GRANULE {
            return;
        }
        let size = round_up(size, UNIT);
        let place = self.gaps.best(size).unwrap_or_else(|| {
            self.newest += GRANULE;
            self.give_back(self.newest, GRANULE).0
        });
        self.gaps.take(place, size);
        self.blocks.insert(at, (place, size));
    }

    /// It got them back. Returns the bytes of pages that are no longer needed.
    pub(super) fn give(&mut self, at: DevicePtr, size: Bytes) -> Bytes {
        let Some((place, size)) = self.blocks.remove(&at) else {
            return round_up(size, GRANULE);
        };
        let (page, free) = self.give_back(place, size);
        if free < GRANULE {
            return 0;
        }
        self.gaps.take(page, GRANULE);
        GRANULE
    }

    /// Makes a gap, which ends where the next page begins.
    fn give_back(&mut self, place: u64, size: Bytes) -> (u64, Bytes) {
        self.gaps.give(place, size, |at| at.is_multiple_of(GRANULE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_core::units::{KIB, MIB};

    #[test]
    fn small_requests_share_a_page_and_large_ones_do_not() {
        let mut pages = Pages::default();
        let mut take = |at, size| {
            let lack = pages.lack(size);
            pages.take(DevicePtr(at), size);
            lack
        };
        assert_eq!([take(1, 700 * KIB), take(2, 1), take(3, 3 * MIB)], [GRANULE, 0, 2 * GRANULE]);
        assert_eq!(pages.give(DevicePtr(3), 3 * MIB), 2 * GRANULE);
        assert_eq!(pages.give(DevicePtr(1), 700 * KIB), 0);
        assert_eq!(pages.give(DevicePtr(2), 1), GRANULE);
    }
}
