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

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::{DevicePtr, GRANULE};
use gmlake_core::units::{Bytes, round_up};

/// Requests are rounded up to this.
const UNIT: Bytes = 512;

/// A piece of a page that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Gap {
    // Compared in this order: the smallest, and of equal ones the first.
    size: Bytes,
    page: u64,
    offset: Bytes,
}

/// Pages that are shared by small requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    gaps: BTreeSet<Gap>,
    /// The gaps of each page in use, by offset.
    pages: BTreeMap<u64, BTreeMap<Bytes, Bytes>>,
    blocks: FxHashMap<DevicePtr, Gap>,
    next: u64,
}

impl Pages {
    /// Bytes of pages that `size` bytes would take beyond those in use.
    pub(super) fn lack(&self, size: Bytes) -> Bytes {
        if size < GRANULE && self.fitting(round_up(size, UNIT)).is_some() {
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
        let gap = self.fitting(size).unwrap_or_else(|| self.open());
        self.remove(gap);
        if gap.size > size {
            self.insert(Gap { size: gap.size - size, offset: gap.offset + size, ..gap });
        }
        self.blocks.insert(at, Gap { size, ..gap });
    }

    /// It got them back. Returns the bytes of pages that are no longer needed.
    pub(super) fn give(&mut self, at: DevicePtr, size: Bytes) -> Bytes {
        let Some(block) = self.blocks.remove(&at) else {
            return round_up(size, GRANULE);
        };
        let gap = self.joined(block);
        if gap.size < GRANULE {
            self.insert(gap);
            return 0;
        }
        self.pages.remove(&gap.page);
        GRANULE
    }

    /// A piece that is free again, and the gaps on both sides of it, taken out.
    fn joined(&mut self, mut gap: Gap) -> Gap {
        let gaps = &self.pages[&gap.page];
        let before = gaps.range(..gap.offset).next_back().map(|(&offset, &size)| (offset, size));
        let after = gaps.get(&(gap.offset + gap.size)).copied();
        if let Some(size) = after {
            self.remove(Gap { size, offset: gap.offset + gap.size, ..gap });
            gap.size += size;
        }
        if let Some((offset, size)) = before.filter(|(offset, size)| offset + size == gap.offset) {
            self.remove(Gap { size, offset, ..gap });
            (gap.offset, gap.size) = (offset, gap.size + size);
        }
        gap
    }

    /// The smallest gap of at least this size.
    fn fitting(&self, size: Bytes) -> Option<Gap> {
        self.gaps.range(Gap { size, page: 0, offset: 0 }..).next().copied()
    }

    /// A page anew.
    fn open(&mut self) -> Gap {
        let gap = Gap { size: GRANULE, page: self.next, offset: 0 };
        self.next += 1;
        self.pages.insert(gap.page, BTreeMap::new());
        self.insert(gap);
        gap
    }

    fn insert(&mut self, gap: Gap) {
        self.gaps.insert(gap);
        self.pages.entry(gap.page).or_default().insert(gap.offset, gap.size);
    }

    fn remove(&mut self, gap: Gap) {
        self.gaps.remove(&gap);
        if let Some(gaps) = self.pages.get_mut(&gap.page) {
            gaps.remove(&gap.offset);
        }
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
        assert!(held == 0 && pages.gaps.is_empty() && pages.blocks.is_empty());
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
