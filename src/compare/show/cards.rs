//! The cards on which allocators run a recording, in a line each. Of a job that was recorded in part they are unknown.

use crate::compare::comparison::Comparison;
use crate::compare::job::JobComparison;
use crate::trace::Coverage;

/// A line for each run of a recording; empty unless cards were named.
pub fn of_recording(comparison: &Comparison) -> String {
    let runs = comparison.cards.iter();
    let rows = runs.map(|(&place, cards)| (comparison.runs[place].label(), &cards[..]));
    let rows: Vec<_> = rows.collect();
    lines(rows.iter().map(|(label, cards)| (&label[..], *cards)), &comparison.coverage)
}

/// A line for each allocator, with the cards that run every rank of a job; empty unless cards were named.
pub(super) fn of_job(job: &JobComparison, labels: &[String]) -> String {
    let rows = labels.iter().filter_map(|label| Some((&label[..], &job.cards.get(label)?[..])));
    lines(rows, &job.coverage)
}

fn lines<'a>(rows: impl Iterator<Item = (&'a str, &'a [String])>, coverage: &Coverage) -> String {
    let lines = rows.map(|(label, cards)| line(label, cards, coverage));
    lines.collect::<Vec<_>>().join("\n")
}

fn line(label: &str, cards: &[String], coverage: &Coverage) -> String {
    let names = if cards.is_empty() { "none of the cards".to_owned() } else { cards.join(", ") };
    // What does not run, the whole job does not either, if it began as the simulation does.
    match coverage.is_partial() && !(cards.is_empty() && coverage.sees_beginning()) {
        true => format!(
            "{label}: the card for the whole job is unknown; the recorded part runs on {names}"
        ),
        false => format!("{label} runs on {names}"),
    }
}
