//! A fleet in numbers: what all its ranks hold under each allocator, which jobs lose most, which ranks are unlike their
//! peers.

use serde::{Serialize, Serializer};

use crate::units::Bytes;
use gmlake_core::cards::Target;

/// What a fleet's tables tell.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FleetSummary {
    /// Devices of recordings: the rows of the table `ranks`.
    pub ranks: u64,
    /// Requests and frees in them.
    pub events: u64,
    /// Jobs, each date of a job by itself.
    pub jobs: u64,
    /// Ranks whose recording shows only a part of the job: what they hold is a lower bound.
    pub incomplete_ranks: u64,
    /// Ranks of which no recording is there or can be read: what their jobs hold is a lower bound.
    pub missing_ranks: u64,
    /// Rows of the table `errors`.
    pub errors: u64,
    /// The cards that jobs are to fit on, the smallest first: what the job with the most ranks may hold on each.
    pub targets: Vec<Target>,
    /// The least that any job leaves of any card to all but PyTorch's allocator, in bytes.
    pub least_reserve_bytes: Bytes,
    /// What the other allocators are compared with.
    pub reference: Option<String>,
    /// Each allocator over all ranks; the reference comes first.
    pub totals: Vec<FleetTotal>,
    /// The jobs that lose most under the reference.
    pub worst_jobs: Vec<FleetJob>,
    /// Ranks that hold more or less than their peers, those farthest from them first.
    pub unlike: Vec<UnlikeRank>,
    /// How many there are of these.
    pub unlike_ranks: u64,
    /// What was wrong with recordings, most frequent first.
    pub problems: Vec<Problem>,
}

/// One allocator with one setting over all ranks.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FleetTotal {
    /// The allocator, and what was varied.
    pub allocator: String,
    /// Ranks that have a row.
    pub ranks: u64,
    /// Sum of their peaks of reserved memory.
    pub reserved_bytes: Bytes,
    /// Sum of their peaks of active memory.
    pub active_bytes: Bytes,
    /// Ranks that leave out as many requests as under the reference, on a device with room for what either holds: only
    /// they did the same work in the same way.
    pub compared_ranks: u64,
    /// What these ranks hold under the reference, summed.
    pub reference_bytes: Bytes,
    /// What they hold under this one.
    pub compared_bytes: Bytes,
    /// Ranks in which a request was not served.
    pub oom_ranks: u64,
    /// Times that an allocator gave everything back and tried again.
    pub alloc_retries: u64,
    /// Predicted time in driver calls in nanoseconds, where there is a profile.
    pub predicted_driver_ns: Option<u64>,
    /// How many cards of which size are enough for the jobs: the smallest that hold the peaks of their worst ranks.
    /// Smaller ones may be, too.
    pub enough_cards: Vec<CardCount>,
    /// Ranks of jobs for which no card is known to be enough, nor all to be too small: they were not recorded
    /// completely, ran out of memory, or held more than any card has.
    pub unknown_cards: u64,
    /// How many of the ranks that were recorded completely, and did not run out of memory, hold how much.
    #[serde(serialize_with = "as_pairs")]
    pub sizes: SizeHistogram,
}

/// Cards of one size; `None` for ranks of jobs that request more at once than any card has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CardCount {
    /// The card.
    pub card: Option<String>,
    /// How many.
    pub count: u64,
}

/// One job of one date.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FleetJob {
    /// The job.
    pub job: String,
    /// The date.
    pub date: String,
    /// Its ranks.
    pub ranks: u64,
    /// Whether what is known of it are bounds or estimates, because a rank was not recorded, or not completely.
    pub is_lower_bound: bool,
    /// Ranks whose recording shows only a part of the job.
    pub incomplete_ranks: u64,
    /// Ranks of which no recording is there or can be read.
    pub missing_ranks: u64,
    /// What its ranks hold under the reference and do not use at their peaks, summed; `None` if the reference has none.
    pub lost_bytes: Option<Bytes>,
    /// The worst rank under each allocator that ran; the reference comes first.
    pub peaks: Vec<JobPeak>,
}

/// What a job needs under one allocator.
#[derive(Debug, Clone, Default, Serialize)]
pub struct JobPeak {
    /// The allocator, and what was varied.
    pub allocator: String,
    /// The rank that holds most, where it is known.
    pub worst_rank: Option<u64>,
    /// What it holds.
    pub worst_bytes: Bytes,
    /// What the rank holds that holds least.
    pub least_bytes: Bytes,
    /// Ranks that ran out of memory.
    pub oom_ranks: u64,
}

/// A rank that holds more or less than the others of its job.
#[derive(Debug, Clone, Default, Serialize)]
pub struct UnlikeRank {
    /// The job.
    pub job: String,
    /// The date.
    pub date: String,
    /// Its rank.
    pub rank: Option<u64>,
    /// Its recording.
    pub file: String,
    /// What it holds under the reference.
    pub reserved_bytes: Bytes,
    /// The median of its job.
    pub median_bytes: Bytes,
    /// In what else it differs, in words.
    pub reason: String,
}

/// What was wrong with recordings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// In a line, without the file.
    pub text: String,
    /// How many recordings it is wrong with.
    pub count: u64,
    /// One of them.
    pub example: String,
}

/// How many ranks hold how much, in steps of a sixteenth of a doubling: a few hundred numbers for any fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SizeHistogram {
    counts: Vec<u64>,
}

/// Steps of a doubling.
const STEPS: f64 = 16.0;

impl SizeHistogram {
    /// Counts a rank.
    pub fn add(&mut self, bytes: Bytes) {
        let index = ((bytes.max(1) as f64).log2() * STEPS).floor() as usize;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
    }

    /// Sizes in bytes, ascending, each with the share of ranks that hold at most that much.
    pub fn shares(&self) -> Vec<(f64, f64)> {
        let total: u64 = self.counts.iter().sum();
        let mut below = 0;
        let mut shares = Vec::new();
        for (index, &count) in self.counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            below += count;
            let bytes = ((index + 1) as f64 / STEPS).exp2();
            shares.push((bytes, below as f64 / total as f64));
        }
        shares
    }
}

fn as_pairs<S: Serializer>(sizes: &SizeHistogram, serializer: S) -> Result<S::Ok, S::Error> {
    sizes.shares().serialize(serializer)
}

impl FleetTotal {
    /// Bytes that it needs less than the reference, over the ranks that can be compared; negative if it needs more.
    pub fn saved(&self) -> f64 {
        self.reference_bytes as f64 - self.compared_bytes as f64
    }

    /// The same in percent of what the reference needs.
    pub fn saved_share(&self) -> f64 {
        100.0 * self.saved() / self.reference_bytes.max(1) as f64
    }

    /// Active over reserved memory, of all ranks together.
    pub fn utilization(&self) -> f64 {
        if self.reserved_bytes == 0 {
            1.0
        } else {
            self.active_bytes as f64 / self.reserved_bytes as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GIB;

    #[test]
    fn shares_end_at_one_and_sizes_are_right_to_a_sixteenth_of_a_doubling() {
        let mut sizes = SizeHistogram::default();
        [GIB, GIB, 3 * GIB, 80 * GIB].into_iter().for_each(|bytes| sizes.add(bytes));
        let shares = sizes.shares();
        assert_eq!(shares.iter().map(|&(_, share)| share).collect::<Vec<_>>(), [0.5, 0.75, 1.0]);
        for ((found, _), bytes) in shares.iter().zip([GIB, 3 * GIB, 80 * GIB]) {
            let ratio = found / bytes as f64;
            assert!((1.0..1.045).contains(&ratio), "{ratio}");
        }
    }
}
