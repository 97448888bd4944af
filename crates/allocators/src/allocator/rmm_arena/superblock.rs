//! A superblock: a stretch of the arena with its free blocks; and a set of superblocks in address order.
//!
//! ```text
//!   superblock [##|   |####|  ]      free blocks by address: those that touch are one; first fit takes the lowest
//! ```

use std::collections::BTreeMap;

use crate::holes::Holes;
use gmlake_core::units::{Bytes, MIB};

const LEAST: Bytes = MIB;

/// A stretch of the arena.
#[derive(Debug, Clone, Default)]
pub(super) struct Superblock {
    size: Bytes,
    free: Holes,
}

impl Superblock {
    /// A stretch that is free.
    pub(super) fn new(at: u64, size: Bytes) -> Self {
        let mut free = Holes::default();
        free.give(at, size, |_| false);
        Self { size, free }
    }

    fn is_empty(&self) -> bool {
        self.free.largest() == self.size
    }

    fn is_full(&self) -> bool {
        self.free.largest() == 0
    }

    /// Takes the lowest block that is large enough, cut to size.
    pub(super) fn first_fit(&mut self, size: Bytes) -> Option<u64> {
        let at = self.free.first(size)?;
        self.free.take(at, size);
        Some(at)
    }
}

/// Superblocks by address. Those without a free block are kept apart: no search looks at them.
#[derive(Debug, Clone, Default)]
pub(super) struct Superblocks {
    open: BTreeMap<u64, Superblock>,
    full: BTreeMap<u64, Superblock>,
}

impl Superblocks {
    /// Adds a superblock as it is.
    pub(super) fn insert(&mut self, start: u64, superblock: Superblock) {
        let set = if superblock.is_full() { &mut self.full } else { &mut self.open };
        set.insert(start, superblock);
    }

    /// Takes a block out of the first superblock with one that is large enough.
    pub(super) fn first_fit(&mut self, size: Bytes) -> Option<u64> {
        let mut found = None;
        for (&start, superblock) in &mut self.open {
            if let Some(at) = superblock.first_fit(size) {
                found = Some((start, at, superblock.is_full()));
                break;
            }
        }
        let (start, at, is_full) = found?;
        if is_full && let Some(superblock) = self.open.remove(&start) {
            self.full.insert(start, superblock);
        }
        Some(at)
    }

    /// Takes out the first superblock with a block of this size. An empty one is cut, if a superblock remains.
    pub(super) fn acquire(&mut self, size: Bytes) -> Option<(u64, Superblock)> {
        let fits = |superblock: &Superblock| superblock.free.largest() >= size;
        let start = *self.open.iter().find(|(_, superblock)| fits(superblock))?.0;
        let superblock = self.open.remove(&start)?;
        let least = size.max(LEAST);
        if !superblock.is_empty() || superblock.size < least + LEAST {
            return Some((start, superblock));
        }
        let (rest, size) = (start + least, superblock.size - least);
        self.open.insert(rest, Superblock::new(rest, size));
        Some((start, Superblock::new(start, least)))
    }

    /// A block of one of these superblocks is free again; `false` if it is in none of them. A superblock that is empty
    /// then may become one with its neighbours.
    pub(super) fn give(&mut self, at: u64, size: Bytes, coalesces: bool) -> bool {
        let holds = |(start, superblock): (&u64, &Superblock)| {
            (at + size <= start + superblock.size).then_some(*start)
        };
        let within = |set: &BTreeMap<u64, Superblock>| set.range(..=at).next_back().and_then(holds);
        let start = within(&self.open).or_else(|| within(&self.full));
        let Some(start) = start else { return false };
        let superblock = self.open.remove(&start).or_else(|| self.full.remove(&start));
        let mut superblock = superblock.unwrap_or_default();
        superblock.free.give(at, size, |_| false);
        if coalesces && superblock.is_empty() {
            self.coalesce(start, superblock);
        } else {
            self.open.insert(start, superblock);
        }
        true
    }

    /// Adds a superblock. If it is empty, it becomes one with empty neighbours.
    pub(super) fn coalesce(&mut self, mut start: u64, mut superblock: Superblock) {
        if !superblock.is_empty() {
            self.insert(start, superblock);
            return;
        }
        if let Some((&before, other)) = self.open.range(..start).next_back()
            && other.is_empty()
            && before + other.size == start
        {
            let size = other.size + superblock.size;
            self.open.remove(&before);
            (start, superblock) = (before, Superblock::new(before, size));
        }
        let end = start + superblock.size;
        if let Some(other) = self.open.get(&end)
            && other.is_empty()
        {
            superblock = Superblock::new(start, superblock.size + other.size);
            self.open.remove(&end);
        }
        self.open.insert(start, superblock);
    }

    /// Takes all superblocks out, in address order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (u64, Superblock)> + use<> {
        let mut all = std::mem::take(&mut self.open);
        all.append(&mut self.full);
        all.into_iter()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn free(&self) -> impl Iterator<Item = (u64, Bytes)> {
        self.open.values().flat_map(|superblock| superblock.free.iter())
    }

    /// The end of the last block that is taken, if any is.
    pub(super) fn used_end(&self) -> Option<u64> {
        let full = self.full.iter().next_back().map(|(start, superblock)| start + superblock.size);
        let open = self.open.iter().rev().find(|(_, superblock)| !superblock.is_empty());
        let open = open.map(|(start, superblock)| {
            let end = start + superblock.size;
            let last = superblock.free.iter().next_back();
            last.filter(|(at, size)| at + size == end).map_or(end, |(at, _)| at)
        });
        full.max(open)
    }
}
