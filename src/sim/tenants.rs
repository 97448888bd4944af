//! Tenants: who had a piece of free memory last.
//!
//! A free segment was left behind by some request. The run is watched for the addresses that it hands out; of
//! those within a free block, the last one is its tenant.

use rustc_hash::FxHashMap;

use crate::allocator::{Allocation, BlockView};
use crate::drive::{Observer, Step};
use crate::simulation::Simulated;
use crate::units::Bytes;

/// Notes each request that was served: its event, where it was served, and how large its block is.
pub(super) struct Tenants {
    log: Option<Vec<(usize, u64, Bytes)>>,
}

impl Observer<Simulated> for Tenants {
    fn served(&mut self, step: &mut Step<'_, Simulated>, given: Option<Allocation>) {
        if let (Some(log), Some(given)) = (&mut self.log, given) {
            log.push((step.index, given.at.0, given.size));
        }
    }
}

impl Tenants {
    pub(super) fn new() -> Self {
        Self { log: Some(Vec::new()) }
    }

    /// The request that had each of these free blocks last, by the block's address. The blocks are in address order.
    /// From now on, nothing is noted.
    pub(super) fn take_last(&mut self, free: &[&BlockView]) -> FxHashMap<u64, usize> {
        let mut last = FxHashMap::default();
        for (event, at, size) in self.log.take().unwrap_or_default().into_iter().rev() {
            let from = free.partition_point(|block| block.at.0 + block.size <= at);
            for block in free[from..].iter().take_while(|block| block.at.0 < at + size) {
                last.entry(block.at.0).or_insert(event);
            }
            if last.len() == free.len() {
                break;
            }
        }
        last
    }
}
