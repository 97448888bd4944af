//! Blocks: a range of addresses from its beginning to the end of what was ever mapped, cut into pieces side by side.
//!
//! ```text
//!   active   free        active  hole              free       the tail, if it is free
//!   [######][           ][#####][- - - - - - - - -][         ]
//! ```

use std::collections::{BTreeMap, BTreeSet};

use gmlake_core::units::Bytes;

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In a client's hands.
    Active,
    /// Backed by memory, and ready to serve a request.
    Free,
    /// Addresses without memory.
    Hole,
}

/// Part of the range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) size: Bytes,
    pub(super) state: State,
    /// Whether the stream that freed it may still be working on it.
    pub(super) is_used: bool,
}

impl Block {
    /// Memory that no stream has used yet.
    pub(super) fn fresh(size: Bytes) -> Self {
        Self { size, state: State::Free, is_used: false }
    }

    /// Addresses without memory.
    pub(super) fn hole(size: Bytes) -> Self {
        Self { size, state: State::Hole, is_used: false }
    }
}

/// All blocks by address, the free ones and the holes by size, too.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks {
    all: BTreeMap<u64, Block>,
    free: BTreeSet<(Bytes, u64)>,
    holes: BTreeSet<(Bytes, u64)>,
}

impl Blocks {
    fn index(&mut self, state: State) -> Option<&mut BTreeSet<(Bytes, u64)>> {
        match state {
            State::Active => None,
            State::Free => Some(&mut self.free),
            State::Hole => Some(&mut self.holes),
        }
    }

    /// Adds a block as it is, whatever its neighbours are.
    pub(super) fn add(&mut self, at: u64, block: Block) {
        if let Some(index) = self.index(block.state) {
            index.insert((block.size, at));
        }
        self.all.insert(at, block);
    }

    pub(super) fn remove(&mut self, at: u64) -> Block {
        let block = self.all.remove(&at).expect("a block begins here");
        if let Some(index) = self.index(block.state) {
            index.remove(&(block.size, at));
        }
        block
    }

    /// Adds a free block or a hole, and makes it one with a neighbour of its kind on either side.
    pub(super) fn add_merged(&mut self, mut at: u64, mut block: Block) {
        let before = self.all.range(..at).next_back().map(|(&start, &other)| (start, other));
        if let Some((start, other)) = before.filter(|(_, other)| other.state == block.state) {
            self.remove(start);
            (at, block.size) = (start, other.size + block.size);
            block.is_used |= other.is_used;
        }
        let end = at + block.size;
        if let Some(&other) = self.all.get(&end).filter(|other| other.state == block.state) {
            self.remove(end);
            block.size += other.size;
            block.is_used |= other.is_used;
        }
        self.add(at, block);
    }

    /// Where the smallest free block of at least this size begins, the lowest of several; and its size.
    pub(super) fn best_fit(&self, size: Bytes) -> Option<(u64, Bytes)> {
        self.free.range((size, 0)..).next().map(|&(size, at)| (at, size))
    }

    /// Where holes of at least this size begin, the smallest first.
    pub(super) fn holes_from(&self, size: Bytes) -> impl Iterator<Item = u64> + '_ {
        self.holes.range((size, 0)..).map(|&(_, at)| at)
    }

    /// Gives a client the first `size` bytes of a free block.
    pub(super) fn activate(&mut self, at: u64, size: Bytes) {
        let block = self.remove(at);
        self.add(at, Block { size, state: State::Active, is_used: false });
        if block.size > size {
            self.add(at + size, Block { size: block.size - size, ..block });
        }
    }

    /// Takes an active block back.
    pub(super) fn release(&mut self, at: u64) {
        let block = self.remove(at);
        assert_eq!(block.state, State::Active, "{at:#x} is not in use");
        self.add_merged(at, Block { state: State::Free, is_used: true, ..block });
    }

    /// Takes the memory away from a range that is free.
    pub(super) fn punch(&mut self, at: u64, end: u64) {
        let (&start, _) = self.all.range(..=at).next_back().expect("a block covers the range");
        let mut cursor = start;
        while cursor < end {
            let block = self.remove(cursor);
            assert_eq!(block.state, State::Free, "{cursor:#x} is not free");
            let stop = cursor + block.size;
            if cursor < at {
                self.add(cursor, Block { size: at - cursor, ..block });
            }
            if stop > end {
                self.add(end, Block { size: stop - end, ..block });
            }
            cursor = stop;
        }
        self.add_merged(at, Block::hole(end - at));
    }

    /// Puts `size` bytes of memory behind the beginning of a hole.
    pub(super) fn fill(&mut self, at: u64, size: Bytes) {
        let hole = self.remove(at);
        assert!(hole.state == State::Hole && hole.size >= size, "no hole of {size} at {at:#x}");
        if hole.size > size {
            self.add(at + size, Block::hole(hole.size - size));
        }
        self.add(at, Block::fresh(size));
    }

    /// Makes all free blocks that touch one.
    pub(super) fn normalize(&mut self) {
        let starts: Vec<u64> = self.free.iter().map(|&(_, at)| at).collect();
        for at in starts {
            // One that has become part of another is gone.
            if self.all.get(&at).is_some_and(|block| block.state == State::Free) {
                let block = self.remove(at);
                self.add_merged(at, block);
            }
        }
    }

    /// No stream is working on free memory any more.
    pub(super) fn forget_users(&mut self) {
        self.all.values_mut().for_each(|block| block.is_used = false);
    }

    /// The last block, and where it begins.
    pub(super) fn tail(&self) -> Option<(u64, Block)> {
        self.all.last_key_value().map(|(&at, &block)| (at, block))
    }

    /// Bytes at the end of the range that are free.
    pub(super) fn tail_free(&self) -> Bytes {
        let tail = self.tail().filter(|(_, block)| block.state == State::Free);
        tail.map_or(0, |(_, block)| block.size)
    }

    /// Every block by address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Block)> + '_ {
        self.all.iter().map(|(&at, &block)| (at, block))
    }

    /// Every free block by address.
    pub(super) fn iter_free(&self) -> impl Iterator<Item = (u64, Block)> + '_ {
        self.iter().filter(|(_, block)| block.state == State::Free)
    }

    /// Whether no client has any of it.
    pub(super) fn is_idle(&self) -> bool {
        self.all.values().all(|block| block.state != State::Active)
    }
}
