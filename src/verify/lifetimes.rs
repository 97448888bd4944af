//! Lifetimes of segments, and the pool that each belonged to.
//!
//! Up to 2.11 PyTorch records the pool of a segment only where it still exists at the end. Addresses are used again
//! across pools, so the question is asked per *lifetime*: from the entry that creates a segment to the one that gives
//! it back. A lifetime that reaches the end has the final segment's pool. One that ended earlier is taken to be of the
//! default pool, until a contradiction shows otherwise (see [`super::infer`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::{Action, Entry, PoolId, Records};

/// The pool of each entry, if any is private.
#[derive(Debug, Clone, Default)]
pub struct Lifetimes {
    /// Pool of each entry that is not of the default pool, by index.
    private: BTreeMap<usize, PoolId>,
    /// Entries that create a segment which is gone at the end, with its pool unknown.
    undetermined: Vec<usize>,
    inferred: usize,
    has_private: bool,
}

/// Options of a program's own pools (`MemPool`): `no_split` and `use_on_oom`, which a recording does not name.
#[derive(Debug, Clone, Default)]
pub(super) struct MemPools {
    /// Pools whose segments are handed out whole.
    pub no_split: BTreeSet<PoolId>,
    /// `alloc` entries of requests to the default pool that another pool served.
    pub elsewhere: BTreeMap<usize, PoolId>,
}

impl MemPools {
    /// What the entries say by themselves.
    pub(super) fn known(records: &Records) -> Self {
        Self { elsewhere: served_elsewhere(records), ..Self::default() }
    }
}

/// The pools of a recording that the program made, other than those of graphs.
pub(super) fn user_pools(records: &Records) -> Vec<PoolId> {
    let numbered = records.pools.iter().zip(0..);
    let own = numbered.filter(|&(&(of_graph, own), _)| of_graph == 0 && own > 0);
    own.map(|(_, number)| PoolId(number)).collect()
}

/// The pool that inferred private segments are put into: one behind all known ones.
pub(super) fn inferred_pool(records: &Records) -> PoolId {
    PoolId(u8::try_from(records.pools.len().max(1)).unwrap_or(u8::MAX))
}

impl Lifetimes {
    /// Pools as the recording tells them, and `private` for the lifetimes that begin at these entries.
    pub fn new(records: &Records, private: &BTreeSet<usize>) -> Self {
        let mut lifetimes = Self { inferred: private.len(), ..Self::default() };
        let known = records.segments.iter().any(|segment| segment.pool != PoolId::DEFAULT);
        if records.has_pools || (!known && private.is_empty()) {
            lifetimes.undetermined = ended(records);
            return lifetimes;
        }
        lifetimes.has_private = true;
        lifetimes.trace(records, private);
        lifetimes
    }

    /// Pool of the entry number `index`.
    #[inline]
    pub fn pool_at(&self, index: usize, entry: &Entry) -> PoolId {
        if !self.has_private {
            return entry.pool;
        }
        self.private.get(&index).copied().unwrap_or(entry.pool)
    }

    /// Entries that create a segment whose pool is a guess, ascending.
    pub fn undetermined(&self) -> &[usize] {
        &self.undetermined
    }

    /// Lifetimes that were put into a private pool although the recording does not say so.
    pub fn inferred(&self) -> usize {
        self.inferred
    }

    /// Walks through the entries with the set of segments that are live.
    fn trace(&mut self, records: &Records, private: &BTreeSet<usize>) {
        let ended = ended(records);
        let mut live: BTreeMap<u64, (u64, PoolId)> = BTreeMap::new();
        for (index, entry) in records.entries.iter().enumerate() {
            let at = entry.addr;
            match entry.action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    let pool = if private.contains(&index) {
                        inferred_pool(records)
                    } else if ended.binary_search(&index).is_ok() {
                        PoolId::DEFAULT
                    } else {
                        final_pool(records, at)
                    };
                    self.set(index, pool);
                    live.insert(at, (at + entry.size, pool));
                }
                Action::Alloc => {
                    let before = live.range(..=at).next_back();
                    let inside = before.filter(|(_, (end, _))| at < *end);
                    self.set(index, inside.map_or_else(|| final_pool(records, at), |(_, s)| s.1));
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    let pool = live.get(&at).map_or(PoolId::DEFAULT, |&(_, pool)| pool);
                    self.set(index, pool);
                    live.retain(|&from, &mut (end, _)| end <= at || from >= at + entry.size);
                }
                _ => {}
            }
        }
        self.undetermined = ended;
    }

    fn set(&mut self, index: usize, pool: PoolId) {
        if pool != PoolId::DEFAULT {
            self.private.insert(index, pool);
        }
    }
}

/// Requests that were made to the default pool, as their entries say, and served from a private one: the entry, and
/// that pool. PyTorch's own entries have the pool that served.
pub(super) fn served_elsewhere(records: &Records) -> BTreeMap<usize, PoolId> {
    let mut served = BTreeMap::new();
    if !records.has_pools || records.pools.len() < 2 {
        return served;
    }
    let mut live: BTreeMap<u64, (u64, PoolId)> = BTreeMap::new();
    for (index, entry) in records.entries.iter().enumerate() {
        let (at, end) = (entry.addr, entry.addr.saturating_add(entry.size));
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                live.insert(at, (end, entry.pool));
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                live.retain(|&from, &mut (to, _)| to <= at || from >= end);
            }
            Action::Alloc if entry.pool == PoolId::DEFAULT => {
                let around = live.range(..=at).next_back().filter(|(_, (end, _))| at < *end);
                let pool = around.map_or(PoolId::DEFAULT, |(_, &(_, pool))| pool);
                if pool != PoolId::DEFAULT {
                    served.insert(index, pool);
                }
            }
            _ => {}
        }
    }
    served
}

/// Entries that create a segment of which some is given back later, ascending.
fn ended(records: &Records) -> Vec<usize> {
    let mut live: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for (index, entry) in records.entries.iter().enumerate() {
        let (from, to) = (entry.addr, entry.addr.saturating_add(entry.size));
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                live.insert(from, (to, index));
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                let gone: Vec<u64> = live.range(from..to).map(|(&at, _)| at).collect();
                ended.extend(gone.iter().filter_map(|at| live.remove(at)).map(|(_, index)| index));
            }
            _ => {}
        }
    }
    ended.into_iter().collect()
}

/// Pool of the final segment at an address.
fn final_pool(records: &Records, at: u64) -> PoolId {
    let after = records.segments.partition_point(|segment| segment.address <= at);
    let segment = after.checked_sub(1).map(|index| &records.segments[index]);
    segment.filter(|s| at < s.address + s.size).map_or(PoolId::DEFAULT, |s| s.pool)
}
