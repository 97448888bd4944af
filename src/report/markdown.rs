//! Markdown: tables that read well as text too.

use std::io::Write;

use super::Result;
use crate::printable::printable_lines;

/// A table of a heading and rows, its first column to the left and the others to the right.
pub(crate) fn write_lines(lines: &[Vec<String>], out: &mut dyn Write) -> Result<()> {
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
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable_lines(text).replace('\n', " ").chars() {
        if matches!(c, '|' | '*' | '_' | '`' | '<' | '[' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
