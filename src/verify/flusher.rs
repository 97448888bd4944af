//! Who emptied the cache: the program (`torch.cuda.empty_cache()`), or a malloc that the driver had refused.
//!
//! A recording has the same entries for both. Call stacks and times may tell them apart:
//!
//! ```text
//!   segment_free   0xb…   train.py:60 eval     as the alloc: it was this malloc
//!   segment_alloc  0xc…   train.py:60 eval     another: it was not
//!   alloc          0xc…   train.py:60 eval
//! ```
//!
//! Where the stack of an emptying is not kept, PyTorch writes that of the segment. It tells nothing.

use rustc_hash::FxHashMap;

use crate::trace::{Action, Entry, Records, Stacks};

/// A driver that has just freed memory takes less for a segment, in microseconds. It took up to 0.36 s on an H200.
const PAUSE: u64 = 3_000_000;

/// Who gave memory back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flusher {
    /// The program, before the malloc.
    Program,
    /// The malloc.
    Malloc,
}

/// Who gave back what these entries say, where the stacks and times of a recording prove it.
pub(super) type Flushers = FxHashMap<usize, Flusher>;

/// Who gave memory back right before a malloc.
pub(super) fn flushers(records: &Records) -> Flushers {
    let (entries, stacks) = (&records.entries[..], &records.stacks);
    let (made_by, found) = (FxHashMap::default(), Flushers::default());
    let mut search =
        Search { entries, stacks, made_by, given: Vec::new(), has_paused: false, found };
    for (index, entry) in entries.iter().enumerate() {
        search.add(index, entry);
    }
    search.found
}

/// An entry that gives memory back, and the stack with which the segment was made.
type Given = (usize, Option<u32>);

struct Search<'r> {
    entries: &'r [Entry],
    stacks: &'r Stacks,
    /// By address of a segment, the stack with which it was made.
    made_by: FxHashMap<u64, u32>,
    /// What the present operation gave back so far.
    given: Vec<Given>,
    /// Whether it went on so late that it was another one that gave this back.
    has_paused: bool,
    found: Flushers,
}

impl<'r> Search<'r> {
    fn add(&mut self, index: usize, entry: &Entry) {
        match entry.action {
            Action::SegmentFree | Action::SegmentUnmap => {
                self.given.push((index, self.made_by.get(&entry.addr).copied()));
            }
            Action::SegmentAlloc => {
                self.has_paused |= self.pauses(entry);
                self.made_by.insert(entry.addr, entry.stack);
            }
            Action::SegmentMap => drop(self.made_by.insert(entry.addr, entry.stack)),
            Action::Alloc | Action::Oom if !self.given.is_empty() => self.decide(entry),
            Action::FreeCompleted | Action::Alloc | Action::Oom => {}
            Action::FreeRequested | Action::Snapshot => {
                self.given.clear();
                self.has_paused = false;
            }
        }
    }

    /// Whether a segment came long after the last one was given back.
    fn pauses(&self, grown: &Entry) -> bool {
        let last = self.given.last().map(|&(index, _)| self.entries[index].time_us);
        last.is_some_and(|last| last > 0 && grown.time_us.saturating_sub(last) > PAUSE)
    }

    fn decide(&mut self, malloc: &Entry) {
        let has_paused = std::mem::take(&mut self.has_paused);
        for given in std::mem::take(&mut self.given) {
            let by_time = has_paused.then_some(Flusher::Program);
            if let Some(flusher) = by_time.or_else(|| self.by_stack(given, malloc)) {
                self.found.insert(given.0, flusher);
            }
        }
    }

    fn by_stack(&self, (index, made_by): Given, malloc: &Entry) -> Option<Flusher> {
        let entry = &self.entries[index];
        let [made, given, malloc] =
            [made_by?, entry.stack, malloc.stack].map(|stack| self.frames(stack));
        let (made, given, malloc) = (made?, given?, malloc?);
        // An expandable segment is made in pieces, by several.
        let is_whole = entry.action == Action::SegmentFree;
        match given == malloc {
            true => (is_whole && given != made).then_some(Flusher::Malloc),
            false => (given != made).then_some(Flusher::Program),
        }
    }

    fn frames(&self, stack: u32) -> Option<&'r [u32]> {
        let stack = self.stacks.stacks.get(stack as usize)?;
        (!stack.frames.is_empty()).then_some(&stack.frames[..])
    }
}
