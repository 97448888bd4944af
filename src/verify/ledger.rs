//! Entries that contradict each other, as where some were not recorded: PyTorch's `skip_actions`, or a file that was
//! filtered.
//!
//! ```text
//!   alloc         0xa000 4096              segment_alloc 0xa000 2 MiB
//!   alloc         0xa200  512              segment_alloc 0xa000 4 MiB
//!                 ▲ inside a live block                  ▲ held already
//!                   its free is missing                    its segment_free is missing
//! ```
//!
//! Blocks and segments are followed apart. Where it is not known what was held when the recording began, an address
//! that no entry named before may have been held then, which contradicts nothing.

use gmlake_core::ranges::Ranges;
use rustc_hash::FxHashSet;

use super::verification::Verification;
use crate::trace::{Action, Entry, Layout, Records, StartBlock, Warning, WarningKind};

/// What does not fit together in the entries of a recording that began with these blocks and segments. Tables of
/// requests alone name no places in memory, and nothing can contradict there.
pub fn contradictions(records: &Records, blocks: &[StartBlock], held: &Layout) -> Vec<Warning> {
    if !records.has_segments && !records.has_decisions() {
        return totals_off(records, blocks).into_iter().collect();
    }
    let mut ledger = Ledger { is_start_known: records.has_segments, ..Ledger::default() };
    for block in blocks {
        ledger.live.put(block.address, block.requested);
        if block.is_pending {
            ledger.pending.insert(block.address);
        }
    }
    for segment in &held.segments {
        ledger.held.put(segment.address, segment.size);
    }
    for (index, entry) in records.entries.iter().enumerate() {
        ledger.entry(index, entry);
    }
    ledger.warnings
}

/// Where PyTorch's own totals are not what the blocks before them come to. Events of one time have no order.
fn totals_off(records: &Records, blocks: &[StartBlock]) -> Option<Warning> {
    let mut totals = &records.totals[..];
    let mut live = blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(block.requested));
    let (mut count, mut first, mut index) = (0, None, 0);
    for moment in records.entries.chunk_by(|a, b| a.time_us == b.time_us) {
        for entry in moment {
            match entry.action {
                Action::Alloc => live = live.saturating_add(entry.size),
                Action::FreeCompleted => live = live.saturating_sub(entry.size),
                _ => {}
            }
        }
        let end = index + moment.len();
        let (of_moment, later) = totals.split_at(totals.partition_point(|it| it.entry < end));
        if !of_moment.is_empty() && of_moment.iter().all(|total| total.allocated != live) {
            count += 1;
            first.get_or_insert_with(|| place(index, &moment[0]));
        }
        (totals, index) = (later, end);
    }
    Some(Warning { kind: WarningKind::BlockEntries, count, first: first? })
}

/// That PyTorch obtained memory, or used other memory, where its model had some cached: in a history that stopped it
/// was given back before, and the entry of that is missing.
pub fn given_back_unseen(records: &Records, found: &Verification) -> Option<Warning> {
    let index = found.differences.first()?.entry;
    let entry = records.entries.get(index)?;
    let (count, first) = (found.difference_count, place(index, entry));
    let is_use = matches!(entry.action, Action::Alloc | Action::SegmentAlloc | Action::SegmentMap);
    is_use.then_some(Warning { kind: WarningKind::DriverEntries, count, first })
}

/// Kinds of entry that are not there, although there must have been some. `is_end_reached`: whether the entries lead to
/// the final state, which has all that was not freed.
pub fn missing_kinds(records: &Records, is_end_reached: bool) -> Vec<Warning> {
    let first = |action: Action| records.entries.iter().position(|entry| entry.action == action);
    let lone = |some: Option<usize>, others: [Option<usize>; 2]| match others {
        [None, None] => some,
        _ => None,
    };
    let (requested, completed) = (first(Action::FreeRequested), first(Action::FreeCompleted));
    // One block alone was live at some time, whatever is missing.
    let mut allocs =
        (0..records.entries.len()).filter(|&at| records.entries[at].action == Action::Alloc);
    let allocated = allocs.nth(1).filter(|_| !is_end_reached);
    let blocks = lone(requested, [completed, None]).or(lone(allocated, [requested, completed]));
    let shrunk = first(Action::SegmentFree).or(first(Action::SegmentUnmap));
    let segments = lone(shrunk, [first(Action::SegmentAlloc), first(Action::SegmentMap)]);
    let odd = [(blocks, WarningKind::BlockEntries), (segments, WarningKind::DriverEntries)];
    let warning = |(index, kind): (Option<usize>, WarningKind)| {
        let index = index?;
        Some(Warning { kind, count: 1, first: place(index, &records.entries[index]) })
    };
    odd.into_iter().filter_map(warning).collect()
}

fn place(index: usize, entry: &Entry) -> String {
    let name = entry.action.name();
    format!("entry {index}: {name} of {} bytes at {:#x}", entry.size, entry.addr)
}

/// Pieces of memory; each range knows the whole piece that it is of.
#[derive(Default)]
struct Pieces(Ranges<(u64, u64)>);

impl Pieces {
    fn put(&mut self, at: u64, size: u64) {
        let end = at.saturating_add(size);
        self.0.set(at..end, (at, end));
    }

    /// Takes out all pieces of which a part lies there: their first addresses.
    fn evict(&mut self, at: u64, size: u64) -> Vec<u64> {
        let range = at..at.saturating_add(size);
        let mut whole: Vec<_> = self.0.within(range).map(|(_, &whole)| whole).collect();
        whole.dedup();
        for &(start, end) in &whole {
            self.0.take(start..end);
        }
        whole.into_iter().map(|(start, _)| start).collect()
    }

    /// How many bytes there belong to a piece.
    fn covered(&self, at: u64, size: u64) -> u64 {
        let range = at..at.saturating_add(size);
        self.0.within(range).map(|(part, _)| part.end - part.start).sum()
    }
}

/// What the entries so far have led to.
#[derive(Default)]
struct Ledger {
    is_start_known: bool,
    live: Pieces,
    /// Blocks whose free was requested and did not complete.
    pending: FxHashSet<u64>,
    held: Pieces,
    /// What was given back, and not obtained again.
    gone: Ranges<()>,
    warnings: Vec<Warning>,
}

impl Ledger {
    fn entry(&mut self, index: usize, entry: &Entry) {
        let &Entry { addr, size, .. } = entry;
        match entry.action {
            Action::Alloc => {
                let others = self.live.evict(addr, size);
                self.pending.remove(&addr);
                // A second block at the same address is counted where the trace is made.
                self.check(
                    others.iter().all(|&at| at == addr),
                    WarningKind::BlockEntries,
                    index,
                    entry,
                );
                self.live.put(addr, size);
                self.check(self.is_held(addr, size), WarningKind::DriverEntries, index, entry);
            }
            Action::FreeRequested => {
                self.pending.insert(addr);
            }
            Action::FreeCompleted => {
                let was_requested = self.pending.remove(&addr);
                let was_live = self.live.0.within(addr..addr.saturating_add(1)).next().is_some();
                let is_odd = was_live && !was_requested;
                self.check(!is_odd, WarningKind::BlockEntries, index, entry);
                self.live.0.take(addr..addr.saturating_add(size));
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                let others = self.held.evict(addr, size);
                self.check(others.is_empty(), WarningKind::DriverEntries, index, entry);
                self.held.put(addr, size);
                self.gone.take(addr..addr.saturating_add(size));
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.check(self.is_held(addr, size), WarningKind::DriverEntries, index, entry);
                let range = addr..addr.saturating_add(size);
                self.held.0.take(range.clone());
                self.gone.set(range, ());
                let inside = self.live.evict(addr, size);
                self.check(inside.is_empty(), WarningKind::BlockEntries, index, entry);
            }
            Action::Snapshot | Action::Oom => {}
        }
    }

    /// Whether a range is held, as far as the entries tell.
    fn is_held(&self, at: u64, size: u64) -> bool {
        let is_gone = || self.gone.within(at..at.saturating_add(size)).next().is_some();
        self.held.covered(at, size) >= size || !self.is_start_known && !is_gone()
    }

    fn check(&mut self, fits: bool, kind: WarningKind, index: usize, entry: &Entry) {
        if fits {
            return;
        }
        match self.warnings.iter_mut().find(|warning| warning.kind == kind) {
            Some(warning) => warning.count += 1,
            None => {
                self.warnings.push(Warning { kind, count: 1, first: place(index, entry) });
            }
        }
    }
}
