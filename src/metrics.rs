//! The result of a run: the one struct that crosses from simulating to showing, and its columns.
//!
//! Field names of [`RunSummary`] are the names in the JSON export, which is a contract (see the README).

use serde::Serialize;

use crate::allocator::{Allocator, Usage};
use crate::device::CallCounts;
use crate::drive::Observer;
use crate::trace::Event;
use crate::units::Bytes;

/// Version of the JSON export; raised when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

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
    /// Events that were replayed.
    pub events: u64,
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
    /// Times that the allocator gave everything back and tried again.
    pub alloc_retries: u64,
    /// Driver calls made.
    pub device_calls: CallCounts,
    /// Time that the event loop took on this machine, in nanoseconds; `None` for the recording.
    pub host_ns: Option<u64>,
    /// What the allocator counts of its own doings.
    pub allocator_counters: Vec<(String, u64)>,
    /// Each training step, where the trace has them.
    pub steps: Vec<StepSummary>,
    /// Memory over time, for plots.
    #[serde(skip)]
    pub timeline: Timeline,
}

/// What happened in one training step.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StepSummary {
    /// Most active bytes in the step.
    pub active_peak_bytes: Bytes,
    /// Most reserved bytes in the step.
    pub reserved_peak_bytes: Bytes,
    /// Driver calls made in the step.
    pub device_calls: CallCounts,
    /// What the allocator counted in the step.
    pub allocator_counters: Vec<(String, u64)>,
}

impl RunSummary {
    /// Fills in the ratios from the peaks. A run that held nothing has lost nothing.
    pub fn set_ratios(&mut self) {
        self.utilization = match self.reserved_peak_bytes {
            0 => 1.0,
            reserved => self.active_peak_bytes as f64 / reserved as f64,
        };
        self.fragmentation = 1.0 - self.utilization;
    }

    /// Host time per event in nanoseconds.
    #[must_use]
    pub fn host_ns_per_event(&self) -> Option<f64> {
        self.host_ns.filter(|_| self.events > 0).map(|ns| ns as f64 / self.events as f64)
    }
}

/// Memory over time, thinned out to a fixed number of buckets of consecutive events. A bucket keeps the highest
/// values inside it, so that no peak is lost.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Events in each bucket.
    pub stride: usize,
    /// Highest usage in each bucket, in order.
    pub buckets: Vec<Usage>,
    open: Usage,
    filled: usize,
}

impl Timeline {
    /// Buckets for a plot: more than there are pixels in a chart's width.
    pub const BUCKETS: usize = 2000;

    /// An empty timeline for a run of `events` events.
    #[must_use]
    pub fn for_events(events: usize) -> Self {
        let stride = events.div_ceil(Self::BUCKETS).max(1);
        let buckets = Vec::with_capacity(events.div_ceil(stride));
        Self { stride, buckets, open: Usage::default(), filled: 0 }
    }

    /// The state after one more event.
    #[inline]
    pub fn push(&mut self, usage: Usage) {
        self.open = self.open.max(usage);
        self.filled += 1;
        if self.filled == self.stride {
            self.finish();
        }
    }

    /// Closes the last bucket.
    pub fn finish(&mut self) {
        if self.filled > 0 {
            self.buckets.push(std::mem::take(&mut self.open));
            self.filled = 0;
        }
    }
}

impl Observer for Timeline {
    #[inline]
    fn after(&mut self, _: usize, _: &Event, allocator: &dyn Allocator) {
        self.push(allocator.usage());
    }
}
