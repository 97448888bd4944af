//! A title and a table, the same for the terminal and for Markdown.

use std::io::Write;

use super::Result;
use super::table::{Look, plain};
use crate::printable::printable_lines;

/// A table with a line above it that says how to read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// What it shows; it may be empty.
    pub title: String,
    /// Names of the columns; none if there is only a title.
    pub heading: Vec<String>,
    /// The rows, as many cells in each as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Section {
    /// A section with a table.
    pub fn new(title: impl Into<String>, heading: &[&str], rows: Vec<Vec<String>>) -> Self {
        let heading = heading.iter().map(|&name| name.to_owned()).collect();
        Self { title: title.into(), heading, rows }
    }

    /// A section of words alone.
    pub fn words(text: impl Into<String>) -> Self {
        Self { title: text.into(), ..Self::default() }
    }
}

/// The sections as text, a blank line between any two parts.
pub fn text(sections: &[Section], look: Look) -> String {
    let mut parts = Vec::new();
    for Section { title, heading, rows } in sections {
        parts.extend(Some(title.clone()).filter(|title| !title.is_empty()));
        if !heading.is_empty() {
            parts.push(plain(heading.clone(), rows.clone(), look));
        }
    }
    parts.join("\n\n")
}

/// A sentence with a capital at its beginning.
pub(crate) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().collect::<String>());
    first.unwrap_or_default() + letters.as_str()
}

/// The sections as Markdown.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_markdown(sections: &[Section], out: &mut dyn Write) -> Result<()> {
    for (index, section) in sections.iter().enumerate() {
        let gap = if index > 0 { "\n" } else { "" };
        writeln!(out, "{gap}{}", escape(&section.title))?;
        if !section.heading.is_empty() {
            writeln!(out)?;
            let escaped = |line: &Vec<String>| line.iter().map(|cell| escape(cell)).collect();
            let mut lines: Vec<Vec<String>> = vec![escaped(&section.heading)];
            lines.extend(section.rows.iter().map(escaped));
            write_lines(&lines, out)?;
        }
    }
    Ok(())
}

/// A table of a heading and rows, its first column to the left and the others to the right.
fn write_lines(lines: &[Vec<String>], out: &mut dyn Write) -> Result<()> {
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
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable_lines(text).replace('\n', " ").chars() {
        if matches!(c, '|' | '*' | '_' | '`' | '<' | '[' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
