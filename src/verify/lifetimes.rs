//! Lifetimes of segments, and the pool that each belonged to.
//!
//! Up to 2.11 PyTorch records the pool of a segment only where it still exists at the end. Addresses are used again
//! across pools, so the question is asked per *lifetime*: from the entry that creates a segment to the one that gives
//! it back. A lifetime that reaches the end has the final segment's pool. One that ended earlier is taken to be of the
//! default pool, until a contradiction shows otherwise (see [`super::infer`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::{Action, Entry, PoolId, Records};

/// The pool of each entry, if any is private.
#[derive(Debug, Clone)]
pub struct Lifetimes<'r> {
    records: &'r Records,
    /// The entry that created the segment of each entry; empty where all pools are as the entries say.
    born: Vec<Option<usize>>,
    /// Entries that create a segment which is gone at the end, ascending.
    undetermined: Vec<usize>,
    /// Of these, the ones that are taken to be private.
    private: BTreeSet<usize>,
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

impl<'r> Lifetimes<'r> {
    /// Pools as the recording tells them.
    pub fn new(records: &'r Records) -> Self {
        let is_known = records.segments.iter().any(|segment| segment.pool != PoolId::DEFAULT);
        let born = if is_known && !records.has_pools { born(records) } else { Vec::new() };
        Self { records, born, undetermined: ended(records), private: BTreeSet::new() }
    }

    /// Takes the lifetimes that begin at these entries as private, although the recording does not say so.
    pub fn infer(&mut self, private: &BTreeSet<usize>) {
        if self.born.is_empty() {
            self.born = born(self.records);
        }
        self.private.clone_from(private);
    }

    /// Pool of the entry number `index`.
    #[inline]
    pub fn pool_at(&self, index: usize, entry: &Entry) -> PoolId {
        if self.born.is_empty() {
            return entry.pool;
        }
        match (self.born[index], entry.action) {
            (Some(birth), _) => self.pool_born_at(birth),
            (None, Action::Alloc) => final_pool(self.records, entry.addr),
            (None, _) => entry.pool,
        }
    }

    /// Pool of the segment that an entry created.
    fn pool_born_at(&self, birth: usize) -> PoolId {
        if self.private.contains(&birth) {
            inferred_pool(self.records)
        } else if self.undetermined.binary_search(&birth).is_ok() {
            PoolId::DEFAULT
        } else {
            final_pool(self.records, self.records.entries[birth].addr)
        }
    }

    /// Entries that create a segment whose pool is a guess, ascending.
    pub fn undetermined(&self) -> &[usize] {
        &self.undetermined
    }

    /// Lifetimes that were put into a private pool although the recording does not say so.
    pub fn inferred(&self) -> usize {
        self.private.len()
    }
}

/// Segments that are held, by address, each with its end.
struct Segments<T>(BTreeMap<u64, (u64, T)>);

impl<T: Copy> Segments<T> {
    fn insert(&mut self, entry: &Entry, what: T) {
        self.0.insert(entry.addr, (entry.addr.saturating_add(entry.size), what));
    }

    /// The segment around an address.
    fn around(&self, at: u64) -> Option<T> {
        let (_, &(end, what)) = self.0.range(..=at).next_back()?;
        (at < end).then_some(what)
    }

    /// Forgets the segments of which the entry gives something back.
    fn remove(&mut self, entry: &Entry) {
        let end = entry.addr.saturating_add(entry.size);
        while let Some((&from, &(to, _))) = self.0.range(..end).next_back() {
            if to <= entry.addr {
                break;
            }
            self.0.remove(&from);
        }
    }
}

/// The entry that created the segment of each request, growth and return of memory, as far as it is recorded.
fn born(records: &Records) -> Vec<Option<usize>> {
    let mut held = Segments(BTreeMap::new());
    let birth = |(index, entry): (usize, &Entry)| match entry.action {
        Action::SegmentAlloc | Action::SegmentMap => {
            held.insert(entry, index);
            Some(index)
        }
        Action::Alloc => held.around(entry.addr),
        Action::SegmentFree | Action::SegmentUnmap => {
            let birth = held.0.get(&entry.addr).map(|&(_, birth)| birth);
            held.remove(entry);
            birth
        }
        _ => None,
    };
    records.entries.iter().enumerate().map(birth).collect()
}

/// Requests that were made to the default pool, as their entries say, and served from a private one: the entry, and
/// that pool. PyTorch's own entries have the pool that served.
pub(super) fn served_elsewhere(records: &Records) -> BTreeMap<usize, PoolId> {
    let mut served = BTreeMap::new();
    if !records.has_pools || records.pools.len() < 2 {
        return served;
    }
    let mut held = Segments(BTreeMap::new());
    for (index, entry) in records.entries.iter().enumerate() {
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => held.insert(entry, entry.pool),
            Action::SegmentFree | Action::SegmentUnmap => held.remove(entry),
            Action::Alloc if entry.pool == PoolId::DEFAULT => {
                let pool = held.around(entry.addr).filter(|&pool| pool != PoolId::DEFAULT);
                served.extend(pool.map(|pool| (index, pool)));
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
