//! Markdown: a heading, a table and a sentence for each file, aligned so that it reads well as text too.

use std::io::Write;

use super::{Report, ReportError, table, verdict};
use crate::metrics::{Comparison, columns};
use crate::printable::printable_lines;

/// Tables for pages and pull requests.
pub(super) struct Markdown;

impl Report for Markdown {
    fn write(&self, comparisons: &[Comparison], out: &mut dyn Write) -> Result<(), ReportError> {
        for (index, comparison) in comparisons.iter().enumerate() {
            let gap = if index > 0 { "\n" } else { "" };
            writeln!(out, "{gap}### {}\n", escape(comparison.title()))?;
            writeln!(out, "{}\n", escape(&table::headline(comparison)))?;
            write_table(comparison, out)?;
            writeln!(out, "\n{}", escape(&verdict(comparison)))?;
        }
        Ok(())
    }
}

fn write_table(comparison: &Comparison, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut lines = vec![vec!["allocator".to_owned()]];
    let columns = columns(&comparison.runs).filter(|column| !column.is_detail());
    lines[0].extend(columns.clone().map(|column| column.name.to_owned()));
    for row in table::ordered(comparison) {
        let mut line = vec![escape(&row.run.label())];
        line.extend(columns.clone().map(|column| table::cell(column, &row)));
        lines.push(line);
    }
    write_lines(&lines, out)
}

/// A table of a heading and rows, its first column to the left and the others to the right.
pub(super) fn write_lines(lines: &[Vec<String>], out: &mut dyn Write) -> Result<(), ReportError> {
    let longest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..lines[0].len()).map(|c| longest(c).unwrap_or(0)).collect();
    for (index, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "))?;
        if index == 0 {
            let rules = widths.iter().enumerate().map(|(column, &width)| {
                let rule = "-".repeat(width);
                if column == 0 { format!("{rule}-") } else { format!("{rule}:") }
            });
            writeln!(out, "| {}|", rules.collect::<Vec<_>>().join("| "))?;
        }
    }
    Ok(())
}

/// Names come from files and users; what Markdown would take for its own is marked.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable_lines(text).chars() {
        if matches!(c, '|' | '*' | '_' | '`' | '<' | '[' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
