//! Pools: which free blocks may serve which requests.
//!
//! There is a small and a large pool for each pool id: the default one, and private ones for CUDA graphs and
//! `torch.cuda.MemPool`. Blocks never change their pool.

use std::collections::BTreeSet;

use crate::allocator::SlabIndex;
use crate::allocator::free_index::FreeIndex;
use gmlake_core::program::{PoolId, StreamId};

/// Where a pool stands in the list of pools: private pools behind the default ones, large behind small.
pub const fn pool_index(id: PoolId, is_small: bool) -> u16 {
    id.0 as u16 * 2 + if is_small { 0 } else { 1 }
}

/// The free blocks for one kind of request.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Which pool of PyTorch's this is a part of.
    pub id: PoolId,
    pub is_small: bool,
    /// Whether its segments are handed out whole (`no_split` of a `MemPool`).
    pub is_whole: bool,
    pub free: FreeIndex,
    /// Unmapped ranges of expandable reservations, by stream and address.
    pub unmapped: BTreeSet<(StreamId, u64, SlabIndex)>,
    /// Searches so far; the clock by which garbage collection tells a block's age.
    pub searches: u64,
}

impl Pool {
    /// The empty pool at place `index`.
    pub fn new(index: u16) -> Self {
        Self {
            id: PoolId((index / 2) as u8),
            is_small: index.is_multiple_of(2),
            is_whole: false,
            free: FreeIndex::default(),
            unmapped: BTreeSet::new(),
            searches: 0,
        }
    }
}
