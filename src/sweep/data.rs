//! The results of a sweep: one row for each file and point of the grid.

use serde::{Deserialize, Serialize};

use crate::allocator::{Role, find};
use crate::run::RunSummary;
use crate::trace::{Bounded, Certainty};
use crate::units::Bytes;

/// A sweep's grid and its results.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Sweep {
    /// What was varied.
    pub axes: Vec<Axis>,
    /// The results: files in the order given, the last axis varying fastest.
    pub rows: Vec<SweepRow>,
}

impl Sweep {
    /// Whether there are rows of recordings that are not their whole jobs.
    pub fn is_partial(&self) -> bool {
        self.rows.iter().any(|row| row.certainty != Certainty::Exact)
    }
}

/// Something that is varied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// Its name, such as `gmlake.fragment_limit` or `device-memory`.
    pub name: String,
    /// Its values, as a user would write them.
    pub values: Vec<String>,
}

/// What one axis was set to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name of the axis.
    pub name: String,
    /// The value.
    pub value: String,
}

/// One run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepRow {
    /// The trace file, as given.
    pub file: String,
    /// Index of the device in that file.
    pub device: u32,
    /// The allocator.
    pub allocator: String,
    /// The axes that this allocator has, each with its value.
    pub settings: Vec<Setting>,
    /// Memory of the simulated device in bytes; `None`: as much as was asked for.
    pub device_memory_bytes: Option<Bytes>,
    /// Name of the device profile that priced the driver calls.
    pub profile: Option<String>,
    /// Events that were replayed.
    pub events: u64,
    /// How the reserved peak stands to that of the whole job.
    #[serde(default)]
    pub certainty: Certainty,
    /// Most bytes asked for at any time, unrounded.
    pub requested_peak_bytes: Bytes,
    /// Most active bytes.
    pub active_peak_bytes: Bytes,
    /// Most physical memory held.
    pub reserved_peak_bytes: Bytes,
    /// `active_peak_bytes / reserved_peak_bytes`.
    pub utilization: f64,
    /// Requests that were not served.
    pub oom_count: u64,
    /// Index of the first event that was not served.
    pub first_oom_event: Option<u64>,
    /// Number of the training step that it lies in, from 1.
    pub first_oom_step: Option<u64>,
    /// Times that the allocator gave everything back and tried again.
    pub alloc_retries: u64,
    /// Driver calls made.
    pub device_calls: u64,
    /// What they would have cost in nanoseconds; `None` without a profile.
    pub predicted_driver_ns: Option<u64>,
    /// Time that the event loop took on this machine, in nanoseconds.
    pub host_ns: Option<u64>,
}

impl SweepRow {
    /// The row of a run.
    pub fn new(run: &RunSummary, settings: Vec<Setting>) -> Self {
        Self {
            file: run.file.clone(),
            device: run.device,
            allocator: run.allocator.clone(),
            settings,
            device_memory_bytes: run.device_memory_bytes,
            profile: run.prices.as_ref().map(|prices| prices.profile.clone()),
            events: run.events,
            certainty: run.certainty,
            requested_peak_bytes: run.requested_peak_bytes,
            active_peak_bytes: run.active_peak_bytes,
            reserved_peak_bytes: run.reserved_peak_bytes,
            utilization: run.utilization,
            oom_count: run.oom_count,
            first_oom_event: run.first_oom_event,
            first_oom_step: run.first_oom_step,
            alloc_retries: run.alloc_retries,
            device_calls: run.device_calls.total(),
            predicted_driver_ns: run.predicted_driver_ns(),
            host_ns: run.host_ns,
        }
    }

    /// Most physical memory held, as a reader may take it for the job.
    pub fn reserved(&self) -> Bounded {
        Bounded { bytes: self.reserved_peak_bytes, certainty: self.certainty }
    }

    /// A number that means nothing for a lower bound, which is no allocator.
    pub fn of_allocator(&self, value: Option<u64>) -> Option<u64> {
        value.filter(|_| find(&self.allocator).is_none_or(|spec| spec.role != Role::Bound))
    }

    /// The value of an axis, if this allocator has it.
    pub fn value_of(&self, axis: &str) -> Option<&str> {
        let setting = self.settings.iter().find(|setting| setting.name == axis)?;
        Some(&setting.value)
    }
}
