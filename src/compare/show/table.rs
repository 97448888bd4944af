//! Which rows and columns a comparison shows, and the tables on the terminal: one for each file, each with a line above
//! that says what was run.
//!
//! How a table is fitted to the terminal's width is in `report/table.rs`.

use std::io::Write;

use anstyle::{AnsiColor, Style};

use super::verdict;
use crate::compare::columns::COLUMNS;
use crate::compare::comparison::Comparison;
use crate::compare::{Better, Column, Row, Unit, When};
use crate::device::FenceCounts;
use crate::report::section::{self, Section};
use crate::report::table::plain;
use crate::report::{Cell, NARROW, Result, fitted};
pub use crate::report::{Look, wrapped};
use crate::run::{RECORDED, RunSummary};
use crate::units::Grouped;

/// Everything that is shown of a comparison: headline, table, details if asked for, and the sentence.
pub fn comparison(comparison: &Comparison, has_details: bool, look: Look) -> String {
    let mut headline = headline(comparison);
    if let Some(reference) = &comparison.reference {
        headline += &format!("; saved: against {reference}");
    }
    let mut parts = vec![headline, runs(comparison, has_details, look)];
    if has_details {
        parts.push(calls(comparison, look));
        parts.extend(comparison.runs.iter().filter_map(counters));
    }
    parts.push(verdict(comparison));
    parts.join("\n\n")
}

/// One line: the file, how much of it was replayed, on what device, and whose prices the driver's time is counted by.
pub fn headline(comparison: &Comparison) -> String {
    let mut text = comparison.about();
    if let Some(profile) = comparison.profile() {
        text += &format!("; driver time by profile {profile}");
    }
    text
}

/// Writes a heading, a table and a sentence for each file as Markdown, for pages and pull requests.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_markdown(comparisons: &[Comparison], out: &mut dyn Write) -> Result<()> {
    section::write_markdown(&comparisons.iter().flat_map(sections).collect::<Vec<_>>(), out)
}

fn sections(comparison: &Comparison) -> [Section; 3] {
    let columns = columns(&comparison.runs).filter(|column| !column.is_detail());
    let names = columns.clone().map(|column| column.name);
    let heading: Vec<&str> = std::iter::once("allocator").chain(names).collect();
    let row = |row: Row<'_>| {
        let cells = columns.clone().map(|column| cell(column, &row));
        std::iter::once(row.run.label()).chain(cells).collect()
    };
    let rows = ordered(comparison).into_iter().map(row).collect();
    let title = Section::words(format!("### {}", comparison.heading()));
    [title, Section::new(headline(comparison), &heading, rows), Section::words(verdict(comparison))]
}

/// The number of a column as people read it; `-` where there is none.
pub fn cell(column: &Column, row: &Row<'_>) -> String {
    let Some(value) = (column.get)(row) else { return "-".to_owned() };
    let shown = column.unit.show(value);
    let sign = if column.unit == Unit::Peak { row.run.certainty.sign() } else { "" };
    format!("{sign}{shown}")
}

/// The columns for these runs, in the order of all tables.
pub fn columns<'a>(
    runs: impl IntoIterator<Item = &'a RunSummary>,
) -> impl Iterator<Item = &'static Column> + Clone {
    let (mut is_priced, mut has_times) = (false, false);
    for prices in runs.into_iter().filter_map(|run| run.prices.as_ref()) {
        is_priced = true;
        has_times |= prices.share().is_some();
    }
    COLUMNS.iter().filter(move |column| match column.when {
        When::Always => true,
        When::Priced => is_priced,
        When::Timed => has_times,
    })
}

/// The rows as people want them: what happened and what one can choose first, then what is only to compare with.
pub(crate) fn ordered(comparison: &Comparison) -> Vec<Row<'_>> {
    let is_first = |row: &Row<'_>| row.run.allocator == RECORDED || row.run.is_choice();
    let (mut first, rest): (Vec<_>, Vec<_>) = comparison.rows().partition(is_first);
    first.extend(rest);
    first
}

/// The rows that are shown; on a narrow terminal those that only serve to compare are left out, and named.
fn shown(comparison: &Comparison, look: Look) -> (Vec<Row<'_>>, String) {
    let rows = ordered(comparison);
    if look.width.is_none_or(|width| usize::from(width) >= NARROW) {
        return (rows, String::new());
    }
    let is_kept =
        |row: &Row<'_>| row.run.allocator == RECORDED || row.run.is_choice() || row.is_reference();
    let (kept, gone): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_kept);
    // Where somebody chose only such rows, they are what is wanted.
    if kept.iter().all(|row| row.run.allocator == RECORDED) || gone.is_empty() {
        return (kept.into_iter().chain(gone).collect(), String::new());
    }
    let names: Vec<String> = gone.iter().map(|row| row.run.label()).collect();
    (kept, format!("\nLeft out, as the terminal is narrow: {}", names.join(", ")))
}

fn runs(comparison: &Comparison, has_details: bool, look: Look) -> String {
    let mut heading = vec!["allocator".to_owned()];
    let columns = columns(&comparison.runs).filter(|column| has_details || !column.is_detail());
    let columns: Vec<&Column> = columns.collect();
    // Two short lines instead of a long one keep the table within a usual terminal.
    heading.extend(columns.iter().map(|column| column.name.replacen(' ', "\n", 1)));
    let mut dispensable: Vec<usize> = (1..=columns.len()).collect();
    dispensable.sort_by_key(|&place| columns[place - 1].dropped());
    let cells = |row: Row<'_>| {
        let numbers = columns.iter().map(|column| coloured(column, &row, comparison));
        std::iter::once(label(&row)).chain(numbers).collect()
    };
    let (rows, note) = shown(comparison, look);
    fitted(&heading, rows.into_iter().map(cells).collect(), &dispensable, look) + &note
}

fn label(row: &Row<'_>) -> Cell {
    let style = if row.is_reference() { Style::new().bold() } else { Style::new() };
    Cell::new(row.run.label(), style)
}

/// How a number stands among those of its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Requests were left out.
    Alarm,
    /// A simulated allocator did best, and not all did the same.
    Best,
    /// Neither.
    Usual,
}

/// How the number of `row` stands in `column`.
pub(crate) fn standing(column: &Column, row: &Row<'_>, comparison: &Comparison) -> Standing {
    let Some(value) = (column.get)(row) else { return Standing::Usual };
    if column.better == Better::Zero && value > 0.0 {
        return Standing::Alarm;
    }
    let real = comparison.rows().filter(|row| row.run.is_choice() && row.run.oom_count == 0);
    let values: Vec<f64> = real.filter_map(|row| (column.get)(&row)).collect();
    let is_best = match column.better {
        Better::Higher => values.iter().all(|&other| value >= other),
        Better::Lower | Better::Zero => values.iter().all(|&other| value <= other),
        Better::Neither => false,
    };
    let differs = values.iter().any(|&other| other != value);
    let is_candidate = row.run.is_choice() && row.run.oom_count == 0;
    if is_best && differs && is_candidate { Standing::Best } else { Standing::Usual }
}

/// Red where requests were left out, green where a simulated allocator did best.
fn coloured(column: &Column, row: &Row<'_>, comparison: &Comparison) -> Cell {
    let style = match standing(column, row, comparison) {
        Standing::Alarm => AnsiColor::BrightRed.on_default().bold(),
        Standing::Best => AnsiColor::BrightGreen.on_default(),
        Standing::Usual => Style::new(),
    };
    Cell::new(cell(column, row), style)
}

fn calls(comparison: &Comparison, look: Look) -> String {
    let mut heading = vec!["driver calls".to_owned()];
    let names = comparison.runs.first().map(|run| run.device_calls.rows());
    heading.extend(names.into_iter().flatten().map(|(name, _)| name.replacen('_', "_\n", 1)));
    // Few allocators put streams in order, and the table is wide enough.
    let has_fences = comparison.runs.iter().any(|run| run.fence_calls != FenceCounts::default());
    let fences = |run: &RunSummary| run.fence_calls.rows().into_iter().filter(|_| has_fences);
    let names = comparison.runs.first().map(fences);
    heading.extend(names.into_iter().flatten().map(|(name, _)| name.replacen('_', "_\n", 1)));
    let line = |run: &RunSummary| {
        let mut line = vec![run.label()];
        let counts = run.device_calls.rows().into_iter().chain(fences(run));
        line.extend(counts.map(|(_, count)| Grouped(count).to_string()));
        line
    };
    let rows = comparison.runs.iter().filter(|run| !run.is_bound()).map(line).collect();
    plain(heading, rows, look)
}

fn counters(run: &RunSummary) -> Option<String> {
    if run.allocator == RECORDED || run.is_bound() {
        return None;
    }
    let pairs = run.allocator_counters.iter();
    let mut texts: Vec<_> =
        pairs.map(|(name, count)| format!("{name} {}", Grouped(*count))).collect();
    texts.extend(convergence(run));
    (!texts.is_empty()).then(|| format!("{}: {}", run.label(), texts.join(", ")))
}

/// After which training step no driver call was made any more, in words.
fn convergence(run: &RunSummary) -> Option<String> {
    let steps = run.steps.len();
    Some(match run.converged_after_step {
        _ if steps == 0 => return None,
        Some(0) => "no driver call in any step".to_owned(),
        Some(step) => format!("no driver call after step {step} of {steps}"),
        None => format!("driver calls up to the last of {steps} steps"),
    })
}
