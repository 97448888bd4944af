//! Tuning: the result of a search over PyTorch's settings.

use serde::Serialize;

use crate::alloc_conf::split_outside_brackets;
use crate::plan::{FitVerdict, Shortage};
use crate::run::RunSummary;
use crate::trace::Coverage;
use crate::units::Bytes;

/// One setting, and what the trace did under it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tried {
    /// The value of `PYTORCH_CUDA_ALLOC_CONF`; empty: PyTorch's defaults.
    pub conf: String,
    /// Most physical memory held.
    pub reserved_peak_bytes: Bytes,
    /// Requests that were not served.
    pub oom_count: u64,
    /// The first of them.
    pub shortage: Option<Shortage>,
    /// Times that the allocator gave everything back and tried again.
    pub alloc_retries: u64,
    /// Driver calls made.
    pub device_calls: u64,
    /// What they would have cost in nanoseconds.
    pub predicted_driver_ns: u64,
    /// The same as a share of the time that the recorded program ran.
    pub predicted_driver_share: Option<f64>,
}

impl Tried {
    /// What a run under a setting has shown.
    pub fn new(conf: &str, run: &RunSummary) -> Self {
        Self {
            conf: conf.to_owned(),
            reserved_peak_bytes: run.reserved_peak_bytes,
            oom_count: run.oom_count,
            shortage: Shortage::of(run),
            alloc_retries: run.alloc_retries,
            device_calls: run.device_calls.total(),
            predicted_driver_ns: run.predicted_driver_ns().unwrap_or(0),
            predicted_driver_share: run.prices.as_ref().and_then(crate::run::Prices::share),
        }
    }

    /// The options that are set, each as `name:value`.
    pub fn options(&self) -> Vec<&str> {
        let mut options = split_outside_brackets(&self.conf, ',');
        options.retain(|option| !option.is_empty());
        options
    }

    /// Whether this is at least as good as `other` in memory, retries and driver time, and better in one of them.
    pub fn beats(&self, other: &Self) -> bool {
        let costs =
            |one: &Self| [one.reserved_peak_bytes, one.alloc_retries, one.predicted_driver_ns];
        let (own, others) = (costs(self), costs(other));
        own != others && own.iter().zip(&others).all(|(own, other)| own <= other)
    }

    /// Whether this needs noticeably more memory than `other`, or refuses more requests.
    pub fn is_worse_than(&self, other: &Self) -> bool {
        const NOTICEABLE: f64 = 1.05;
        let limit = other.reserved_peak_bytes as f64 * NOTICEABLE;
        self.oom_count > other.oom_count
            || self.oom_count == other.oom_count && self.reserved_peak_bytes as f64 > limit
    }
}

/// The settings that were tried on a trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tuning {
    /// The trace file, as given.
    pub file: String,
    /// How much of the job the recording shows.
    pub coverage: Coverage,
    /// Memory of the device in bytes; `None`: it never runs out.
    pub device_memory_bytes: Option<Bytes>,
    /// Name of the device profile that priced the driver calls.
    pub profile: String,
    /// The environment variable from which this PyTorch reads its settings.
    pub variable: &'static str,
    /// What the recording ran with, under the recorded addresses.
    pub recorded: Tried,
    /// PyTorch's defaults.
    pub default: Tried,
    /// The setting to take.
    pub best: Tried,
    /// Each option with each of its usual values by itself.
    pub alone: Vec<Tried>,
    /// The best setting with one option changed, added or left out, to each of its usual values.
    pub beside_best: Vec<Tried>,
    /// Everything that was tried.
    pub tried: Vec<Tried>,
}

/// What is known of one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Tuned {
    /// The settings that were tried on it.
    Known(Box<Tuning>),
    /// It shows too little of the job.
    Unknown(Untuned),
}

impl Tuned {
    /// The settings, if they are known.
    pub fn known(&self) -> Option<&Tuning> {
        match self {
            Self::Known(tuning) => Some(tuning),
            Self::Unknown(_) => None,
        }
    }
}

/// A recording that shows too little of the job to recommend a setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Untuned {
    /// The trace file, as given.
    pub file: String,
    /// How much of the job the recording shows.
    pub coverage: Coverage,
    /// What can be said: [`FitVerdict::Unknown`].
    pub verdict: FitVerdict,
    /// Why, and how to record the rest.
    pub reason: String,
}

impl Tuning {
    /// Whether a setting was found that helps: it serves all that was recorded, and it is not PyTorch's defaults.
    pub fn helps(&self) -> bool {
        self.best.oom_count == 0 && !self.best.conf.is_empty()
    }

    /// Whether none helps; `None`: none helps what was recorded, but what came before may have left a cache that one
    /// avoids.
    pub fn verdict(&self) -> Option<bool> {
        let runs_out = self.best.oom_count > 0;
        let is_known = self.helps() || runs_out || self.coverage.sees_beginning();
        is_known.then(|| self.helps())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_one_option() {
        let tried = |conf: &str| Tried { conf: conf.to_owned(), ..Tried::default() };
        let conf = "expandable_segments:True,roundup_power2_divisions:[256:1,>:2],a_b:1";
        let options = ["expandable_segments:True", "roundup_power2_divisions:[256:1,>:2]", "a_b:1"];
        assert_eq!(tried(conf).options(), options);
        assert!(tried("").options().is_empty());
    }
}
