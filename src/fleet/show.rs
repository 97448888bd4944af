//! A fleet as tables: what all ranks hold, the cards that the jobs need, the jobs that lose most, ranks unlike their
//! peers.

use super::data::{CardCount, FleetJob, FleetSummary, FleetTotal, JobPeak};
use crate::allocator::{Role, find};
use crate::plan::show::reserve;
use crate::report::section::Section;
use crate::run::RECORDED;
use crate::trace::{Bounded, Certainty};
use crate::units::{Bytes, Count, Grouped, Nanos, Size, grouped};

/// Everything that is shown of a fleet.
pub fn sections(fleet: &FleetSummary) -> Vec<Section> {
    let mut sections = vec![Section::words(headline(fleet))];
    if fleet.totals.is_empty() {
        sections.extend(problems(fleet));
        return sections;
    }
    sections.push(totals(fleet));
    sections.push(cards(fleet));
    sections.push(jobs(fleet));
    sections.extend(unlike(fleet));
    sections.extend(problems(fleet));
    sections
}

/// The fleet in a few sentences, the answer first.
pub fn headline(fleet: &FleetSummary) -> String {
    clauses(fleet).join(" ")
}

/// The sentences: what would help, what a setting alone would do, what the fleet is, how far that is known.
pub(crate) fn clauses(fleet: &FleetSummary) -> Vec<String> {
    let (ranks, jobs) = (Count(fleet.ranks, "rank"), Count(fleet.jobs, "job"));
    let what = format!("{ranks} in {jobs}, {} requests and frees", Grouped(fleet.events));
    let Some(reference) = fleet.totals.first() else { return vec![format!("{what}.")] };
    let best = best(fleet, reference);
    let mut clauses = vec![answer(fleet, reference, best)];
    let is_setting = |total: &&FleetTotal| total.allocator == "expandable";
    let setting = fleet.totals[1..].iter().find(is_setting);
    if let Some(setting) =
        setting.filter(|total| Some(&total.allocator) != best.map(|best| &best.allocator))
        && saves(setting, reference)
    {
        let (held, share) = (held(fleet, setting, setting.compared_bytes), setting.saved_share());
        let on = compared(setting);
        let setting = "With expandable_segments:True, one setting";
        clauses.push(format!("{setting}{on}: {held} ({share:.1} % less)."));
    }
    let used = 100.0 * reference.utilization();
    clauses.push(format!("{what}. Of the reserved memory {used:.1} % is in use at the peaks."));
    clauses.extend(caution(fleet));
    clauses.extend(missing(fleet));
    clauses
}

fn answer(fleet: &FleetSummary, reference: &FleetTotal, best: Option<&FleetTotal>) -> String {
    let owner = match reference.allocator.as_str() {
        RECORDED => "PyTorch reserved".to_owned(),
        name => format!("{name} reserves"),
    };
    let Some(best) = best else {
        let held = held(fleet, reference, reference.reserved_bytes);
        let others = no_better(fleet, reference).unwrap_or_default();
        return format!("{owner} {held} at the peaks of all ranks{others}.");
    };
    let less = held(fleet, best, best.compared_bytes);
    let more = held(fleet, reference, best.reference_bytes);
    let (on, share) = (compared(best), best.saved_share());
    format!("{} would hold {less} where {owner} {more}{on}: {share:.1} % less.", best.allocator)
}

/// Names that a sentence has room for.
const NAMES: usize = 4;

/// The allocators that were compared with the reference and do not need less.
fn no_better(fleet: &FleetSummary, reference: &FleetTotal) -> Option<String> {
    let others = candidates(fleet, reference).filter(|total| total.compared_ranks > 0);
    let others: Vec<&FleetTotal> = others.filter(|total| total.saved() <= 0.0).collect();
    let is_on_all = others.iter().all(|total| total.compared_ranks == total.ranks);
    let on = if is_on_all { "" } else { " on the ranks that can be compared" };
    let names: Vec<&str> = others.iter().map(|total| total.allocator.as_str()).collect();
    match names[..] {
        [] => None,
        [one] => Some(format!("; {one} needs no less{on}")),
        _ if names.len() <= NAMES => Some(format!("; none of {} needs less{on}", names.join(", "))),
        _ => Some(format!("; none of {} others needs less{on}", names.len())),
    }
}

/// On which ranks it is compared with the reference, unless it is on all of them.
fn compared(total: &FleetTotal) -> String {
    match total.compared_ranks {
        ranks if ranks == total.ranks => String::new(),
        ranks => format!(" on the {} that can be compared", Count(ranks, "rank")),
    }
}

/// The allocator that saves most, and serves all that the reference serves.
fn best<'a>(fleet: &'a FleetSummary, reference: &FleetTotal) -> Option<&'a FleetTotal> {
    let serving = candidates(fleet, reference).filter(|total| saves(total, reference));
    serving.max_by(|a, b| a.saved().total_cmp(&b.saved()))
}

/// What one could choose in place of the reference. PyTorch's allocator is no other than what was recorded.
fn candidates<'a>(
    fleet: &'a FleetSummary,
    reference: &FleetTotal,
) -> impl Iterator<Item = &'a FleetTotal> {
    let is_recorded = reference.allocator == RECORDED;
    let is_choice = |total: &FleetTotal| role(&total.allocator).is_some_and(Role::is_choice);
    let others = fleet.totals[1..].iter().filter(move |total| is_choice(total));
    others.filter(move |total| !is_recorded || total.allocator != "caching" || total.saved() > 0.0)
}

fn saves(total: &FleetTotal, reference: &FleetTotal) -> bool {
    total.oom_ranks <= reference.oom_ranks && total.saved() > 0.0
}

/// What ranks hold under an allocator, summed, in a sentence.
fn held(fleet: &FleetSummary, total: &FleetTotal, bytes: Bytes) -> String {
    let certainty = certainty(fleet.incomplete_ranks, fleet.missing_ranks, &total.allocator);
    format!("{}{}", certainty.words(), Size(bytes))
}

/// What the allocator of a label is; `None` of the recording.
fn role(label: &str) -> Option<Role> {
    find(label.split(' ').next()?).map(|spec| spec.role)
}

/// How a figure under an allocator, named by its label, stands to the jobs'. Tables do not tell whether it is the
/// beginning that an incomplete recording lacks.
fn certainty(incomplete: u64, missing: u64, label: &str) -> Certainty {
    match incomplete {
        0 if missing == 0 => Certainty::Exact,
        0 => Certainty::AtLeast,
        _ if label == RECORDED || role(label) == Some(Role::Bound) => Certainty::AtLeast,
        _ => Certainty::About,
    }
}

/// What the recordings do not show.
fn caution(fleet: &FleetSummary) -> Option<String> {
    let (incomplete, ranks) = (fleet.incomplete_ranks, fleet.ranks);
    let (what, whose) = match incomplete {
        0 => return None,
        1 => ("was", "its job needs"),
        _ => ("were", "their jobs need"),
    };
    let of = format!("{} of {}", Grouped(incomplete), Count(ranks, "rank"));
    Some(format!(
        "{of} {what} not recorded completely: what {whose} is at least (>=) or about (~) what is shown, and the card \
         is unknown."
    ))
}

/// The ranks that no recording shows.
fn missing(fleet: &FleetSummary) -> Option<String> {
    let (verb, whose) = match fleet.missing_ranks {
        0 => return None,
        1 => ("has", "its job needs"),
        _ => ("have", "their jobs need"),
    };
    let ranks = Count(fleet.missing_ranks, "rank");
    Some(format!(
        "{ranks} {verb} no recording that can be read: what {whose} is at least what is shown, and the card is unknown."
    ))
}

fn totals(fleet: &FleetSummary) -> Section {
    let has_time = fleet.totals.iter().any(|total| total.predicted_driver_ns.is_some());
    let mut heading = vec!["allocator", "reserved, sum", "utilization", "saved", "saved %"];
    heading.extend(["ranks", "ranks with OOM", "retries"]);
    if has_time {
        heading.push("driver time");
    }
    let row = |total: &FleetTotal| {
        let certainty = certainty(fleet.incomplete_ranks, fleet.missing_ranks, &total.allocator);
        let mut cells = vec![
            total.allocator.clone(),
            Bounded { bytes: total.reserved_bytes, certainty }.to_string(),
            format!("{:.1} %", 100.0 * total.utilization()),
        ];
        cells.extend(saved(total));
        cells.extend([total.ranks, total.oom_ranks, total.alloc_retries].map(grouped));
        if has_time {
            let time = total.predicted_driver_ns.map(|ns| Nanos(ns as f64).to_string());
            cells.push(time.unwrap_or_else(|| "-".to_owned()));
        }
        cells
    };
    let rows = fleet.totals.iter().map(row).collect();
    let is_partial = fleet.totals.iter().any(|total| total.compared_ranks < total.ranks);
    let note = match is_partial {
        true => {
            "; saved: on ranks that serve the same requests, where the device has room for either peak"
        }
        false => "",
    };
    Section::new(format!("What all ranks hold at their peaks{note}"), &heading, rows)
}

/// What it saves, in bytes and in percent; nothing where no rank can be compared.
fn saved(total: &FleetTotal) -> [String; 2] {
    if total.compared_ranks == 0 {
        return ["-", "-"].map(str::to_owned);
    }
    let saved = total.saved();
    let sign = if saved < 0.0 { "-" } else { "" };
    [format!("{sign}{}", Size(saved.abs() as u64)), format!("{:.1} %", total.saved_share())]
}

fn cards(fleet: &FleetSummary) -> Section {
    let is_needed = |name: Option<&str>| {
        let mut counts = fleet.totals.iter().flat_map(|total| &total.enough_cards);
        counts.any(|count| count.card.as_deref() == name)
    };
    let names = fleet.targets.iter().map(|target| Some(target.name.as_str())).chain([None]);
    let names: Vec<Option<&str>> = names.filter(|name| is_needed(*name)).collect();
    let mut heading = vec!["allocator"];
    heading.extend(names.iter().map(|name| name.unwrap_or("none of them")));
    let is_unknown = fleet.totals.iter().any(|total| total.unknown_cards > 0);
    if is_unknown {
        heading.push("unknown");
    }
    let row = |total: &FleetTotal| {
        let count = |name: &Option<&str>| {
            let is_it = |count: &&CardCount| count.card.as_deref() == *name;
            grouped(total.enough_cards.iter().find(is_it).map_or(0, |count| count.count))
        };
        let unknown = is_unknown.then(|| grouped(total.unknown_cards));
        let counts = names.iter().map(count).chain(unknown);
        [total.allocator.clone()].into_iter().chain(counts).collect()
    };
    let rows = fleet.totals.iter().map(row).collect();
    let mut title =
        "Cards that are enough for the jobs: the smallest that hold the peak of their worst \
                     rank; a smaller one may do, which 'gmlake-sim plan' finds out"
            .to_owned();
    let reserves = fleet.targets.iter().map(|target| target.reserve_bytes);
    title += &reserve(reserves.chain([fleet.least_reserve_bytes]));
    if names.contains(&None) {
        title += "; none of them: more was requested at once than any has";
    }
    if is_unknown {
        title += "; unknown: a rank of the job was not recorded completely or not at all, ran out \
                  of memory or held more than any card has";
    }
    Section::new(title, &heading, rows)
}

fn jobs(fleet: &FleetSummary) -> Section {
    let shown = fleet.worst_jobs.len();
    let title = match fleet.jobs as usize > shown {
        true => {
            let shown = Count(shown as u64, "job");
            format!("The {shown} that lose most: for each allocator what the worst rank holds")
        }
        false => "The jobs: for each allocator what the worst rank holds".to_owned(),
    };
    let mut heading = vec!["job", "date", "ranks", "lost, sum", "worst rank"];
    heading.extend(fleet.totals.iter().map(|total| total.allocator.as_str()));
    let row = |job: &FleetJob| {
        let first = job.peaks.first().filter(|_| job.lost_bytes.is_some());
        let worst = first.and_then(|peak| peak.worst_rank);
        let mut cells = vec![
            job.job.clone(),
            job.date.clone(),
            grouped(job.ranks),
            job.lost_bytes.map_or_else(|| "-".to_owned(), |lost| Size(lost).to_string()),
            worst.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
        ];
        cells.extend(fleet.totals.iter().map(|total| {
            let is_it = |peak: &&JobPeak| peak.allocator == total.allocator;
            match job.peaks.iter().find(is_it) {
                None => "-".to_owned(),
                Some(peak) if peak.oom_ranks > 0 => format!("OOM in {}", peak.oom_ranks),
                Some(peak) => {
                    let (incomplete, missing) = (job.incomplete_ranks, job.missing_ranks);
                    let certainty = certainty(incomplete, missing, &total.allocator);
                    Bounded { bytes: peak.worst_bytes, certainty }.to_string()
                }
            }
        }));
        cells
    };
    Section::new(title, &heading, fleet.worst_jobs.iter().map(row).collect())
}

fn unlike(fleet: &FleetSummary) -> Option<Section> {
    let shown = fleet.unlike.len();
    if shown == 0 {
        return None;
    }
    let title = match fleet.unlike_ranks as usize > shown {
        true => {
            format!("Ranks unlike their peers: the {shown} farthest off of {}", fleet.unlike_ranks)
        }
        false => "Ranks unlike their peers".to_owned(),
    };
    let heading = ["job", "date", "rank", "holds", "median", "reason"];
    let rows = fleet.unlike.iter().map(|rank| {
        let number = rank.rank.map_or_else(|| rank.file.clone(), |number| number.to_string());
        let sizes = [rank.reserved_bytes, rank.median_bytes].map(|bytes| Size(bytes).to_string());
        let [held, median] = sizes;
        vec![rank.job.clone(), rank.date.clone(), number, held, median, rank.reason.clone()]
    });
    Some(Section::new(title, &heading, rows.collect()))
}

fn problems(fleet: &FleetSummary) -> Option<Section> {
    if fleet.problems.is_empty() {
        return None;
    }
    let title = format!("Problems with recordings: {} cannot be used", Grouped(fleet.errors));
    let rows = fleet
        .problems
        .iter()
        .map(|problem| vec![problem.text.clone(), grouped(problem.count), problem.example.clone()]);
    Some(Section::new(title, &["problem", "recordings", "one of them"], rows.collect()))
}
