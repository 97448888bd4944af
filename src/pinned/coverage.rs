//! How much of a job a recording of pinned memory shows.

use rustc_hash::FxHashSet;

use super::PinnedRecording;
use crate::trace::{Action, BlockState, Coverage, Gap};
use crate::units::Bytes;

/// What was pinned before the first entry, as far as frees and the state at the end tell.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    /// Bytes in use.
    live: Bytes,
    /// Bytes pinned.
    pub held: Bytes,
}

impl PinnedRecording {
    /// What it does not show of the job.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let cut_off = self.records.cut_off.clone().map(|what| Gap::CutOff { what });
        let Before { live, held } = self.before();
        let is_late = live > 0 || held > 0;
        let late = is_late.then_some(Gap::StartedLate { live, held });
        Coverage::new(cut_off.into_iter().chain(late).collect())
    }

    /// What a reader of any figure should know, one sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let warnings = self.records.warnings.iter().map(ToString::to_string);
        self.coverage().caution().into_iter().chain(warnings).collect()
    }

    pub(super) fn before(&self) -> Before {
        let mut before = Before::default();
        let (mut live, mut held) = (FxHashSet::default(), FxHashSet::default());
        for entry in self.own() {
            match entry.action {
                Action::Alloc => {
                    live.insert(entry.addr);
                    let is_new = self.has_blocks && held.insert(entry.addr);
                    before.held += if is_new { entry.size } else { 0 };
                }
                Action::FreeCompleted if !live.remove(&entry.addr) => before.live += entry.size,
                Action::SegmentAlloc => drop(held.insert(entry.addr)),
                Action::SegmentFree if !held.remove(&entry.addr) => before.held += entry.size,
                _ => {}
            }
        }
        for segment in &self.records.segments {
            before.held += if held.contains(&segment.address) { 0 } else { segment.size };
            let used = segment.blocks.iter().filter(|block| block.state != BlockState::Inactive);
            let unseen = used.filter(|block| !live.contains(&block.address));
            before.live += unseen.map(|block| block.size).sum::<Bytes>();
        }
        before
    }
}
