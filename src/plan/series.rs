//! Jobs that differ in one quantity, such as the batch size: up to which value does each allocator fit a device?
//!
//! Only what was run is known. Between two values of which one runs and the next does not, the border is found by
//! drawing a straight line through what the two need; beyond the smallest and the largest value nothing is said:
//!
//! ```text
//!   needs    │                    ×  160: 61 GiB
//!   a device │- - - - - - - - -/- - - - - - - - -   40 GiB: runs at 96, not at 160; the line crosses near 117
//!            │            ×  96: 38 GiB
//!            │   ×  32: 14 GiB
//!            └───────────────────────────────────
//! ```

use serde::Serialize;

use super::need::JobPlan;
use crate::units::Bytes;

/// Plans in the order of a quantity.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Series {
    /// What the jobs differ in, such as `batch`.
    pub quantity: String,
    /// The values, ascending.
    pub values: Vec<f64>,
    /// The job at each value.
    pub jobs: Vec<JobPlan>,
}

/// Where an allocator stops fitting a device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Limit {
    /// It does not run at the smallest value; what happens below is not known.
    Below {
        /// That value.
        smallest: f64,
    },
    /// It runs at `runs` and no more at `fails`.
    Between {
        /// The largest value at which it was run with success, and all smaller ones too.
        runs: f64,
        /// The next value, at which memory ran out.
        fails: f64,
        /// Where a straight line through what the two values need crosses the device's memory.
        estimate: f64,
    },
    /// It runs at every value; what happens beyond is not known.
    Beyond {
        /// The largest value.
        largest: f64,
    },
}

impl Series {
    /// Where allocator number `index` stops fitting target number `target`; `None` if a value has no result, its
    /// recordings do not show it, or a larger value runs where a smaller one does not.
    pub fn limit(&self, index: usize, target: usize) -> Option<Limit> {
        let runs = |job: &JobPlan| job.verdict(index, target).is_some_and(|v| v.1.trial.runs());
        if !self.jobs.iter().map(runs).is_sorted_by(|smaller, larger| smaller >= larger) {
            return None;
        }
        let mut last: Option<(f64, Bytes)> = None;
        for (&value, job) in self.values.iter().zip(&self.jobs) {
            let (plan, verdict) = job.verdict(index, target)?;
            if job.leaves_open(plan, &verdict) {
                return None;
            }
            let need = job.worst(index)?.1.smallest_bytes();
            if verdict.trial.runs() {
                last = Some((value, need?));
                continue;
            }
            let capacity = verdict.trial.capacity_bytes;
            return Some(match last {
                None => Limit::Below { smallest: value },
                Some((runs, least)) => Limit::Between {
                    runs,
                    fails: value,
                    estimate: crossing((runs, least), (value, need), capacity),
                },
            });
        }
        last.map(|(largest, _)| Limit::Beyond { largest })
    }
}

/// Where the line from one need to the other crosses `capacity`. A value whose need is not known, or lies within the
/// capacity although the run there failed, says no more than that the border lies between.
fn crossing(runs: (f64, Bytes), fails: (f64, Option<Bytes>), capacity: Bytes) -> f64 {
    let least = runs.1 as f64;
    let most = fails.1.map_or(f64::INFINITY, |need| need as f64);
    let room = capacity as f64 - least;
    let share = if most > least { (room / (most - least)).clamp(0.0, 1.0) } else { 0.0 };
    runs.0 + share * (fails.0 - runs.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GIB;

    #[test]
    fn an_unknown_need_gives_the_interval_alone() {
        assert_eq!(crossing((32.0, GIB), (96.0, None), 2 * GIB), 32.0);
        assert_eq!(crossing((32.0, GIB), (96.0, Some(GIB)), 2 * GIB), 32.0);
    }
}
