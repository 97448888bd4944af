//! Plans: how much memory a trace needs under each allocator, and on which cards it runs.
//!
//! ```text
//!   one trace, one allocator      Need    the smallest memory that runs, where the next smaller one ends, a Verdict
//!                                         for each Target
//!   one trace, all allocators     Plan    one rank of a job
//!   several batch sizes           Series  at which one each allocator stops fitting
//! ```

use serde::Serialize;

use gmlake_core::cards::Target;

use crate::allocator::{Role, find};
use crate::run::RunSummary;
use crate::trace::{Bounded, Certainty, Coverage};
use crate::units::Bytes;

/// The place in a trace at which memory ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Shortage {
    /// Index of the event that was not served.
    pub event: u64,
    /// Number of the training step that it lies in, from 1; `None` outside of all steps.
    pub step: Option<u64>,
}

impl Shortage {
    /// Where memory ran out in a run, if it did.
    pub fn of(run: &RunSummary) -> Option<Self> {
        run.first_oom_event.map(|event| Self { event, step: run.first_oom_step })
    }
}

/// One run on a device of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Trial {
    /// Memory of the device in bytes.
    pub capacity_bytes: Bytes,
    /// Most memory held, in bytes.
    pub reserved_peak_bytes: Bytes,
    /// Times that the allocator gave everything back and tried again.
    pub alloc_retries: u64,
    /// Driver calls made.
    pub device_calls: u64,
    /// Where memory ran out, if it did; the run ended there.
    pub shortage: Option<Shortage>,
}

impl Trial {
    /// What a run on a device of `capacity_bytes` has shown.
    pub fn new(capacity_bytes: Bytes, run: &RunSummary) -> Self {
        Self {
            capacity_bytes,
            reserved_peak_bytes: run.reserved_peak_bytes,
            alloc_retries: run.alloc_retries,
            device_calls: run.device_calls.total(),
            shortage: Shortage::of(run),
        }
    }

    /// Whether every request was served.
    pub fn runs(&self) -> bool {
        self.shortage.is_none()
    }

    /// Whether the whole job runs out of memory as this run did. Where its beginning is not known, it may come to the
    /// same request in another state: only a device with less than what is live at once is too small for certain, if
    /// that is known.
    pub fn is_certain(&self, coverage: &Coverage, least: Bytes) -> bool {
        coverage.of_what_was_seen() != Certainty::About
            && (coverage.sees_beginning() || self.capacity_bytes < least)
    }
}

/// Whether a trace runs on a [`Target`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The run there.
    pub trial: Trial,
    /// Memory of the target beyond the smallest that runs, in bytes; `None` if the trace does not run there.
    pub spare_bytes: Option<Bytes>,
}

/// How much memory a trace needs under one allocator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Need {
    /// The allocator.
    pub allocator: String,
    /// Its options that differ from the defaults, as `name=value`.
    pub options: Vec<String>,
    /// What it holds at most if memory never runs out, in bytes.
    pub unlimited_bytes: Bytes,
    /// The run on the smallest device that was found to serve every request; `None` if no size tried does.
    pub smallest: Option<Trial>,
    /// The run on a device that is smaller by one step of the search: it ran out of memory.
    pub below: Option<Trial>,
    /// Runs that were made to find this out.
    pub runs: u64,
    /// Whether it runs on each of the plan's targets, in their order.
    pub verdicts: Vec<Verdict>,
}

impl Need {
    /// The allocator and its options, as tables name them.
    pub fn label(&self) -> String {
        crate::run::label(&self.allocator, &self.options)
    }

    /// Bytes of the smallest device that serves every request.
    pub fn smallest_bytes(&self) -> Option<Bytes> {
        self.smallest.map(|trial| trial.capacity_bytes)
    }

    /// Whether this is a lower bound, which is no allocator to train with.
    pub fn is_bound(&self) -> bool {
        find(&self.allocator).is_some_and(|spec| spec.role == Role::Bound)
    }

    /// Whether one could train with the allocator.
    pub fn is_choice(&self) -> bool {
        find(&self.allocator).is_some_and(|spec| spec.role.is_choice())
    }
}

/// What one trace needs.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Plan {
    /// The trace file, as given.
    pub file: String,
    /// Number of the rank, if the file's name tells one.
    pub rank: Option<u64>,
    /// Index of the device in that file.
    pub device: u32,
    /// Events in the trace.
    pub events: u64,
    /// Training steps in the trace.
    pub steps: u64,
    /// Most bytes in use at any time, unrounded, with those that the program had given back and a stream still used.
    pub live_peak_bytes: Bytes,
    /// The same without those: no device can be smaller.
    pub least_bytes: Bytes,
    /// How finely the smallest capacities were searched, in bytes.
    pub resolution_bytes: Bytes,
    /// The devices that were asked about.
    pub targets: Vec<Target>,
    /// The allocators, in the order of all tables.
    pub needs: Vec<Need>,
    /// How much of the job the recording shows. Unless it is complete, every need is a bound or an estimate.
    pub coverage: Coverage,
    /// What was assumed about the trace, one sentence each.
    pub notes: Vec<String>,
}

impl Plan {
    /// Whether the whole job is known to run out of memory as it did on a target.
    pub fn excludes(&self, verdict: &Verdict) -> bool {
        !verdict.trial.runs() && verdict.trial.is_certain(&self.coverage, self.least_bytes)
    }

    /// A figure of an allocator, as a reader may take it.
    pub fn bounded(&self, need: &Need, bytes: Bytes) -> Bounded {
        Bounded { bytes, certainty: self.coverage.of_a_run(need.is_bound()) }
    }
}

/// The plans of the ranks of one job. A job runs where all its ranks do.
#[derive(Debug, Clone, Default, Serialize)]
pub struct JobPlan {
    /// The job: the file's name, with a `*` in place of the rank if there are several.
    pub name: String,
    /// The ranks that could be read, in order.
    pub ranks: Vec<Plan>,
    /// What was wrong with each file that could not, one line each.
    pub failures: Vec<String>,
    /// How much of the job its recordings show.
    pub coverage: Coverage,
}

impl JobPlan {
    /// What each rank needs under allocator number `index`.
    pub fn needs(&self, index: usize) -> impl Iterator<Item = (&Plan, &Need)> {
        self.ranks.iter().filter_map(move |plan| Some((plan, plan.needs.get(index)?)))
    }

    /// Whether it is open what the job does on a target, where `verdict` is that of `plan`, its worst rank there: from
    /// what is not the whole job, only what does not run is known.
    pub fn leaves_open(&self, plan: &Plan, verdict: &Verdict) -> bool {
        self.coverage.is_partial() && !plan.excludes(verdict)
    }

    /// A figure of the rank that needs most, as a reader may take it for the job.
    pub fn bounded(&self, plan: &Plan, need: &Need, bytes: Bytes) -> Bounded {
        let certainty = plan.bounded(need, bytes).certainty.max(self.coverage.of_what_was_seen());
        Bounded { bytes, certainty }
    }

    /// The rank that decides how large a device allocator number `index` needs: of equals the first.
    pub fn worst(&self, index: usize) -> Option<(&Plan, &Need)> {
        let needed = |need: &Need| need.smallest_bytes().unwrap_or(Bytes::MAX);
        self.needs(index).min_by_key(|(_, need)| std::cmp::Reverse(needed(need)))
    }

    /// Bytes between the rank that needs least under allocator number `index` and the one that needs most.
    pub fn spread(&self, index: usize) -> Option<Bytes> {
        let needed: Option<Vec<_>> =
            self.needs(index).map(|(_, need)| need.smallest_bytes()).collect();
        let needed = needed?;
        Some(needed.iter().max()? - needed.iter().min()?)
    }

    /// The rank that fails first on target number `target` under allocator number `index`, else the one with least to
    /// spare there.
    pub fn verdict(&self, index: usize, target: usize) -> Option<(&Plan, Verdict)> {
        let verdicts = self
            .needs(index)
            .filter_map(|(plan, need)| need.verdicts.get(target).map(|&verdict| (plan, verdict)));
        // A shortage before none, a certain one before a likely one, an early one before a late one, little to spare
        // before much.
        verdicts.min_by_key(|(plan, verdict)| {
            let event = verdict.trial.shortage.map_or(u64::MAX, |shortage| shortage.event);
            (!plan.excludes(verdict), event, verdict.spare_bytes.unwrap_or(0))
        })
    }
}
