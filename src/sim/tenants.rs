//! Tenants: who had a piece of free memory last.
//!
//! A free segment was left behind by some request. The run is watched for the addresses that it hands out; of
//! those within a free block, the last one is its tenant.

use rustc_hash::FxHashMap;

use crate::allocator::{Allocation, BlockView};
use crate::drive::{Observer, Step};
use crate::simulation::Simulated;
use crate::units::Bytes;

/// Passes a run on to its own observer, and notes each request that was served: its event, where it was served, and how
/// large its block is.
pub(super) struct Tenants<'a, O> {
    log: Option<Vec<(usize, u64, Bytes)>>,
    then: &'a mut O,
}

impl<O: Observer<Simulated>> Observer<Simulated> for Tenants<'_, O> {
    fn before(&mut self, step: &mut Step<'_, Simulated>) {
        self.then.before(step);
    }

    fn served(&mut self, step: &mut Step<'_, Simulated>, given: Option<Allocation>) {
        if let (Some(log), Some(given)) = (&mut self.log, given) {
            log.push((step.index, given.at.0, given.size));
        }
        self.then.served(step, given);
    }

    fn after(&mut self, step: &mut Step<'_, Simulated>) {
        self.then.after(step);
    }
}

impl<'a, O> Tenants<'a, O> {
    pub(super) fn new(then: &'a mut O) -> Self {
        Self { log: Some(Vec::new()), then }
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
