//! Tenants: who had a piece of free memory last.
//!
//! A free segment was left behind by some request. The run is watched for the addresses that it hands out; of
//! those within a free block, the last one is its tenant.

use crate::allocator::{Allocation, BlockView};
use crate::drive::{Observer, Step};
use crate::units::Bytes;

/// Each request that was served in order: its event, where it was served, and how large its block is.
#[derive(Debug, Default)]
pub(super) struct Tenants(Vec<(usize, u64, Bytes)>);

impl<D> Observer<D> for Tenants {
    fn served(&mut self, step: &mut Step<'_, D>, given: Option<Allocation>) {
        self.0.extend(given.map(|given| (step.index, given.at.0, given.size)));
    }
}

impl Tenants {
    /// The request that had each of the free blocks last, `None` if it was not used since the run began. The blocks are
    /// in address order.
    pub(super) fn last(&self, free: &[&BlockView]) -> Vec<Option<usize>> {
        let mut last = vec![None; free.len()];
        let mut missing = free.len();
        for &(event, at, size) in self.0.iter().rev() {
            let from = free.partition_point(|block| block.at.0 + block.size <= at);
            let inside = free[from..].iter().take_while(|block| block.at.0 < at + size).count();
            for place in &mut last[from..from + inside] {
                missing -= usize::from(place.is_none());
                place.get_or_insert(event);
            }
            if missing == 0 {
                break;
            }
        }
        last
    }
}
