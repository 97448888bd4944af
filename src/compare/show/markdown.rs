//! Markdown: a heading, a table and a sentence for each file, aligned so that it reads well as text too.

use std::io::Write;

use super::{table, verdict};
use crate::compare::columns;
use crate::compare::comparison::Comparison;
use crate::report::Result;
use crate::report::{escape, write_lines};

/// Writes tables for pages and pull requests.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_markdown(comparisons: &[Comparison], out: &mut dyn Write) -> Result<()> {
    for (index, comparison) in comparisons.iter().enumerate() {
        let gap = if index > 0 { "\n" } else { "" };
        writeln!(out, "{gap}### {}\n", escape(&comparison.heading()))?;
        writeln!(out, "{}\n", escape(&table::headline(comparison)))?;
        write_table(comparison, out)?;
        writeln!(out, "\n{}", escape(&verdict(comparison)))?;
    }
    Ok(())
}

fn write_table(comparison: &Comparison, out: &mut dyn Write) -> Result<()> {
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
