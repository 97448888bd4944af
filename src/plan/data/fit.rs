//! The fit of a job on one device.

use super::plan::Trial;
use crate::trace::Coverage;

/// What can be said of a job on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FitVerdict {
    /// Every request of the whole job is served.
    Fits,
    /// A request is not served.
    DoesNotFit,
    /// What was recorded fits, and the recording is not the whole job.
    Unknown,
}

/// What one rank does on the device.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RankFit {
    /// Number of the rank, if the file's name tells one.
    pub rank: Option<u64>,
    /// The trace file, as given.
    pub file: String,
    /// How much of the rank the recording shows.
    pub coverage: Coverage,
    /// The run on the device.
    pub trial: Trial,
}

/// What a job does on one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFit {
    /// The ranks that could be read, in order.
    pub ranks: Vec<RankFit>,
    /// What was wrong with each file that could not, one line each.
    pub failures: Vec<String>,
}

impl JobFit {
    /// Whether the job fits, as far as its recordings tell; `None` if no rank could be read.
    pub fn verdict(&self) -> Option<FitVerdict> {
        let worst = self.worst()?;
        Some(match (worst.trial.runs(), self.coverage().is_lower_bound()) {
            (false, _) => FitVerdict::DoesNotFit,
            (true, true) => FitVerdict::Unknown,
            (true, false) => FitVerdict::Fits,
        })
    }

    /// How much of the job its recordings show: as much as the worst of them.
    pub fn coverage(&self) -> Coverage {
        Coverage::worst_of(self.ranks.iter().map(|rank| &rank.coverage))
    }

    /// The rank that fails first, else the one that holds most.
    pub fn worst(&self) -> Option<&RankFit> {
        self.ranks.iter().min_by_key(|rank| {
            let event = rank.trial.shortage.map_or(u64::MAX, |shortage| shortage.event);
            (event, std::cmp::Reverse(rank.trial.reserved_peak_bytes))
        })
    }
}
