//! Blocks that were live before the first entry, in files that do not say what was held at the end: whatever is freed
//! without having been allocated, and what PyTorch's totals count on top.

use rustc_hash::FxHashSet;

use crate::trace::{Action, Entry, PoolId, Records, StartBlock, StreamId};

/// The blocks that must have been live before the first entry. What only a total tells of is one block.
pub fn unseen_start(records: &Records) -> Vec<StartBlock> {
    let mut start = freed_unseen(&records.entries);
    let known: u64 = start.iter().map(|block| block.requested).sum();
    let rest = live_by_totals(records).saturating_sub(known);
    if rest > 0 {
        let (address, stream, pool) = (UNKNOWN_ADDRESS, StreamId(0), PoolId::DEFAULT);
        start.push(StartBlock { address, requested: rest, stream, pool, is_pending: false });
    }
    start
}

/// No block of a program lies there.
const UNKNOWN_ADDRESS: u64 = 0;

fn freed_unseen(entries: &[Entry]) -> Vec<StartBlock> {
    let has_requests = entries.iter().any(|entry| entry.action == Action::FreeRequested);
    let (mut seen, mut start) = (FxHashSet::default(), Vec::new());
    for entry in entries {
        let is_free = matches!(entry.action, Action::FreeRequested | Action::FreeCompleted);
        let is_new = (is_free || entry.action == Action::Alloc) && seen.insert(entry.addr);
        if is_new && is_free {
            start.push(StartBlock {
                address: entry.addr,
                requested: entry.size,
                stream: entry.stream,
                pool: entry.pool,
                is_pending: has_requests && entry.action == Action::FreeCompleted,
            });
        }
    }
    start
}

/// What the first total counts that the entries up to it do not.
fn live_by_totals(records: &Records) -> u64 {
    let Some(first) = records.totals.first() else { return 0 };
    let before = records.entries[..=first.entry].iter();
    before.rev().fold(first.allocated, |live, entry| match entry.action {
        Action::Alloc => live.saturating_sub(entry.size),
        Action::FreeCompleted => live + entry.size,
        _ => live,
    })
}
