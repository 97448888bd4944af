//! The result of a replay, as it is shown and exported.

use serde::Serialize;

use super::stamped::Verified;
use crate::device::{Call, CallLog, Observation, PerCall, Timed};
use crate::units::Bytes;

/// One trace through one allocator on a GPU. Field names are the names in the JSON export.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ReplaySummary {
    /// The trace file, as given.
    pub file: String,
    /// The GPU.
    pub gpu: String,
    /// Name of the allocator.
    pub allocator: String,
    /// Events that were replayed.
    pub events: u64,
    /// Events in the trace.
    pub trace_events: u64,
    /// Why the run ended before the trace did.
    pub stopped: Option<String>,
    /// Requests that were not served.
    pub oom_count: u64,
    /// Times that the allocator gave everything back and tried again.
    pub alloc_retries: u64,
    /// Time in the allocator, driver calls included, in nanoseconds.
    pub allocator_ns: u64,
    /// Time in driver calls, in nanoseconds.
    pub driver_ns: u64,
    /// The same in each of the runs of which this is the median, in ascending order.
    pub driver_ns_of_runs: Vec<u64>,
    /// The same by the cost model at the machine's pace, in nanoseconds.
    pub predicted_driver_ns: u64,
    /// The same by the profile as it is, in nanoseconds.
    pub profile_driver_ns: u64,
    /// The profile that it rests on.
    pub profile: String,
    /// How slow the machine was next to the run, in units of the machine that the profile was measured on.
    pub pace: Option<f64>,
    /// How much longer than priced `cuMemFree` and `cuCtxSynchronize` took: they wait for the GPU, in nanoseconds.
    pub wait_ns: u64,
    /// Calls that wait for the GPU.
    pub stream_waits: u64,
    /// Each driver call.
    pub calls: Vec<CallRow>,
    /// Most bytes in blocks in use.
    pub active_peak_bytes: Bytes,
    /// Most physical memory that the allocator believed to hold.
    pub reserved_peak_bytes: Bytes,
    /// Most physical memory that the driver missed.
    pub physical_peak_bytes: Bytes,
    /// Most physical memory that the simulated driver held, in whole pages, with addresses of its own.
    pub simulated_peak_bytes: Bytes,
    /// Device calls that were compared with the simulation.
    pub compared_calls: u64,
    /// The first call that the simulation made otherwise.
    pub log_difference: Option<LogDifference>,
    /// What looking at the memory found; `None` if it was not looked at.
    pub verified: Option<Verified>,
    /// Each training step, where the trace has them.
    pub steps: Vec<StepReplay>,
    /// The device calls; not exported with the rest.
    #[serde(skip)]
    pub log: CallLog,
    /// Each of them with its time, if that was kept; not exported with the rest.
    #[serde(skip)]
    pub observations: Vec<Observation>,
}

/// Durations of one driver call.
#[derive(Debug, Clone, Serialize)]
pub struct CallRow {
    /// Its name.
    pub call: &'static str,
    /// How often it was made, failures included.
    pub count: u64,
    /// All together, in nanoseconds.
    pub total_ns: u64,
    /// Median in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile in nanoseconds.
    pub p99_ns: u64,
    /// The longest in nanoseconds.
    pub max_ns: u64,
    /// All together by the cost model, in nanoseconds.
    pub predicted_ns: u64,
}

/// What happened in one training step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StepReplay {
    /// Driver calls.
    pub calls: u64,
    /// Time in them, in nanoseconds.
    pub driver_ns: u64,
    /// The same by the cost model, in nanoseconds.
    pub predicted_ns: u64,
}

/// Where replay and simulation part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogDifference {
    /// Index of the call.
    pub call: u64,
    /// What the replay did.
    pub replay: String,
    /// What the simulation did.
    pub simulation: String,
}

impl ReplaySummary {
    /// The run with the median driver time, of several that did the same; `None` if there are none. What went wrong in
    /// any of them is kept.
    pub fn median(mut runs: Vec<Self>) -> Option<Self> {
        runs.sort_by_key(|run| run.driver_ns);
        let times = runs.iter().map(|run| run.driver_ns).collect();
        let wrong = runs.iter().position(|run| !run.is_clean());
        let middle = wrong.unwrap_or(runs.len() / 2);
        let run = (middle < runs.len()).then(|| runs.swap_remove(middle))?;
        Some(Self { driver_ns_of_runs: times, ..run })
    }

    /// Whether nothing is wrong: the trace ended, memory kept what was written, the simulation agreed.
    pub fn is_clean(&self) -> bool {
        let corrupted = self.verified.as_ref().map_or(0, |verified| verified.corrupted_bytes);
        self.stopped.is_none() && corrupted == 0 && self.log_difference.is_none()
    }

    /// Fills in the calls and their sums, next to the predicted ones where there are any.
    pub(super) fn set_calls(&mut self, timed: &Timed, predicted: Option<&PerCall<u64>>) {
        let is_predicted = predicted.is_some();
        let predicted = predicted.copied().unwrap_or_default();
        let row = |call: Call| {
            let times = &timed.times[call];
            CallRow {
                call: call.name(),
                count: times.count,
                total_ns: times.total_ns,
                p50_ns: times.quantile(0.5).unwrap_or(0),
                p99_ns: times.quantile(0.99).unwrap_or(0),
                max_ns: times.max_ns,
                predicted_ns: predicted[call],
            }
        };
        self.calls = Call::ALL.into_iter().map(row).filter(|row| row.count > 0).collect();
        self.driver_ns = timed.nanos().total();
        self.predicted_driver_ns = predicted.total();
        let waits = [Call::MemFree, Call::Synchronize];
        let over = |call: Call| timed.times[call].total_ns.saturating_sub(predicted[call]);
        self.wait_ns = if is_predicted { waits.into_iter().map(over).sum() } else { 0 };
        self.stream_waits = waits.into_iter().map(|call| timed.times[call].count).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_shown_unless_something_went_wrong() {
        let run = |driver_ns| ReplaySummary { driver_ns, ..ReplaySummary::default() };
        let runs = vec![run(5), run(9), run(1)];
        let shown = ReplaySummary::median(runs.clone()).unwrap();
        assert_eq!((shown.driver_ns, shown.driver_ns_of_runs), (5, vec![1, 5, 9]));
        let mut runs = runs;
        runs[1].stopped = Some("interrupted".to_owned());
        assert_eq!(ReplaySummary::median(runs).unwrap().driver_ns, 9);
        assert!(ReplaySummary::median(Vec::new()).is_none());
    }
}
