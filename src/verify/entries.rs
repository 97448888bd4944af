//! Entries of a recording: what they tell by themselves, before anything is replayed.

use crate::trace::{Action, Entry};

/// Whether the first growth among the entries is of an expandable segment.
pub(super) fn first_growth(entries: &[Entry]) -> Option<bool> {
    entries.iter().find_map(|entry| match entry.action {
        Action::SegmentMap => Some(true),
        Action::SegmentAlloc => Some(false),
        _ => None,
    })
}

/// Index of the entry with which the operation ends that has the entry `first`.
pub(super) fn end_of_operation(entries: &[Entry], first: usize) -> usize {
    let length = entries[first..].iter().position(ends_operation);
    first + length.unwrap_or(entries.len() - first)
}

/// Whether an operation of PyTorch ends with this entry, or a new one begins with it.
pub(super) fn ends_operation(entry: &Entry) -> bool {
    let ends = [Action::Alloc, Action::Oom, Action::FreeRequested, Action::Snapshot];
    ends.contains(&entry.action)
}

pub(super) fn describe(entry: &Entry) -> String {
    let name = entry.action.name();
    match entry.action {
        Action::Oom => format!("{name} of {} bytes", entry.size),
        _ => format!("{name} of {} bytes at {:#x}", entry.size, entry.addr),
    }
}
