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
    use gmlake_core::program::synthetic::SplitMix64;
    use gmlake_core::units::{KIB, MIB};

    const UNITS: usize = (GRANULE / UNIT) as usize;

    /// The same rule, with a flag for each unit of each page, and every run of free ones looked at.
    #[derive(Default)]
    struct Obvious {
        pages: Vec<Vec<bool>>,
        blocks: FxHashMap<DevicePtr, (usize, usize, usize)>,
    }

    impl Obvious {
        fn take(&mut self, at: DevicePtr, size: Bytes) {
            let units = size.div_ceil(UNIT) as usize;
            let runs = self.pages.iter().enumerate().flat_map(|(page, flags)| {
                let is_start = |&unit: &usize| !flags[unit] && (unit == 0 || flags[unit - 1]);
                (0..UNITS).filter(is_start).map(move |unit| {
                    let length = flags[unit..].iter().take_while(|flag| !**flag).count();
                    (length, page, unit)
                })
            });
            // A page that is empty was given back: it counts as one that does not exist yet.
            let used = |page: &usize| self.pages[*page].contains(&true);
            let best = runs.filter(|(length, page, _)| *length >= units && used(page)).min();
            let (page, start) = best.map_or((self.pages.len(), 0), |(_, page, unit)| (page, unit));
            if page == self.pages.len() {
                self.pages.push(vec![false; UNITS]);
            }
            self.pages[page][start..start + units].fill(true);
            self.blocks.insert(at, (page, start, units));
        }

        fn give(&mut self, at: DevicePtr) {
            let (page, start, units) = self.blocks.remove(&at).unwrap();
            self.pages[page][start..start + units].fill(false);
        }

        fn held(&self) -> Bytes {
            self.pages.iter().filter(|page| page.contains(&true)).count() as Bytes * GRANULE
        }
    }

    #[test]
    fn pages_are_packed_as_the_obvious_way_does() {
        let (mut pages, mut obvious) = (Pages::default(), Obvious::default());
        let mut random = SplitMix64::new(7);
        let (mut live, mut held) = (Vec::new(), 0);
        for turn in 0..3000 {
            if live.len() < 40 || random.below(2) == 0 && live.len() < 120 {
                let (at, size) = (DevicePtr(turn), random.size(1, MIB));
                held += pages.lack(size);
                pages.take(at, size);
                obvious.take(at, size);
                live.push((at, size));
            } else {
                let (at, size) = live.swap_remove(random.below(live.len() as u64) as usize);
                held -= pages.give(at, size);
                obvious.give(at);
            }
            assert_eq!(held, obvious.held(), "turn {turn}");
        }
        for (at, size) in live {
            held -= pages.give(at, size);
        }
        assert!(held == 0 && pages.gaps.largest() == 0 && pages.blocks.is_empty());
    }

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
