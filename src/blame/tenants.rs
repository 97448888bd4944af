//! Tenants: who had a piece of free memory last.
//!
//! A free segment was left behind by some request. The run is watched for the addresses that it hands out; of
//! those within a free block, the last one is its tenant.

use crate::allocator::BlockView;
use crate::sim::{Placements, Stage};
use crate::trace::{EventKind, Trace};

/// The requests of a run, and where they were served.
pub(super) struct Tenants {
    placements: Placements,
    first: usize,
}

impl Tenants {
    /// Watches the rest of a run.
    pub(super) fn watch(stage: &mut Stage<'_>) -> Self {
        Self { first: stage.replay.outcome.events, placements: Placements::watch(stage) }
    }

    /// The request that had each of the free blocks last, `None` if it was not used since the run began. The blocks are
    /// in address order.
    pub(super) fn last(&self, trace: &Trace, free: &[&BlockView]) -> Vec<Option<usize>> {
        let is_request = |event: &usize| {
            matches!(trace.events[*event].kind, EventKind::Malloc | EventKind::Attempt)
        };
        let requests: Vec<usize> = (self.first..trace.events.len()).filter(is_request).collect();
        let placements = self.placements.all();
        let mut last = vec![None; free.len()];
        let mut missing = free.len();
        for (&event, served) in requests.iter().zip(placements.iter()).rev() {
            let Some((at, size)) = *served else { continue };
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
