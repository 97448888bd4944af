//! A title and a table, the same for the terminal and for Markdown.

use std::io::Write;

use super::Result;
use super::markdown::{self, escape};
use super::table::{Look, plain};

/// A table with a line above it that says how to read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// What it shows.
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
    for section in sections {
        parts.push(section.title.clone());
        if !section.heading.is_empty() {
            parts.push(plain(section.heading.clone(), section.rows.clone(), look));
        }
    }
    parts.join("\n\n")
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
            markdown::write_lines(&lines, out)?;
        }
    }
    Ok(())
}
