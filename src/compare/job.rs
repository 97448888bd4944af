//! The ranks of one job, each under several allocators. A job needs what its worst rank needs.

use std::collections::BTreeMap;

use super::comparison::Comparison;
use crate::run::RunSummary;
use crate::trace::{Bounded, Coverage};
use crate::units::Bytes;

/// One rank of a job.
#[derive(Debug, Clone, Default)]
pub struct RankComparison {
    /// Number of the rank, if the file's name tells one.
    pub rank: Option<u64>,
    /// Its runs, without memory over time and without steps: a job may have thousands of ranks.
    pub comparison: Comparison,
}

/// The ranks of one job.
#[derive(Debug, Clone, Default)]
pub struct JobComparison {
    /// The job's name.
    pub name: String,
    /// The ranks that could be read, in order.
    pub ranks: Vec<RankComparison>,
    /// What was wrong with each file that could not, one line each.
    pub failures: Vec<String>,
    /// How much of the job its recordings show.
    pub coverage: Coverage,
    /// Cards on which every rank runs, the smallest first, by the labels of rows; only where they were asked for.
    pub cards: BTreeMap<String, Vec<String>>,
}

/// What one allocator does over all ranks.
#[derive(Debug, Clone, Copy)]
pub struct Spread<'a> {
    /// The rank that holds most; of equals the first.
    pub worst: (&'a RankComparison, &'a RunSummary),
    /// Most physical memory held by the rank that holds least, in bytes.
    pub least_bytes: Bytes,
    /// Ranks in which memory ran out.
    pub oom_ranks: u64,
}

impl RankComparison {
    /// The rank without what only its own plots and tables show.
    pub fn new(rank: Option<u64>, mut comparison: Comparison) -> Self {
        for run in &mut comparison.runs {
            run.timeline = crate::run::Timeline::default();
            run.steps = Vec::new();
        }
        Self { rank, comparison }
    }
}

impl JobComparison {
    /// What a rank held at most, as a reader may take it for the job.
    pub fn bounded(&self, run: &RunSummary) -> Bounded {
        let certainty = run.certainty.max(self.coverage.of_what_was_seen());
        Bounded { certainty, ..run.reserved() }
    }

    /// Labels of the rows that the ranks have, in the order of the first rank that has them: not every file tells
    /// what was
    /// recorded.
    pub fn labels(&self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for run in self.ranks.iter().flat_map(|rank| &rank.comparison.runs) {
            if !labels.contains(&run.label()) {
                labels.push(run.label());
            }
        }
        labels
    }

    /// Finds the cards on which every rank runs from those of each rank; `most`: at most so many, in either.
    pub fn join_cards(&mut self, most: usize) {
        let comparisons = || self.ranks.iter().map(|rank| &rank.comparison);
        let mut joint: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (comparison, (&place, cards)) in
            comparisons().flat_map(|c| c.cards.iter().map(move |of| (c, of)))
        {
            let label = comparison.runs[place].label();
            joint.entry(label).or_insert_with(|| cards.clone()).retain(|card| cards.contains(card));
        }
        self.cards = joint;
        let of_ranks = self.ranks.iter_mut().flat_map(|rank| rank.comparison.cards.values_mut());
        self.cards.values_mut().chain(of_ranks).for_each(|cards| cards.truncate(most));
    }

    /// What the allocator of this label does over all ranks; `None` if no rank has it.
    pub fn spread(&self, label: &str) -> Option<Spread<'_>> {
        let of = |rank: &RankComparison| {
            rank.comparison.runs.iter().position(|run| run.label() == label)
        };
        let runs = || self.ranks.iter().filter_map(|r| Some((r, &r.comparison.runs[of(r)?])));
        let first = runs().next()?;
        let worst = runs().fold(first, |worst, next| {
            if next.1.reserved_peak_bytes > worst.1.reserved_peak_bytes { next } else { worst }
        });
        let least_bytes = runs().map(|(_, run)| run.reserved_peak_bytes).min()?;
        let oom_ranks = runs().filter(|(_, run)| run.oom_count > 0).count() as u64;
        Some(Spread { worst, least_bytes, oom_ranks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(number: u64, reserved: Bytes, ooms: u64) -> RankComparison {
        let run = RunSummary {
            allocator: "caching".to_owned(),
            reserved_peak_bytes: reserved,
            oom_count: ooms,
            ..RunSummary::default()
        };
        let comparison = Comparison { runs: vec![run], ..Comparison::default() };
        RankComparison::new(Some(number), comparison)
    }

    #[test]
    fn a_card_runs_a_job_only_if_it_runs_every_rank() {
        let with = |number, cards: &[&str]| {
            let mut rank = rank(number, 5, 0);
            let cards = cards.iter().map(|&card| card.to_owned()).collect();
            rank.comparison.cards = BTreeMap::from([(0, cards)]);
            rank
        };
        // More memory does not always help.
        let ranks = vec![with(0, &["small", "middle", "large"]), with(1, &["small", "large"])];
        let ranks = [ranks, vec![with(2, &["middle", "large"])]].concat();
        let mut job = JobComparison { ranks, ..JobComparison::default() };
        job.join_cards(1);
        assert_eq!(job.cards["caching"], ["large"]);
        let first = job.ranks.iter().map(|rank| &rank.comparison.cards[&0][..]);
        assert_eq!(first.collect::<Vec<_>>(), [["small"], ["small"], ["middle"]]);
    }

    #[test]
    fn the_worst_rank_and_the_spread_are_found() {
        let ranks = vec![rank(0, 5, 0), rank(1, 9, 1), rank(2, 9, 0), rank(3, 7, 2)];
        let job = JobComparison { ranks, ..JobComparison::default() };
        assert_eq!(job.labels(), ["caching"]);
        let spread = job.spread("caching").unwrap();
        assert_eq!(spread.worst.0.rank, Some(1));
        assert_eq!((spread.least_bytes, spread.oom_ranks), (5, 2));
        assert!(job.spread("native").is_none());
    }
}
