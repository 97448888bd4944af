//! The plug-in's own history, in the words of PyTorch's recorder, which does not see an allocator from outside;
//! and who is told of what happens, where PyTorch asks us in full.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use gmlake_core::program::{Action, Entry};
use gmlake_core::units::Bytes;

/// Something happened on a GPU. For [`Action::Oom`], `at` is how many bytes were free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Index of the GPU.
    pub device: u32,
    /// What.
    pub action: Action,
    /// Where it begins.
    pub at: u64,
    /// Bytes asked for, or of the segment.
    pub size: Bytes,
    /// Handle of the stream.
    pub stream: u64,
}

/// Called while the GPU's lock is held, in the order in which things happen: must not ask for memory.
pub type Observer = fn(&Event);

/// The last entries of one GPU, as many as there is room for.
#[derive(Debug, Default)]
pub struct Journal {
    entries: VecDeque<Entry>,
    capacity: usize,
    dropped: u64,
}

impl Journal {
    /// Keeps the last `capacity` entries; with 0, records nothing.
    pub fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::new(), capacity, dropped: 0 }
    }

    /// Records from now on as many, or no more (0); what was recorded stays, as far as there is room.
    pub fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        if capacity > 0 {
            let surplus = self.entries.len().saturating_sub(capacity);
            self.entries.drain(..surplus);
            self.dropped += surplus as u64;
        }
    }

    /// Whether anything is recorded at all.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.capacity > 0
    }

    /// What was recorded and kept, oldest first.
    pub fn entries(&self) -> &VecDeque<Entry> {
        &self.entries
    }

    /// Older entries that there was no room for.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Notes that something happened, now.
    pub(super) fn note(&mut self, action: Action, entry: Entry) {
        if !self.is_on() {
            return;
        }
        if self.entries.len() == self.capacity {
            self.entries.pop_front();
            self.dropped += 1;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.entries.push_back(Entry { action, time_us: now.as_micros() as u64, ..entry });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_core::program::{PoolId, StreamId};

    fn note(journal: &mut Journal, addr: u64) {
        let (stream, pool, stack) = (StreamId(0), PoolId::DEFAULT, Entry::NO_STACK);
        let action = Action::Oom;
        let entry = Entry { addr, size: 1, time_us: 0, stack, stream, action, pool };
        journal.note(Action::Alloc, entry);
    }

    #[test]
    fn the_last_entries_are_kept() {
        let mut journal = Journal::new(3);
        (0..5).for_each(|addr| note(&mut journal, addr));
        let kept = |journal: &Journal| journal.entries().iter().map(|e| e.addr).collect::<Vec<_>>();
        assert_eq!((kept(&journal), journal.dropped()), (vec![2, 3, 4], 2));
        assert!(journal.entries().iter().all(|e| e.action == Action::Alloc && e.time_us > 0));
        journal.resize(2);
        assert_eq!((kept(&journal), journal.dropped()), (vec![3, 4], 3));
        journal.resize(0);
        note(&mut journal, 9);
        assert_eq!(kept(&journal), [3, 4], "nothing is recorded, and nothing lost");
    }
}
