//! The fit of a job on one device.

use super::Trial;

/// What one rank does on the device.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RankFit {
    /// Number of the rank, if the file's name tells one.
    pub rank: Option<u64>,
    /// The trace file, as given.
    pub file: String,
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
    /// The rank that fails first, else the one that holds most.
    #[must_use]
    pub fn worst(&self) -> Option<&RankFit> {
        self.ranks.iter().min_by_key(|rank| {
            let event = rank.trial.shortage.map_or(u64::MAX, |shortage| shortage.event);
            (event, std::cmp::Reverse(rank.trial.reserved_peak_bytes))
        })
    }
}
