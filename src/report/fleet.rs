//! A fleet as tables: what all ranks hold, the cards that the jobs need, the jobs that lose most, ranks unlike their
//! peers.

use super::section::Section;
use crate::metrics::{CardCount, FleetJob, FleetSummary, FleetTotal, JobPeak};
use crate::units::{Grouped, Nanos, Size};

/// Everything that is shown of a fleet.
#[must_use]
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

/// The fleet in a sentence or two.
#[must_use]
pub fn headline(fleet: &FleetSummary) -> String {
    let (ranks, jobs) = (Grouped(fleet.ranks), Grouped(fleet.jobs));
    let events = Grouped(fleet.events);
    let mut text = format!("{ranks} ranks in {jobs} jobs, {events} requests and frees.");
    let Some(reference) = fleet.totals.first() else { return text };
    text += &format!(
        " At their peaks, all ranks together hold {} ({}), of which {:.1} % is in use.",
        Size(reference.reserved_bytes),
        reference.allocator,
        100.0 * reference.utilization()
    );
    let best = fleet.totals[1..].iter().filter(|total| total.oom_ranks <= reference.oom_ranks);
    let best = best.max_by(|a, b| a.saved().total_cmp(&b.saved()));
    if let Some(best) = best.filter(|best| best.saved() > 0.0) {
        let share = 100.0 * best.saved() / best.reference_bytes.max(1) as f64;
        let saved = Size(best.saved() as u64);
        text += &format!(" {} would hold {saved} less ({share:.1} %).", best.allocator);
    }
    text
}

fn totals(fleet: &FleetSummary) -> Section {
    let has_time = fleet.totals.iter().any(|total| total.predicted_driver_ns.is_some());
    let mut heading = vec!["allocator", "reserved, sum", "utilization", "saved", "saved %"];
    heading.extend(["ranks", "ranks with OOM", "retries"]);
    if has_time {
        heading.push("driver time");
    }
    let row = |total: &FleetTotal| {
        let saved = total.saved();
        let sign = if saved < 0.0 { "-" } else { "" };
        let share = 100.0 * saved / total.reference_bytes.max(1) as f64;
        let mut cells = vec![
            total.allocator.clone(),
            Size(total.reserved_bytes).to_string(),
            format!("{:.1} %", 100.0 * total.utilization()),
            format!("{sign}{}", Size(saved.abs() as u64)),
            format!("{share:.1} %"),
        ];
        cells.extend([total.ranks, total.oom_ranks, total.alloc_retries].map(grouped));
        if has_time {
            let time = total.predicted_driver_ns.map(|ns| Nanos(ns as f64).to_string());
            cells.push(time.unwrap_or_else(|| "-".to_owned()));
        }
        cells
    };
    let rows = fleet.totals.iter().map(row).collect();
    Section::new("What all ranks hold at their peaks", &heading, rows)
}

fn cards(fleet: &FleetSummary) -> Section {
    let is_needed = |name: Option<&str>| {
        let mut counts = fleet.totals.iter().flat_map(|total| &total.cards);
        counts.any(|count| count.card.as_deref() == name)
    };
    let names = fleet.targets.iter().map(|target| Some(target.name.as_str())).chain([None]);
    let names: Vec<Option<&str>> = names.filter(|name| is_needed(*name)).collect();
    let mut heading = vec!["allocator"];
    heading.extend(names.iter().map(|name| name.unwrap_or("none of them")));
    let row = |total: &FleetTotal| {
        let count = |name: &Option<&str>| {
            let is_it = |count: &&CardCount| count.card.as_deref() == *name;
            grouped(total.cards.iter().find(is_it).map_or(0, |count| count.count))
        };
        [total.allocator.clone()].into_iter().chain(names.iter().map(count)).collect()
    };
    let rows = fleet.totals.iter().map(row).collect();
    let title = format!(
        "How many cards of each size the jobs need: the smallest that hold their worst rank{}",
        super::plan::reserve(&fleet.targets)
    );
    Section::new(title, &heading, rows)
}

fn jobs(fleet: &FleetSummary) -> Section {
    let shown = fleet.worst_jobs.len();
    let title = match fleet.jobs as usize > shown {
        true => {
            format!("The {shown} jobs that lose most; for each allocator what the worst rank holds")
        }
        false => "The jobs; for each allocator what the worst rank holds".to_owned(),
    };
    let mut heading = vec!["job", "date", "ranks", "lost, sum", "worst rank"];
    heading.extend(fleet.totals.iter().map(|total| total.allocator.as_str()));
    let row = |job: &FleetJob| {
        let worst = job.peaks.first().and_then(|peak| peak.worst_rank);
        let mut cells = vec![
            job.job.clone(),
            job.date.clone(),
            grouped(job.ranks),
            Size(job.lost_bytes).to_string(),
            worst.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
        ];
        cells.extend(fleet.totals.iter().map(|total| {
            let is_it = |peak: &&JobPeak| peak.allocator == total.allocator;
            match job.peaks.iter().find(is_it) {
                None => "-".to_owned(),
                Some(peak) if peak.oom_ranks > 0 => format!("OOM in {}", peak.oom_ranks),
                Some(peak) => Size(peak.worst_bytes).to_string(),
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
        true => format!("{} ranks are unlike their peers; those farthest off", fleet.unlike_ranks),
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
    let title = format!("Problems with recordings: {}", Grouped(fleet.errors));
    let rows = fleet
        .problems
        .iter()
        .map(|problem| vec![problem.text.clone(), grouped(problem.count), problem.example.clone()]);
    Some(Section::new(title, &["problem", "recordings", "one of them"], rows.collect()))
}

fn grouped(value: u64) -> String {
    Grouped(value).to_string()
}
