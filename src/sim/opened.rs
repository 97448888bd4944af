//! An opened recording: what a file says of one device, and what was worked out from it.

use std::ops::Range;
use std::sync::OnceLock;

use super::fingerprint::fingerprint;
use crate::run::RunSummary;
use crate::trace::{Coverage, CoverageKind, Gap, Layout, Records, Trace, WarningKind};
use crate::units::Bytes;
use crate::verify::Refused;

/// What was found about one device of a file.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// The file, as given.
    pub file: String,
    /// Every device in the file, with its number of entries.
    pub devices: Vec<(u32, usize)>,
    /// What the file says, entry by entry.
    pub records: Records,
    /// What the program did.
    pub trace: Trace,
    /// How much of the job the recording shows.
    pub coverage: Coverage,
    /// What was held when the recording began; empty if it began with the program.
    pub start: Layout,
    /// The memory limit that PyTorch must have run under, in bytes.
    pub limit: Option<Bytes>,
    /// The device's memory in bytes, where the driver refused to give more.
    pub capacity: Option<Bytes>,
    /// Where the limit lies, or else the device's memory, if the recording shows no more than that
    /// ([`Verification::memory_range`](crate::verify::Verification::memory_range)).
    pub memory_range: Option<Range<Bytes>>,
    /// The first request that ran out, and what the driver had then.
    pub refused: Option<Refused>,
    /// Whether requests ran out in a private pool, while PyTorch kept the cache of all others.
    pub kept_cache: bool,
    /// What our model of PyTorch had to assume to follow the recording, one sentence each.
    pub notes: Vec<String>,
    /// What the recording itself says about peaks and calls, if it says enough.
    pub recorded: Option<RunSummary>,
    /// What [`Opened::program`] has found out; nothing before it was asked.
    pub program: OnceLock<u128>,
    /// The same of [`Opened::first_failure`].
    pub failure: OnceLock<Option<usize>>,
    /// The same of [`Opened::has_private_pools`].
    pub pools: OnceLock<bool>,
}

impl Opened {
    /// A number that stands for the requests and all else that runs depend on; equal programs have equal ones.
    pub fn program(&self) -> u128 {
        let limits = (self.limit, self.capacity);
        *self.program.get_or_init(|| fingerprint(&self.trace, limits))
    }

    /// The first request that failed in the recording, as an event of the trace.
    pub fn first_failure(&self) -> Option<usize> {
        *self.failure.get_or_init(|| self.trace.first_failure())
    }

    /// Whether the program has private pools: CUDA graphs, or a `MemPool`.
    pub fn has_private_pools(&self) -> bool {
        *self.pools.get_or_init(|| self.trace.has_private_pools())
    }

    /// The training step, from 1, that event number `event` is in. A step that the recording ends in counts, as it does
    /// for the [`Coverage`].
    pub fn step_of(&self, event: usize) -> Option<u64> {
        let steps = &self.trace.steps;
        let is_unfinished =
            |gap: &Gap| matches!(gap, Gap::OutOfMemory { .. } | Gap::MidStep { .. });
        let place = steps.partition_point(|step| step.start <= event);
        let number = match place.checked_sub(1) {
            Some(step) if event < steps[step].end => Some(place),
            // Between two steps, or before the first.
            _ if place < steps.len() => None,
            _ => self.coverage.gaps().iter().any(is_unfinished).then(|| self.trace.step_at(event)),
        };
        number.map(|number| number as u64)
    }

    /// All that a reader of any result should know of the recording, one sentence each; how much it covers comes first.
    pub fn all_notes(&self) -> Vec<String> {
        let warnings = self.trace.warnings.iter();
        let warnings = warnings.filter(|warning| warning.kind != WarningKind::LiveBefore);
        let texts = warnings.map(ToString::to_string).chain(self.notes.iter().cloned());
        self.coverage.caution().into_iter().chain(texts).collect()
    }

    /// Why no setting can be recommended from this recording, if that is so: the peak, or a whole step, is not in it.
    pub fn too_little_to_tune(&self) -> Option<String> {
        let is_enough = match self.coverage.kind() {
            CoverageKind::Complete => true,
            CoverageKind::Partial | CoverageKind::StateOnly => false,
            _ => !self.trace.steps.is_empty(),
        };
        let cure = self.coverage.cure().filter(|_| !is_enough)?;
        Some(format!("no setting can be recommended: {} ({cure})", self.coverage.reason()))
    }

    /// Name of the allocator that the recording ran on.
    pub fn recorded_by(&self) -> &'static str {
        let is_expandable = self.trace.settings.as_ref().is_some_and(|c| c.expandable_segments);
        if is_expandable { "expandable" } else { "caching" }
    }
}
