//! The summary: a fleet's tables read again, one job in memory at a time.
//!
//! A job of a date is a group of ranks, which are peers: they should hold about the same. One that does not is named,
//! with what else it differs in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::data::{CardCount, FleetJob, FleetSummary, FleetTotal, JobPeak, Problem, UnlikeRank};
use super::peers::{RankFacts, unlike};
use super::reading::{self, Record};
use super::store::Store;
use crate::input_error::InputError;
use crate::run::RECORDED;
use crate::units::Bytes;
use gmlake_core::cards::Target;
use gmlake_core::devices::Devices;

/// Jobs that are named, and ranks unlike their peers.
const NAMED: usize = 20;
/// Kinds of problems that are counted.
const PROBLEMS: usize = 1000;

/// The runs of one rank: allocators with what they hold.
#[derive(Debug, Clone, Default)]
struct Rank {
    facts: RankFacts,
    runs: Vec<Run>,
}

#[derive(Debug, Clone, Default)]
struct Run {
    label: usize,
    /// Memory of the device, where it had a limit.
    memory: Option<Bytes>,
    reserved: Bytes,
    active: Bytes,
    ooms: u64,
    retries: u64,
    driver_ns: Option<u64>,
}

/// Reads the tables in `folder`. `cards` are those that jobs are to fit on; `reference` is the allocator that the
/// others are compared with, by default the recording, or the first of the fleet.
///
/// # Errors
/// If the folder holds no fleet, or a table is damaged.
pub fn summarize(
    folder: &Path,
    cards: &Devices,
    reference: Option<&str>,
) -> Result<FleetSummary, InputError> {
    let store = Store::existing(folder)?;
    let mut summary = Summary::new(cards, reference.or(recorded(&store)?));
    let parts = store.parts("ranks")?;
    let unusable = summary.read_errors(&store)?;
    for group in parts.chunk_by(|one, other| place(one) == place(other)) {
        let mut ranks = Vec::new();
        for part in group {
            ranks.extend(summary.ranks(&store, part)?);
        }
        let place = place(&group[0]);
        summary.add_job(place, &ranks, unusable.get(place).map_or(&[], Vec::as_slice));
    }
    Ok(summary.finish())
}

/// The folders of a part: those of its job and its date.
fn place(part: &str) -> &str {
    part.rsplit_once('/').map_or(part, |(place, _)| place)
}

/// The name of what PyTorch did, if any recording says so.
fn recorded(store: &Store) -> Result<Option<&'static str>, InputError> {
    for part in store.parts("runs")? {
        if read(store, "runs", &part)?.iter().any(is_recorded) {
            return Ok(Some(RECORDED));
        }
    }
    Ok(None)
}

fn is_recorded(run: &Record) -> bool {
    run.text("allocator") == RECORDED
}

/// A recording that has a problem.
struct Unusable {
    file: String,
    rank: Option<u64>,
}

/// Ranks of a job without results: files of which no device could be read, and numbers that no file has.
fn missing(ranks: &[Rank], unusable: &[Unusable]) -> u64 {
    let read: BTreeSet<&str> = ranks.iter().map(|rank| rank.facts.file.as_str()).collect();
    let unread = || unusable.iter().filter(|other| !read.contains(other.file.as_str()));
    let numbers = ranks.iter().filter_map(|rank| rank.facts.rank);
    let numbers: BTreeSet<u64> = numbers.chain(unread().filter_map(|other| other.rank)).collect();
    let last = numbers.last().copied().filter(|_| numbers.len() > 1);
    let without_file = last.map_or(0, |last| last + 1 - numbers.len() as u64);
    unread().count() as u64 + without_file
}

/// A summary of the jobs that were read so far.
struct Summary {
    /// The smallest first.
    cards: Devices,
    /// What jobs of so many ranks may hold on each.
    targets: BTreeMap<usize, Vec<Target>>,
    reference: Option<String>,
    /// Each allocator; until the end, it counts every card, and what fits on none.
    totals: Vec<FleetTotal>,
    found: FleetSummary,
    problems: BTreeMap<String, (u64, String)>,
}

impl Summary {
    fn new(cards: &Devices, reference: Option<&str>) -> Self {
        let mut cards = cards.clone();
        cards.cards.sort_by_key(|card| card.usable_bytes);
        Self {
            cards,
            targets: BTreeMap::new(),
            reference: reference.map(str::to_owned),
            totals: Vec::new(),
            found: FleetSummary::default(),
            problems: BTreeMap::new(),
        }
    }

    /// The ranks of one part, each with its runs.
    fn ranks(&mut self, store: &Store, part: &str) -> Result<Vec<Rank>, InputError> {
        let mut ranks: Vec<Rank> = Vec::new();
        let mut known: BTreeMap<(String, u64), usize> = BTreeMap::new();
        for record in read(store, "ranks", part)? {
            self.found.events += record.whole("events");
            known.insert((record.text("file"), record.whole("device")), ranks.len());
            ranks.push(Rank { facts: RankFacts::of(&record), runs: Vec::new() });
        }
        for record in read(store, "runs", part)? {
            let key = (record.text("file"), record.whole("device"));
            let Some(&index) = known.get(&key) else { continue };
            let label = self.label(&record);
            let recorded_within = || ranks[index].facts.memory.filter(|_| is_recorded(&record));
            let memory = record.some_whole("device_memory_bytes").or_else(recorded_within);
            ranks[index].runs.push(Run {
                label,
                memory,
                reserved: record.whole("reserved_peak_bytes"),
                active: record.whole("active_peak_bytes"),
                ooms: record.whole("oom_count"),
                retries: record.whole("alloc_retries"),
                driver_ns: record.some_whole("predicted_driver_ns"),
            });
        }
        Ok(ranks)
    }

    /// The number of an allocator with its setting.
    fn label(&mut self, record: &Record) -> usize {
        let (allocator, settings) = (record.text("allocator"), record.text("settings"));
        let label = if settings.is_empty() { allocator } else { format!("{allocator} {settings}") };
        let known = self.totals.iter().position(|total| total.allocator == label);
        known.unwrap_or_else(|| {
            let cards = self.cards.cards.iter().map(|card| Some(card.name.clone())).chain([None]);
            let enough_cards = cards.map(|card| CardCount { card, count: 0 }).collect();
            let total = FleetTotal { allocator: label, enough_cards, ..FleetTotal::default() };
            self.totals.push(total);
            self.totals.len() - 1
        })
    }

    /// The allocator that others are compared with: as asked, else the recording, else the first. `None`: no job so
    /// far has it.
    fn reference(&self) -> Option<usize> {
        match &self.reference {
            Some(wanted) => self.totals.iter().position(|total| total.allocator == *wanted),
            None => (!self.totals.is_empty()).then_some(0),
        }
    }

    /// Counts a job, unless none of its recordings can be used.
    fn add_job(&mut self, place: &str, ranks: &[Rank], unusable: &[Unusable]) {
        if ranks.is_empty() {
            return;
        }
        let (job, date) = names(place);
        self.found.jobs += 1;
        self.found.ranks += ranks.len() as u64;
        let incomplete = ranks.iter().filter(|rank| !rank.facts.is_complete).count() as u64;
        self.found.incomplete_ranks += incomplete;
        let missing = missing(ranks, unusable);
        self.found.missing_ranks += missing;
        let reference = self.reference();
        for rank in ranks {
            self.add_rank(rank, reference);
        }
        for label in 0..self.totals.len() {
            self.count_cards(label, ranks, incomplete + missing == 0);
        }
        let peaks = (0..self.totals.len()).filter_map(|label| self.peak(ranks, label)).collect();
        let lost = |run: &Run| run.reserved.saturating_sub(run.active);
        let runs = ranks.iter().filter_map(|rank| rank.run(reference?));
        let lost_bytes = runs.map(lost).reduce(|sum, lost| sum + lost);
        if let Some(reference) = reference {
            self.name_unlike(&job, &date, ranks, reference);
        }
        self.found.worst_jobs.push(FleetJob {
            job,
            date,
            ranks: ranks.len() as u64,
            is_lower_bound: incomplete + missing > 0,
            incomplete_ranks: incomplete,
            missing_ranks: missing,
            lost_bytes,
            peaks,
        });
        self.trim(8 * NAMED);
    }

    /// Takes note of ranks that hold another amount than their peers.
    fn name_unlike(&mut self, job: &str, date: &str, ranks: &[Rank], reference: usize) {
        let held: Vec<(&RankFacts, Bytes, Bytes)> = ranks
            .iter()
            .filter_map(|rank| {
                rank.run(reference).map(|run| (&rank.facts, run.reserved, run.active))
            })
            .collect();
        for found in unlike(&held) {
            self.found.unlike_ranks += 1;
            let (job, date) = (job.to_owned(), date.to_owned());
            self.found.unlike.push(UnlikeRank { job, date, ..found });
        }
    }

    fn add_rank(&mut self, rank: &Rank, reference: Option<usize>) {
        let reference = reference.and_then(|label| rank.run(label));
        for run in &rank.runs {
            let total = &mut self.totals[run.label];
            total.ranks += 1;
            total.reserved_bytes += run.reserved;
            total.active_bytes += run.active;
            total.oom_ranks += u64::from(run.ooms > 0);
            total.alloc_retries += run.retries;
            if rank.facts.is_complete && run.ooms == 0 {
                total.sizes.add(run.reserved);
            }
            if let Some(reference) = reference.filter(|reference| reference.is_like(run)) {
                total.compared_ranks += 1;
                total.reference_bytes += reference.reserved;
                total.compared_bytes += run.reserved;
            }
            if let Some(time) = run.driver_ns {
                *total.predicted_driver_ns.get_or_insert(0) += time;
            }
        }
    }

    /// What a job needs under an allocator, if any of its ranks ran under it.
    fn peak(&self, ranks: &[Rank], label: usize) -> Option<JobPeak> {
        let runs = || ranks.iter().filter_map(|rank| Some((rank, rank.run(label)?)));
        // Of equals the first.
        let (rank, worst) = runs().min_by_key(|(_, run)| std::cmp::Reverse(run.reserved))?;
        Some(JobPeak {
            allocator: self.totals[label].allocator.clone(),
            worst_rank: rank.facts.rank,
            worst_bytes: worst.reserved,
            least_bytes: runs().map(|(_, run)| run.reserved).min()?,
            oom_ranks: runs().filter(|(_, run)| run.ooms > 0).count() as u64,
        })
    }

    /// All ranks of a job need cards that are enough for the worst one. What it held is enough. A smaller card may be,
    /// where the allocator gives back what it caches, so that no card is known not to be enough but one that has less
    /// than was requested at once.
    fn count_cards(&mut self, label: usize, ranks: &[Rank], is_whole: bool) {
        let runs = || ranks.iter().filter_map(|rank| rank.run(label));
        let count = runs().count() as u64;
        let targets = self.targets.entry(ranks.len());
        let targets = targets.or_insert_with(|| self.cards.for_ranks(ranks.len()));
        let smallest = |bytes: Bytes| {
            let enough = (0..targets.len()).filter(|&card| targets[card].capacity_bytes >= bytes);
            enough.min_by_key(|&card| targets[card].capacity_bytes)
        };
        let is_known = is_whole && count == ranks.len() as u64;
        let enough = runs().map(Run::enough).max().unwrap_or(0);
        let requested = ranks.iter().map(|rank| rank.facts.requested).max().unwrap_or(0);
        let total = &mut self.totals[label];
        match (smallest(requested), smallest(enough)) {
            (None, _) => total.enough_cards[targets.len()].count += count,
            (_, Some(card)) if is_known => total.enough_cards[card].count += count,
            _ => total.unknown_cards += count,
        }
    }

    /// Keeps what will be named, of lists that are longer than `most`.
    fn trim(&mut self, most: usize) {
        if self.found.worst_jobs.len() > most {
            self.found.worst_jobs.sort_by_key(|job| std::cmp::Reverse(job.lost_bytes));
            self.found.worst_jobs.truncate(NAMED);
        }
        if self.found.unlike.len() > most {
            self.found.unlike.sort_by(farthest);
            self.found.unlike.truncate(NAMED);
        }
    }

    /// Counts the problems; the recordings that have one, by job and date.
    fn read_errors(
        &mut self,
        store: &Store,
    ) -> Result<BTreeMap<String, Vec<Unusable>>, InputError> {
        let mut found: BTreeMap<String, Vec<Unusable>> = BTreeMap::new();
        for part in store.parts("errors")? {
            let of_job = found.entry(place(&part).to_owned()).or_default();
            for record in read(store, "errors", &part)? {
                self.found.errors += 1;
                let (file, problem) = (record.text("file"), record.text("problem"));
                let text =
                    problem.strip_prefix(&format!("{file}: ")).unwrap_or(&problem).to_owned();
                of_job.push(Unusable { file: file.clone(), rank: record.some_whole("rank") });
                if self.problems.len() < PROBLEMS || self.problems.contains_key(&text) {
                    self.problems.entry(text).or_insert((0, file)).0 += 1;
                }
            }
        }
        Ok(found)
    }

    fn finish(mut self) -> FleetSummary {
        self.trim(0);
        let reference = self.reference();
        for total in &mut self.totals {
            total.enough_cards.retain(|card| card.count > 0);
        }
        if let Some(reference) = reference {
            let total = self.totals.remove(reference);
            self.found.reference = Some(total.allocator.clone());
            self.totals.insert(0, total);
            for job in &mut self.found.worst_jobs {
                job.peaks
                    .sort_by_key(|peak| Some(&peak.allocator) != self.found.reference.as_ref());
            }
        }
        let all = self.targets.values().flatten();
        self.found.least_reserve_bytes = all.map(|target| target.reserve_bytes).min().unwrap_or(0);
        let largest = self.targets.pop_last().map(|(_, targets)| targets);
        self.found.targets = largest.unwrap_or_else(|| self.cards.for_ranks(1));
        self.found.totals = self.totals;
        let problem = |(text, (count, example))| Problem { text, count, example };
        self.found.problems = self.problems.into_iter().map(problem).collect();
        self.found.problems.sort_by_key(|problem| std::cmp::Reverse(problem.count));
        self.found.problems.truncate(NAMED);
        self.found
    }
}

impl Rank {
    fn run(&self, label: usize) -> Option<&Run> {
        self.runs.iter().find(|run| run.label == label)
    }
}

impl Run {
    /// Memory that is known to be enough: what it held, or what it had where it ran short. None is known where that
    /// was too little.
    fn enough(&self) -> Bytes {
        match (self.ooms, self.retries) {
            (0, 0) => self.reserved,
            (0, _) => self.reserved.max(self.memory.unwrap_or(0)),
            _ => Bytes::MAX,
        }
    }

    /// Whether it left out as many requests as another, on a device that has room for what the other held: where
    /// memory is short, less is held, and that saves nothing.
    fn is_like(&self, other: &Self) -> bool {
        let has_room = |on: &Self, of: &Self| on.memory.is_none_or(|memory| memory >= of.reserved);
        self.ooms == other.ooms && has_room(self, other) && has_room(other, self)
    }
}

fn farthest(one: &UnlikeRank, other: &UnlikeRank) -> std::cmp::Ordering {
    let distance = |rank: &UnlikeRank| {
        rank.reserved_bytes.abs_diff(rank.median_bytes) as f64 / rank.median_bytes.max(1) as f64
    };
    distance(other).total_cmp(&distance(one))
}

fn read(store: &Store, table: &str, part: &str) -> Result<Vec<Record>, InputError> {
    Ok(reading::read(&store.path(&format!("{table}/{part}")))?.1)
}

/// Job and date of `job=.../date=...`.
fn names(place: &str) -> (String, String) {
    let (job, date) = place.split_once('/').unwrap_or((place, ""));
    let plain = |text: &str, prefix: &str| unescaped(text.strip_prefix(prefix).unwrap_or(text));
    (plain(job, "job="), plain(date, "date="))
}

/// What [`super::layout`] has escaped.
fn unescaped(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut plain = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let code = name.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}
