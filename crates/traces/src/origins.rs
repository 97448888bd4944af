//! Origins: the call stack of each allocation, by its dense id.
//!
//! A request says its stack itself, or else, if its block is there at the end, the final state does (PyTorch 2.0 kept
//! stacks there). A block that was live before the recording began has no request: if it is there at the end, its
//! stack is in the final state, too. If it was freed before, the entry of its free has a stack, which is that of
//! the request where PyTorch records no stacks of frees (`context="alloc"`): that is so if all frees of known requests
//! have the stacks of their requests.
//!
//! ```text
//!   free_requested 0xa000, stack 7      alloc 0xb000, stack 3 ... free_requested 0xb000, stack 3
//!     └─ of a block live before:          └─ equal in all pairs: so 7 is the stack of the request, too
//!        stack 7?
//! ```

use rustc_hash::FxHashMap;

use super::{AllocId, Entry, Records};

/// The stacks of allocations, while a trace is made.
#[derive(Debug, Default)]
pub(super) struct Origins<'a> {
    records: &'a [(u64, u32)],
    has_stacks: bool,
    stacks: Vec<u32>,
    /// Places of blocks that were live before, until they are freed.
    before: FxHashMap<u64, AllocId>,
    /// Stacks of the frees of such blocks.
    freed: Vec<(AllocId, u32)>,
    /// Frees of known requests: those with the stack of the request, and those with another.
    same: u64,
    other: u64,
}

impl<'a> Origins<'a> {
    /// The origins of the allocations in `records`, if these have stacks.
    pub(super) fn new(records: &'a Records) -> Self {
        let has_stacks = !records.stacks.is_empty();
        Self { records: &records.live_stacks, has_stacks, ..Self::default() }
    }

    /// The next allocation was live before the recording began, at `address`.
    pub(super) fn start_block(&mut self, address: u64) {
        if self.has_stacks {
            self.before.insert(address, AllocId(self.stacks.len() as u32));
            self.stacks.push(Entry::NO_STACK);
        }
    }

    /// The next allocation is that of `entry`.
    #[inline]
    pub(super) fn alloc(&mut self, entry: &Entry) {
        if self.has_stacks {
            self.stacks.push(entry.stack);
        }
    }

    /// An allocation is freed by `entry`.
    #[inline]
    pub(super) fn free(&mut self, entry: &Entry, alloc: AllocId) {
        if !self.has_stacks {
            return;
        }
        if self.before.get(&entry.addr) == Some(&alloc) {
            self.before.remove(&entry.addr);
            self.freed.push((alloc, entry.stack));
        } else if self.stacks[alloc.0 as usize] == entry.stack {
            self.same += 1;
        } else {
            self.other += 1;
        }
    }

    /// The stack of each allocation; nothing if there are none. `live` is what is live in the end.
    pub(super) fn finish(&mut self, live: impl Iterator<Item = (u64, AllocId)>) -> Vec<u32> {
        for (address, alloc) in live.filter(|_| self.has_stacks) {
            let stack = &mut self.stacks[alloc.0 as usize];
            let place = self.records.binary_search_by_key(&address, |&(at, _)| at);
            match place {
                Ok(place) if *stack == Entry::NO_STACK => *stack = self.records[place].1,
                _ => {}
            }
        }
        if self.same > 0 && self.other == 0 {
            for &(alloc, stack) in &self.freed {
                self.stacks[alloc.0 as usize] = stack;
            }
        }
        std::mem::take(&mut self.stacks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, Labels, PoolId, Stack, StartBlock, StreamId, ingest};
    use super::*;

    fn entry(action: Action, addr: u64, stack: u32) -> Entry {
        Entry { addr, size: 512, time_us: 0, stack, stream: StreamId(0), action, pool: PoolId(0) }
    }

    /// Two blocks live before, of which the first is freed by an entry with stack 2; a request with stack 1 that is
    /// freed by one with stack `freed_by`.
    fn stacks(freed_by: u32) -> Vec<u32> {
        let mut records = Records { live_stacks: vec![(8192, 3)], ..Records::default() };
        records.stacks.stacks = vec![Stack::default(); 4];
        let pair = |addr, stack| {
            [Action::FreeRequested, Action::FreeCompleted].map(|action| entry(action, addr, stack))
        };
        records.entries.extend(pair(4096, 2));
        records.entries.push(entry(Action::Alloc, 4096, 1));
        records.entries.extend(pair(4096, freed_by));
        let block = |address| {
            let (stream, pool) = (StreamId(0), PoolId(0));
            StartBlock { address, requested: 512, stream, pool, is_pending: false }
        };
        let labels = Labels { start: vec![block(4096), block(8192)], ..Labels::default() };
        ingest(&records, &labels).alloc_stacks
    }

    #[test]
    fn blocks_from_before_have_the_stacks_of_the_final_state_and_of_their_frees() {
        assert_eq!(stacks(1), [2, 3, 1]);
    }

    #[test]
    fn stacks_of_frees_are_not_taken_for_those_of_requests() {
        assert_eq!(stacks(0), [Entry::NO_STACK, 3, 1]);
    }
}
