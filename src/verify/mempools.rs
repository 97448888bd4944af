//! `MemPool`s: which were made with `no_split` or `use_on_oom`. A recording does not name them.

use std::collections::{BTreeMap, BTreeSet};

use super::lifetimes::served_elsewhere;
use crate::trace::{PoolId, Records};

/// Options of a program's pools.
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
