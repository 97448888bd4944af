//! What one run came to.
//!
//! Field names of [`RunSummary`] are the names in the JSON export, which is a contract (see the README).

use serde::{Serialize, Serializer};

use super::{CallNanos, Prices, Timeline};
use crate::allocator::{Role, find};
use crate::device::{CallCounts, FenceCounts};
use crate::trace::{Bounded, Certainty};
use crate::units::Bytes;

/// Name in the `allocator` column of what the recording itself says.
pub const RECORDED: &str = "recorded";

/// One trace through one allocator.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RunSummary {
    /// The trace file, as given.
    pub file: String,
    /// Index of the device in that file.
    pub device: u32,
    /// Name of the allocator, or [`RECORDED`].
    pub allocator: String,
    /// Its options that differ from the defaults, as `name=value`.
    pub options: Vec<String>,
    /// Memory of the simulated device in bytes; `None`: as much as was asked for.
    pub device_memory_bytes: Option<Bytes>,
    /// Events that were replayed.
    pub events: u64,
    /// How the reserved peak stands to that of the whole job.
    pub certainty: Certainty,
    /// Most bytes asked for at any time, unrounded.
    pub requested_peak_bytes: Bytes,
    /// Most bytes in blocks that were allocated, or freed and still in use by a stream.
    pub active_peak_bytes: Bytes,
    /// Most physical memory held at any time.
    pub reserved_peak_bytes: Bytes,
    /// `active_peak_bytes / reserved_peak_bytes`, each peak taken by itself (GMLake's definition).
    pub utilization: f64,
    /// `1 - utilization`.
    pub fragmentation: f64,
    /// Requests that were not served.
    pub oom_count: u64,
    /// Index of the first event that was not served.
    pub first_oom_event: Option<u64>,
    /// Its step, from 1; that of the step in which the recording ends counts. `None` for the recording.
    #[serde(skip)]
    pub first_oom_step: Option<u64>,
    /// Times that the allocator gave everything back and tried again.
    pub alloc_retries: u64,
    /// Driver calls made.
    pub device_calls: CallCounts,
    /// Calls that put streams in order.
    pub fence_calls: FenceCounts,
    /// Times that the allocator asked how much memory the device has.
    #[serde(skip)]
    pub memory_inquiries: u64,
    /// Time that the event loop took on this machine, in nanoseconds; `None` for the recording.
    pub host_ns: Option<u64>,
    /// What the allocator counts of its own doings.
    #[serde(serialize_with = "as_object")]
    pub allocator_counters: Vec<(String, u64)>,
    /// What the driver calls would have cost; absent unless asked for.
    #[serde(flatten)]
    pub prices: Option<Prices>,
    /// The last training step, counted from 1, in which a driver call was made or an sBlock came to be; `None` if that
    /// went on to the last step, or there are no steps. GMLake is said to converge after a few.
    pub converged_after_step: Option<u64>,
    /// Each training step, where the trace has them.
    pub steps: Vec<StepSummary>,
    /// Memory over time, for plots.
    #[serde(skip)]
    pub timeline: Timeline,
    /// When the first event was not served, in microseconds since the first event.
    #[serde(skip)]
    pub first_oom_us: Option<u64>,
    /// Index of the event in which most memory was reserved, the first if there are several; `None`: it was so at
    /// the beginning, or it is not known.
    #[serde(skip)]
    pub peak_event: Option<u64>,
}

/// What happened in one training step.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StepSummary {
    /// Index of its first event.
    pub start_event: u64,
    /// Index of the event after its last one.
    pub end_event: u64,
    /// Most active bytes in the step.
    pub active_peak_bytes: Bytes,
    /// Most reserved bytes in the step.
    pub reserved_peak_bytes: Bytes,
    /// Driver calls made in the step.
    pub device_calls: CallCounts,
    /// Calls that put streams in order, made in the step.
    pub fence_calls: FenceCounts,
    /// What they would have cost, in nanoseconds; absent unless asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_driver_ns: Option<CallNanos>,
    /// What the allocator counted in the step.
    #[serde(serialize_with = "as_object")]
    pub allocator_counters: Vec<(String, u64)>,
}

impl StepSummary {
    /// Whether the allocator still had to do with the driver, or stitched.
    fn is_busy(&self) -> bool {
        let created = self.allocator_counters.iter().find(|(name, _)| name == "sblocks_created");
        self.device_calls.total() > 0 || created.is_some_and(|&(_, count)| count > 0)
    }
}

impl RunSummary {
    /// Host time per event in nanoseconds.
    pub fn host_ns_per_event(&self) -> Option<f64> {
        self.host_ns.filter(|_| self.events > 0).map(|ns| ns as f64 / self.events as f64)
    }

    /// Most physical memory held, as a reader may take it for the job.
    pub fn reserved(&self) -> Bounded {
        Bounded { bytes: self.reserved_peak_bytes, certainty: self.certainty }
    }

    /// What people see of the peak beside a bar: `39.6 % of 62.74 GiB`.
    pub fn share_of_reserved(&self) -> String {
        format!("{:.1} % of {}", 100.0 * self.utilization, self.reserved())
    }

    /// The allocator and its options, as tables and plots name the run.
    pub fn label(&self) -> String {
        label(&self.allocator, &self.options)
    }

    /// What its allocator is; `None` of the recording.
    pub fn role(&self) -> Option<Role> {
        find(&self.allocator).map(|spec| spec.role)
    }

    /// Whether this is a lower bound: a row like the others, but of no allocator, so that it makes no calls.
    pub fn is_bound(&self) -> bool {
        self.role() == Some(Role::Bound)
    }

    /// Whether one could train with the allocator.
    pub fn is_choice(&self) -> bool {
        self.role().is_some_and(Role::is_choice)
    }

    /// Number of the step, from 1, that an event lies in.
    pub fn step_of(&self, event: u64) -> Option<u64> {
        let holds = |step: &StepSummary| (step.start_event..step.end_event).contains(&event);
        self.steps.iter().position(holds).map(|index| index as u64 + 1)
    }

    /// Predicted time in driver calls in nanoseconds, if they were priced.
    pub fn predicted_driver_ns(&self) -> Option<u64> {
        self.prices.as_ref().map(|prices| prices.predicted_driver_ns.total)
    }
}

/// The share of what was reserved that was active. A run that held nothing has lost nothing.
pub fn utilization(active: Bytes, reserved: Bytes) -> f64 {
    if reserved == 0 { 1.0 } else { active as f64 / reserved as f64 }
}

/// After which step, from 1, the allocator had settled; `None` if it had not, or there are no steps.
pub fn converged_after(steps: &[StepSummary]) -> Option<u64> {
    let busy = steps.iter().rposition(StepSummary::is_busy).map_or(0, |last| last + 1);
    (busy < steps.len()).then_some(busy as u64)
}

/// An allocator and its options, as tables and plots name them.
pub(crate) fn label(allocator: &str, options: &[String]) -> String {
    match options.is_empty() {
        true => allocator.to_owned(),
        false => format!("{allocator} {}", options.join(" ")),
    }
}

/// Serialises named numbers as a JSON object, in the order given.
fn as_object<S: Serializer>(pairs: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, count)| (name, count)))
}
