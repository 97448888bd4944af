//! The fit of a job on one device.

use super::need::Trial;
use crate::trace::Coverage;
use crate::units::Bytes;

/// What can be said of a job on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FitVerdict {
    /// A request is not served.
    DoesNotFit,
    /// The recording is not the whole job, and what it shows does not decide.
    Unknown,
    /// Every request of the whole job is served.
    Fits,
}

/// What one rank does on the device.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RankFit {
    /// Number of the rank, if the file's name tells one.
    pub rank: Option<u64>,
    /// The trace file, as given.
    pub file: String,
    /// The allocator, by its name.
    pub allocator: &'static str,
    /// How much of the rank the recording shows.
    pub coverage: Coverage,
    /// The least memory that any allocator needs for what was recorded, in bytes.
    pub least_bytes: Bytes,
    /// The run on the device.
    pub trial: Trial,
}

impl RankFit {
    /// Whether the rank fits, as far as its recording tells.
    pub fn verdict(&self) -> FitVerdict {
        match self.trial.runs() {
            true if self.coverage.is_partial() => FitVerdict::Unknown,
            true => FitVerdict::Fits,
            false if self.trial.is_certain(&self.coverage, self.least_bytes) => {
                FitVerdict::DoesNotFit
            }
            false => FitVerdict::Unknown,
        }
    }
}

/// What a job does on one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFit {
    /// The ranks that could be read, in order.
    pub ranks: Vec<RankFit>,
    /// What was wrong with each file that could not, one line each.
    pub failures: Vec<String>,
    /// How much of the job its recordings show.
    pub coverage: Coverage,
}

impl JobFit {
    /// Whether the job fits, as far as its recordings tell; `None` if no rank could be read.
    pub fn verdict(&self) -> Option<FitVerdict> {
        let of_ranks = self.worst().map(RankFit::verdict);
        of_ranks.map(|verdict| match self.coverage.is_partial() {
            true => verdict.min(FitVerdict::Unknown),
            false => verdict,
        })
    }

    /// The rank that decides: of those that fare worst the one that fails first, else the one that holds most.
    pub fn worst(&self) -> Option<&RankFit> {
        self.ranks.iter().min_by_key(|rank| {
            let event = rank.trial.shortage.map_or(u64::MAX, |shortage| shortage.event);
            (rank.verdict(), event, std::cmp::Reverse(rank.trial.reserved_peak_bytes))
        })
    }
}
