//! Plans in words: what each allocator needs, on which cards it runs, and up to which batch size.

mod export;
mod series;

pub use export::{write_csv, write_json};
pub use series::series_section;

use super::fit::{FitVerdict, JobFit, RankFit};
use super::need::{JobPlan, Need, Plan, Shortage, Verdict};
use crate::report::section::Section;
use crate::sim::title_of;
use crate::trace::{Bounded, Certainty, Coverage};
use crate::units::{Bytes, Count, Grouped, Size, grouped};
use gmlake_core::cards::Target;

/// Rows of a table of ranks; the ranks that need most come first.
pub(crate) const MOST_RANKS: usize = 16;

/// All that is shown of a job: a headline, what the allocators need, the ranks if there are several, and the cards.
pub fn job_sections(job: &JobPlan) -> Vec<Section> {
    let Some(first) = job.ranks.first() else { return Vec::new() };
    let mut sections = vec![needs(job, first)];
    if job.ranks.len() > 1 {
        sections.push(ranks(job, first));
    }
    if !first.targets.is_empty() {
        if is_anything_known(job, first) {
            sections.push(targets(job, first));
        }
        sections.extend(verdict(job, first).map(Section::words));
    }
    sections
}

/// Whether there is a device of which more can be said than that the job might run there.
fn is_anything_known(job: &JobPlan, first: &Plan) -> bool {
    let fails = |index: usize, target: usize| {
        job.verdict(index, target).is_some_and(|(plan, verdict)| plan.excludes(&verdict))
    };
    let is_known = |target| (0..first.needs.len()).any(|index| fails(index, target));
    !job.coverage.is_partial() || (0..first.targets.len()).any(is_known)
}

/// One line that says whether a job fits, and by how much, or where it ends.
pub fn fit_line(name: &str, target: &Target, worst: &RankFit, fit: &JobFit) -> String {
    let (device, allocator) = (target.describe(), worst.allocator);
    let who = match (worst.rank, fit.ranks.len()) {
        (Some(rank), _) if fit.coverage.lacks_ranks() => format!("rank {rank} "),
        (Some(rank), ranks @ 2..) => format!("rank {rank} of {ranks} "),
        _ => String::new(),
    };
    let trial = &worst.trial;
    match trial.shortage {
        _ if fit.verdict() == Some(FitVerdict::Unknown) => {
            let doubt = doubt(worst, &fit.coverage);
            format!("unknown: {name} on {device} with {allocator}: {who}{doubt}")
        }
        Some(shortage) => format!(
            "does not fit: {name} on {device} with {allocator}: {who}runs out of memory in {}",
            place(shortage)
        ),
        None => format!(
            "fits: {name} on {device} with {allocator}: {who}holds at most {}, {} never used",
            Size(trial.reserved_peak_bytes),
            Size(trial.capacity_bytes.saturating_sub(trial.reserved_peak_bytes))
        ),
    }
}

/// What is known of the rank that decides whether a job fits that might, and why no more.
fn doubt(rank: &RankFit, coverage: &Coverage) -> String {
    let known = match rank.trial.shortage {
        None if !rank.coverage.is_partial() => {
            format!("holds at most {}", Size(rank.trial.reserved_peak_bytes))
        }
        None => {
            let bound = coverage.of_what_was_seen().max(rank.coverage.of_what_was_seen());
            format!("needs {}{}", bound.words(), Size(rank.least_bytes))
        }
        Some(shortage) => {
            format!(
                "runs out of memory in {}, if the job began as the simulation does",
                place(shortage)
            )
        }
    };
    format!("{known}; {} ({})", coverage.reason(), coverage.cure().unwrap_or_default())
}

/// A place in a trace, in words.
pub(crate) fn place(shortage: Shortage) -> String {
    let event = Grouped(shortage.event);
    match shortage.step {
        Some(step) => format!("step {step}, event {event}"),
        None => format!("event {event}"),
    }
}

fn needs(job: &JobPlan, first: &Plan) -> Section {
    let resolution = Size(first.resolution_bytes);
    let mut title = format!("{}: ", job.name);
    let events: u64 = job.ranks.iter().map(|plan| plan.events).sum();
    title += &match job.ranks.len() {
        1 => format!("{} in {}", Count(events, "event"), Count(first.steps, "step")),
        ranks => format!(
            "{}, {}; the rank that needs most",
            Count(ranks as u64, "rank"),
            Count(events, "event")
        ),
    };
    let most = |bytes: fn(&Plan) -> Bytes| job.ranks.iter().map(bytes).max().unwrap_or(0);
    let (live, least) = (most(|plan| plan.live_peak_bytes), most(|plan| plan.least_bytes));
    let certainty = job.coverage.of_what_was_seen();
    title += &format!("; {} live at the peak", Bounded { bytes: live, certainty });
    if least < live {
        title += &format!(" ({} without what only streams still use)", Size(least));
    }
    title += &format!("; the smallest device memory that runs it, to {resolution}");
    let mut heading = vec!["allocator", "smallest", "unlimited", "retries", "driver calls"];
    heading.push("with one step less");
    if job.ranks.len() > 1 {
        heading.splice(2..2, ["at rank", "spread"]);
    }
    let row = |index: usize| {
        let (plan, need) = job.worst(index)?;
        let mut row = need_row(job, plan, need);
        if job.ranks.len() > 1 {
            let spread = job.spread(index).map_or_else(dash, |spread| Size(spread).to_string());
            row.splice(2..2, [rank(plan), spread]);
        }
        Some(row)
    };
    Section::new(title, &heading, (0..first.needs.len()).filter_map(row).collect())
}

fn need_row(job: &JobPlan, plan: &Plan, need: &Need) -> Vec<String> {
    let bounded = |bytes| job.bounded(plan, need, bytes);
    let smallest = need.smallest;
    let of = |show: fn(u64) -> String, value: Option<u64>| value.map_or_else(dash, show);
    let below = need.below.and_then(|trial| trial.shortage);
    let is_real = |value: u64| Some(value).filter(|_| !need.is_bound());
    vec![
        need.label(),
        smallest_memory(need, bounded).unwrap_or_else(|| "none found".to_owned()),
        bounded(need.unlimited_bytes).to_string(),
        of(grouped, smallest.and_then(|trial| is_real(trial.alloc_retries))),
        of(grouped, smallest.and_then(|trial| is_real(trial.device_calls))),
        below.map_or_else(dash, |shortage| format!("OOM in {}", place(shortage))),
    ]
}

/// The smallest memory that runs a job, as it may be typed; a bound of it, if the recording is not the whole job.
fn smallest_memory(need: &Need, bounded: impl Fn(Bytes) -> Bounded) -> Option<String> {
    let Bounded { bytes, certainty } = bounded(need.smallest_bytes()?);
    let is_known = certainty == Certainty::Exact;
    let bytes = if is_known { Size::enough(bytes).0 } else { bytes };
    Some(Bounded { bytes, certainty }.to_string())
}

fn ranks(job: &JobPlan, first: &Plan) -> Section {
    let mut order: Vec<&Plan> = job.ranks.iter().collect();
    let worst =
        |plan: &&Plan| plan.needs.iter().filter_map(Need::smallest_bytes).max().unwrap_or(u64::MAX);
    order.sort_by_key(|plan| std::cmp::Reverse(worst(plan)));
    let hidden = order.len().saturating_sub(MOST_RANKS);
    let mut title = "The smallest device memory for each rank".to_owned();
    if hidden > 0 {
        title += &format!(
            "; the {MOST_RANKS} ranks that need most ({} more: --export-csv)",
            Grouped(hidden as u64)
        );
    }
    let labels: Vec<String> = first.needs.iter().map(Need::label).collect();
    let mut heading = vec!["rank"];
    heading.extend(labels.iter().map(String::as_str));
    let row = |plan: &&Plan| {
        let smallest = |need: &Need| {
            let bounded = |bytes| plan.bounded(need, bytes);
            smallest_memory(need, bounded).unwrap_or_else(dash)
        };
        [rank(plan)].into_iter().chain(plan.needs.iter().map(smallest)).collect()
    };
    Section::new(title, &heading, order.iter().take(MOST_RANKS).map(row).collect())
}

fn targets(job: &JobPlan, first: &Plan) -> Section {
    let mut title = "Memory to spare on each device; or OOM in step:event".to_owned();
    if job.ranks.len() > 1 {
        title += ", of the rank that fares worst";
    }
    title += &reserve(first.targets.iter().map(|target| target.reserve_bytes));
    by_device(title, first, |index, number| {
        let (plan, verdict) = job.verdict(index, number)?;
        Some(cell(job, plan, &verdict))
    })
}

/// A row for each device, with the cell of each allocator that is no bound, by the numbers of both.
fn by_device(
    title: String,
    first: &Plan,
    cell: impl Fn(usize, usize) -> Option<String>,
) -> Section {
    let shown = || first.needs.iter().enumerate().filter(|(_, need)| !need.is_bound());
    let labels: Vec<String> = shown().map(|(_, need)| need.label()).collect();
    let mut heading = vec!["device", "for the job"];
    heading.extend(labels.iter().map(String::as_str));
    let row = |(number, target): (usize, &Target)| {
        let mut row = vec![target.name.clone(), Size(target.capacity_bytes).to_string()];
        row.extend(shown().map(|(index, _)| cell(index, number).unwrap_or_else(dash)));
        row
    };
    Section::new(title, &heading, first.targets.iter().enumerate().map(row).collect())
}

/// What was taken off the cards before a job was put on them.
pub fn reserve(bytes: impl Iterator<Item = Bytes> + Clone) -> String {
    let bytes = bytes.filter(|&bytes| bytes > 0);
    let words = match (bytes.clone().min(), bytes.max()) {
        (Some(least), Some(most)) if least < most => format!("{} to {}", Size(least), Size(most)),
        (_, Some(bytes)) => Size(bytes).to_string(),
        (_, None) => return String::new(),
    };
    format!("; 'for the job' leaves {words} of each card to all but PyTorch (--reserve)")
}

fn cell(job: &JobPlan, plan: &Plan, verdict: &Verdict) -> String {
    match (verdict.trial.shortage, verdict.spare_bytes) {
        _ if job.leaves_open(plan, verdict) => "unknown".to_owned(),
        (Some(Shortage { event, step: Some(step) }), _) => format!("OOM {step}:{event}"),
        (Some(Shortage { event, step: None }), _) => format!("OOM {event}"),
        (None, Some(spare)) => Size(spare).to_string(),
        (None, None) => "fits".to_owned(),
    }
}

/// The smallest device on which each allocator runs that one could train with, or else each that is no bound.
fn verdict(job: &JobPlan, first: &Plan) -> Option<String> {
    if let Some(caution) = job.coverage.caution() {
        return Some(format!("No device can be recommended for {}: {caution}.", job.name));
    }
    let mut order: Vec<usize> = (0..first.targets.len()).collect();
    order.sort_by_key(|&target| first.targets[target].capacity_bytes);
    let runs = |index: usize, target: usize| {
        job.verdict(index, target).is_some_and(|(_, verdict)| verdict.trial.runs())
    };
    let those = |is_shown: fn(&Need) -> bool| {
        let indices = (0..first.needs.len()).filter(|&index| is_shown(&first.needs[index]));
        Some(indices.collect::<Vec<_>>()).filter(|found| !found.is_empty())
    };
    let mut left = those(Need::is_choice).or_else(|| those(|need| !need.is_bound()))?;
    let mut clauses = Vec::new();
    for target in order {
        let (now, later): (Vec<usize>, _) =
            left.into_iter().partition(|&index| runs(index, target));
        left = later;
        if !now.is_empty() {
            clauses.push(format!("{}: {}", first.targets[target].name, names(first, &now)));
        }
    }
    if clauses.is_empty() {
        return Some(format!(
            "None of these devices runs {} with {}.",
            job.name,
            names(first, &left)
        ));
    }
    if !left.is_empty() {
        clauses.push(format!("none of these: {}", names(first, &left)));
    }
    Some(format!("The smallest of these devices that runs {}: {}.", job.name, clauses.join("; ")))
}

fn names(plan: &Plan, indices: &[usize]) -> String {
    indices.iter().map(|&index| plan.needs[index].label()).collect::<Vec<_>>().join(", ")
}

fn rank(plan: &Plan) -> String {
    plan.rank.map_or_else(|| title_of(&plan.file).to_owned(), |rank| rank.to_string())
}

fn dash() -> String {
    "-".to_owned()
}
