//! Peers: the ranks of one job, and those among them that are unlike the others.
//!
//! A rank is unlike its peers if it holds more or less than their median by a twentieth, and by six times as much as
//! the median rank does. The reasons are what else it differs in: settings, tensors, what is lost, requests.

use super::data::UnlikeRank;
use super::reading::Record;
use crate::trace::CoverageKind;
use crate::units::{Bytes, Size};

/// Ranks that a job must have, so that one can be unlike the others.
const LEAST_RANKS: usize = 4;
/// A difference that matters, as a share of the median.
const MATTERS: f64 = 0.05;
/// A difference that is out of the ordinary, in median distances from the median.
const ORDINARY: f64 = 6.0;

/// What is known of a rank apart from its runs.
#[derive(Debug, Clone, Default)]
pub(super) struct RankFacts {
    pub(super) rank: Option<u64>,
    pub(super) file: String,
    events: u64,
    /// Most bytes requested at any time.
    pub(super) requested: Bytes,
    settings: String,
    /// Memory that PyTorch ran within, if it ran short.
    pub(super) memory: Option<Bytes>,
    /// Whether the recording shows the whole job.
    pub(super) is_complete: bool,
}

impl RankFacts {
    /// The facts of a row of the table `ranks`.
    pub(super) fn of(record: &Record) -> Self {
        Self {
            rank: record.some_whole("rank"),
            file: record.text("file"),
            events: record.whole("events"),
            requested: record.whole("requested_peak_bytes"),
            settings: record.text("settings"),
            memory: record.some_whole("device_memory_bytes"),
            is_complete: record.text("coverage") == CoverageKind::Complete.name(),
        }
    }
}

/// The ranks of a job that are unlike the others; of each its facts, and what it reserves and uses under the reference.
pub(super) fn unlike(ranks: &[(&RankFacts, Bytes, Bytes)]) -> Vec<UnlikeRank> {
    if ranks.len() < LEAST_RANKS {
        return Vec::new();
    }
    let middle = median(ranks.iter().map(|&(_, reserved, _)| reserved));
    let spread = median(ranks.iter().map(|&(_, reserved, _)| reserved.abs_diff(middle)));
    let far = (MATTERS * middle as f64).max(ORDINARY * spread as f64);
    let usual = Usual {
        requested: median(ranks.iter().map(|(facts, _, _)| facts.requested)),
        events: median(ranks.iter().map(|(facts, _, _)| facts.events)),
        lost: median(ranks.iter().map(|&(_, reserved, active)| reserved.saturating_sub(active))),
        settings: most_frequent(ranks.iter().map(|(facts, _, _)| facts.settings.as_str())),
    };
    let is_far =
        |&&(_, reserved, _): &&(&RankFacts, Bytes, Bytes)| reserved.abs_diff(middle) as f64 > far;
    let named = |&(facts, reserved, active): &(&RankFacts, Bytes, Bytes)| UnlikeRank {
        rank: facts.rank,
        file: facts.file.clone(),
        reserved_bytes: reserved,
        median_bytes: middle,
        reason: usual.reason(facts, reserved, reserved.saturating_sub(active)),
        ..UnlikeRank::default()
    };
    ranks.iter().filter(is_far).map(named).collect()
}

/// What is usual in a job.
struct Usual<'a> {
    requested: Bytes,
    events: u64,
    lost: Bytes,
    settings: &'a str,
}

impl Usual<'_> {
    /// In what a rank differs, as a list.
    fn reason(&self, facts: &RankFacts, reserved: Bytes, lost: Bytes) -> String {
        let mut parts = Vec::new();
        if !facts.is_complete {
            parts.push("not recorded completely".to_owned());
        }
        if facts.settings != self.settings {
            let settings = if facts.settings.is_empty() { "none" } else { &facts.settings };
            parts.push(format!("other allocator settings ({settings})"));
        }
        if differs(facts.requested, self.requested) {
            parts.push(format!("{} in tensors", distance(facts.requested, self.requested)));
        }
        if lost.abs_diff(self.lost) as f64 > MATTERS / 2.0 * reserved as f64 {
            parts.push(format!("{} lost and cached", distance(lost, self.lost)));
        }
        if differs(facts.events, self.events) {
            parts.push(format!("{} requests and frees", share(facts.events, self.events)));
        }
        parts.join(", ")
    }
}

fn differs(one: u64, usual: u64) -> bool {
    one.abs_diff(usual) as f64 > MATTERS / 2.0 * usual as f64
}

/// `1.50 GiB more`, `1.50 GiB less`.
fn distance(one: Bytes, usual: Bytes) -> String {
    let word = if one > usual { "more" } else { "less" };
    format!("{} {word}", Size(one.abs_diff(usual)))
}

/// `12 % more`.
fn share(one: u64, usual: u64) -> String {
    let word = if one > usual { "more" } else { "fewer" };
    format!("{:.0} % {word}", 100.0 * one.abs_diff(usual) as f64 / usual.max(1) as f64)
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    let middle = values.len() / 2;
    match values.is_empty() {
        true => 0,
        false => *values.select_nth_unstable(middle).1,
    }
}

fn most_frequent<'a>(values: impl Iterator<Item = &'a str>) -> &'a str {
    let mut values: Vec<&str> = values.collect();
    values.sort_unstable();
    let groups = values.chunk_by(|one, other| one == other);
    groups.max_by_key(|group| group.len()).map_or("", |group| group[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GIB;

    fn facts(rank: u64) -> RankFacts {
        RankFacts {
            rank: Some(rank),
            events: 1000,
            requested: 10 * GIB,
            is_complete: true,
            ..RankFacts::default()
        }
    }

    fn found(odd: RankFacts, reserved: Bytes, active: Bytes) -> Vec<String> {
        let usual: Vec<RankFacts> = (0..7).map(facts).collect();
        let mut ranks: Vec<_> = usual.iter().map(|facts| (facts, 12 * GIB, 10 * GIB)).collect();
        ranks.push((&odd, reserved, active));
        unlike(&ranks).into_iter().map(|rank| rank.reason).collect()
    }

    #[test]
    fn a_rank_unlike_its_peers_is_named_with_the_reason() {
        assert!(found(facts(7), 12 * GIB + GIB / 4, 10 * GIB).is_empty(), "a little more");
        let more = found(RankFacts { requested: 13 * GIB, ..facts(7) }, 15 * GIB, 13 * GIB);
        assert_eq!(more, ["3 GiB more in tensors"]);
        let lost = found(facts(7), 16 * GIB, 10 * GIB);
        assert_eq!(lost, ["4 GiB more lost and cached"]);
        let fewer = found(RankFacts { events: 500, ..facts(7) }, 9 * GIB, 9 * GIB);
        assert_eq!(fewer, ["2 GiB less lost and cached, 50 % fewer requests and frees"]);
        let cut = found(RankFacts { is_complete: false, ..facts(7) }, 6 * GIB, 4 * GIB);
        assert_eq!(cut, ["not recorded completely"]);
        let settings = RankFacts { settings: "expandable_segments:True".to_owned(), ..facts(7) };
        let other = found(settings, 10 * GIB, 10 * GIB);
        let settings = "other allocator settings (expandable_segments:True)";
        assert_eq!(other, [format!("{settings}, 2 GiB less lost and cached")]);
    }

    #[test]
    fn ranks_that_differ_all_over_are_nothing_special() {
        let facts: Vec<RankFacts> = (0..9).map(facts).collect();
        let ranks: Vec<_> =
            facts.iter().enumerate().map(|(n, f)| (f, (10 + n as u64) * GIB, 10 * GIB)).collect();
        assert!(unlike(&ranks).is_empty());
        assert!(unlike(&ranks[..2]).is_empty());
    }
}
