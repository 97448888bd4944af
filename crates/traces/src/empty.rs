//! Entries of no bytes, which PyTorch does not record, but other programs do.
//!
//! A request of zero bytes holds nothing: it is left out together with its frees. Of an out-of-memory of zero bytes the
//! file does not tell what was requested: only its place is kept.

use rustc_hash::FxHashMap;

use super::ingest::is_request;
use super::{Action, Entry, Records};

/// The records without them. What stands between two entries then stands between two that are left.
pub(super) fn without(mut records: Records) -> Records {
    let mut seen = Seen::default();
    if !records.entries.iter().any(|entry| is_start(entry) && !is_request(entry.size)) {
        return records;
    }
    let entries = std::mem::take(&mut records.entries);
    let mut removed = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        if seen.is_of_nothing(&entry) {
            removed.push(index);
            if entry.action == Action::Oom {
                records.unsized_failures.push(records.entries.len());
            }
        } else {
            records.entries.push(entry);
        }
    }
    let place = |index: usize| index - removed.partition_point(|&at| at < index);
    records.trims.iter_mut().for_each(|trim| *trim = place(*trim));
    records.totals.retain(|total| removed.binary_search(&total.entry).is_err());
    records.totals.iter_mut().for_each(|total| total.entry = place(total.entry));
    records.left_out = removed.len();
    records
}

/// Whether an entry begins something: a block, or a failure.
fn is_start(entry: &Entry) -> bool {
    matches!(entry.action, Action::Alloc | Action::Oom)
}

/// How many blocks of no bytes there are at each address, while entries are read.
#[derive(Default)]
struct Seen(FxHashMap<u64, u64>);

impl Seen {
    fn is_of_nothing(&mut self, entry: &Entry) -> bool {
        let Entry { addr, size, action, .. } = *entry;
        match action {
            Action::Oom => !is_request(size),
            Action::Alloc if size == 0 => {
                *self.0.entry(addr).or_default() += 1;
                true
            }
            Action::FreeRequested if size == 0 => self.0.contains_key(&addr),
            Action::FreeCompleted if size == 0 => {
                let Some(count) = self.0.get_mut(&addr) else { return false };
                *count -= 1;
                if *count == 0 {
                    self.0.remove(&addr);
                }
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{PoolId, StreamId};
    use super::*;

    fn entry(action: Action, addr: u64, size: u64) -> Entry {
        let (time_us, stack) = (0, Entry::NO_STACK);
        Entry { addr, size, time_us, stack, stream: StreamId(0), action, pool: PoolId::DEFAULT }
    }

    /// What is put before an entry: nothing, a request of no bytes, its free, or a failure without a size.
    #[derive(Debug, Clone, Copy)]
    enum Extra {
        None,
        Alloc(u64),
        Free,
        Oom,
    }

    fn extra() -> impl Strategy<Value = Extra> {
        prop_oneof![
            Just(Extra::None),
            // The second is the address of a block that lives, as the first may be.
            prop_oneof![Just(0), Just(512)].prop_map(Extra::Alloc),
            Just(Extra::Free),
            Just(Extra::Oom),
        ]
    }

    proptest! {
        #[test]
        fn what_holds_nothing_changes_nothing(
            extras in prop::collection::vec(extra(), 1..60),
            trims in prop::collection::btree_set(0_usize..60, 0..5),
        ) {
            let (mut records, mut expected) = (Records::default(), Records::default());
            let mut nothing = Vec::new();
            for (index, extra) in extras.into_iter().enumerate() {
                match extra {
                    Extra::Alloc(addr) => {
                        records.entries.push(entry(Action::Alloc, addr, 0));
                        nothing.push(addr);
                    }
                    Extra::Free => nothing.pop().into_iter().for_each(|addr| {
                        records.entries.push(entry(Action::FreeRequested, addr, 0));
                        records.entries.push(entry(Action::FreeCompleted, addr, 0));
                    }),
                    Extra::Oom => {
                        records.entries.push(entry(Action::Oom, 0, 0));
                        expected.unsized_failures.push(expected.entries.len());
                    }
                    Extra::None => {}
                }
                if trims.contains(&index) {
                    records.trims.push(records.entries.len());
                    expected.trims.push(expected.entries.len());
                }
                let addr = 512 * (1 + index as u64);
                records.entries.push(entry(Action::Alloc, addr, 512));
                expected.entries.push(entry(Action::Alloc, addr, 512));
            }
            let records = without(records);
            prop_assert_eq!(records.entries, expected.entries);
            prop_assert_eq!(records.trims, expected.trims);
            prop_assert_eq!(records.unsized_failures, expected.unsized_failures);
        }
    }
}
