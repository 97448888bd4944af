//! Prices: what a run's driver calls would have cost on a real GPU.

use serde::Serialize;

use crate::device::{Bill, PerCall};

/// Driver time in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CallNanos {
    /// Of all calls.
    pub total: u64,
    /// By call.
    #[serde(flatten)]
    pub by_call: PerCall<u64>,
}

impl From<PerCall<u64>> for CallNanos {
    fn from(by_call: PerCall<u64>) -> Self {
        Self { total: by_call.total(), by_call }
    }
}

/// A bill, and what to compare it with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prices {
    /// Name of the profile that it rests on.
    pub profile: String,
    /// Time in driver calls.
    pub predicted_driver_ns: CallNanos,
    /// Times that a call waited for work queued on the GPU. How long it waited is not predicted.
    pub stream_waits: u64,
    /// How long the recorded program ran, if the recording has times.
    pub recorded_wall_ns: Option<u64>,
}

impl Prices {
    /// The bill of a run.
    pub fn new(profile: &str, bill: Bill, recorded_wall_ns: Option<u64>) -> Self {
        Self {
            profile: profile.to_owned(),
            predicted_driver_ns: bill.nanos.into(),
            stream_waits: bill.stream_waits,
            recorded_wall_ns,
        }
    }

    /// Driver time as a share of the time that the recorded program ran.
    pub fn share(&self) -> Option<f64> {
        let wall = self.recorded_wall_ns.filter(|&ns| ns > 0)?;
        Some(self.predicted_driver_ns.total as f64 / wall as f64)
    }
}
