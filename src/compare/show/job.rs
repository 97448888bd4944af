//! A job of many ranks: what its worst rank needs under each allocator, and how far the ranks lie apart.

use super::cards;
use super::table::cell;
use super::verdict::caution;
use crate::compare::job::{JobComparison, RankComparison};
use crate::compare::{Row, columns};
use crate::plan::show::MOST_RANKS;
use crate::report::section::Section;
use crate::run::RunSummary;
use crate::sim::job::GIVEN;
use crate::sim::title_of;
use crate::units::{Count, Grouped, Size};

/// A table of the allocators, one of the ranks that hold most, and a sentence.
pub fn sections(job: &JobComparison) -> Vec<Section> {
    if job.ranks.is_empty() {
        return Vec::new();
    }
    let labels = job.labels();
    let mut sections = vec![allocators(job, &labels), ranks(job, &labels)];
    sections.push(Section::words(verdict(job, &labels)));
    let cards = cards::of_job(job, &labels);
    sections.extend((!cards.is_empty()).then(|| Section::words(cards)));
    sections
}

fn allocators(job: &JobComparison, labels: &[String]) -> Section {
    let events = job.ranks.iter().map(|rank| rank.comparison.runs.iter().map(|r| r.events).max());
    let events: u64 = events.map(Option::unwrap_or_default).sum();
    let title = format!(
        "{}: {}, {}; of each allocator the rank that holds most",
        job.name,
        Count(job.ranks.len() as u64, "rank"),
        Count(events, "event")
    );
    let columns = columns(job.ranks.iter().flat_map(|rank| &rank.comparison.runs));
    let columns = columns.filter(|column| !column.is_detail());
    let mut heading = vec!["allocator", "at rank", "spread", "ranks with OOM"];
    heading.extend(columns.clone().map(|column| column.name));
    let row = |label: &String| {
        let spread = job.spread(label)?;
        let (rank, run) = spread.worst;
        let reference = rank.comparison.reference();
        let apart = Size(run.reserved_peak_bytes - spread.least_bytes).to_string();
        let mut cells = vec![label.clone(), number(rank), apart, spread.oom_ranks.to_string()];
        let run = &RunSummary { certainty: job.bounded(run).certainty, ..run.clone() };
        cells.extend(columns.clone().map(|column| cell(column, &Row { run, reference })));
        Some(cells)
    };
    Section::new(title, &heading, labels.iter().filter_map(row).collect())
}

fn ranks(job: &JobComparison, labels: &[String]) -> Section {
    let most = |rank: &&RankComparison| {
        rank.comparison.runs.iter().map(|run| run.reserved_peak_bytes).max().unwrap_or(0)
    };
    let mut order: Vec<&RankComparison> = job.ranks.iter().collect();
    order.sort_by_key(|rank| std::cmp::Reverse(most(rank)));
    let hidden = order.len().saturating_sub(MOST_RANKS) as u64;
    let mut title = "Peak reserved memory of each rank".to_owned();
    if hidden > 0 {
        let hidden = Grouped(hidden);
        title += &format!(", the {MOST_RANKS} that hold most ({hidden} more: --export-csv)");
    }
    let mut heading = vec!["rank"];
    heading.extend(labels.iter().map(String::as_str));
    let row = |rank: &&RankComparison| {
        let held = |label: &String| {
            let run = rank.comparison.runs.iter().find(|run| run.label() == *label);
            run.map_or_else(|| "-".to_owned(), |run| run.reserved().to_string())
        };
        [number(rank)].into_iter().chain(labels.iter().map(held)).collect()
    };
    Section::new(title, &heading, order.iter().take(MOST_RANKS).map(row).collect())
}

fn verdict(job: &JobComparison, labels: &[String]) -> String {
    let clause = |label: &String| {
        let spread = job.spread(label)?;
        let (rank, run) = spread.worst;
        if !run.is_choice() {
            return None;
        }
        Some(match spread.oom_ranks {
            0 => format!("{label} {} (rank {})", job.bounded(run), number(rank)),
            ranks => format!("{label} runs out of memory in {}", Count(ranks, "rank")),
        })
    };
    let clauses: Vec<String> = labels.iter().filter_map(clause).collect();
    let (clauses, caution) = (clauses.join(", "), caution(&job.coverage));
    let needs = if job.name == GIVEN { "need what their" } else { "needs what its" };
    format!("{} {needs} worst rank needs: {clauses}.{caution}", job.name)
}

fn number(rank: &RankComparison) -> String {
    let title = || title_of(&rank.comparison.file).to_owned();
    rank.rank.map_or_else(title, |rank| rank.to_string())
}
