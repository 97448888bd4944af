//! Words: sections of a report, titles and tables, as HTML.

use std::fmt::Write as _;

use super::shell::escape;
use crate::report::section::Section;

/// The sections one after another. The first column of each table holds names, the others numbers or words.
pub(crate) fn html(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        for line in section.title.lines() {
            let _ = write!(text, "<p>{}</p>", escape(line));
        }
        text += &scrolling(section, section.heading.first().map_or("", String::as_str));
    }
    text
}

/// The table of a section in a place that scrolls; nothing if there is no table.
pub(crate) fn scrolling(section: &Section, label: &str) -> String {
    if section.heading.is_empty() {
        return String::new();
    }
    let label = escape(label);
    let table = table(section);
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{label}\">{table}</div>"
    )
}

fn table(section: &Section) -> String {
    let has_words: Vec<bool> = (0..section.heading.len()).map(|n| has_words(section, n)).collect();
    let cell = |(column, name): (usize, &String)| {
        format!("<th scope=\"col\"{}>{}</th>", class_of(has_words[column]), escape(name))
    };
    let heading: String = section.heading.iter().enumerate().map(cell).collect();
    let row = |row: &Vec<String>| {
        let (name, numbers) = row.split_first().map_or(("", &[][..]), |(a, b)| (a.as_str(), b));
        // A row that is part of the one above is indented.
        let class = if name.starts_with("  ") { " class=\"part\"" } else { "" };
        let cell = |(column, text): (usize, &String)| {
            format!("<td{}>{}</td>", class_of(has_words[column + 1]), escape(text))
        };
        let cells: String = numbers.iter().enumerate().map(cell).collect();
        format!("<tr><th scope=\"row\"{class}>{}</th>{cells}</tr>", escape(name.trim_start()))
    };
    let rows: String = section.rows.iter().map(row).collect();
    format!("<table class=\"named\"><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody></table>")
}

const fn class_of(has_words: bool) -> &'static str {
    if has_words { " class=\"sentence\"" } else { "" }
}

/// A number is not longer than this.
const LONGEST_NUMBER: usize = 24;

/// Whether a column holds sentences, which stand on several lines. The first column always does.
fn has_words(section: &Section, column: usize) -> bool {
    let cells = section.rows.iter().filter_map(|row| row.get(column));
    column > 0 && cells.map(|cell| cell.chars().count()).any(|letters| letters > LONGEST_NUMBER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_tables_are_escaped() {
        let rows =
            vec![vec!["all".to_owned(), "2".to_owned()], vec!["  a<b".to_owned(), "1".to_owned()]];
        let parts = [Section::words("x & y"), Section::new("", &["name", "bytes"], rows)];
        let text = html(&parts);
        assert!(text.starts_with("<p>x &amp; y</p><div"), "{text}");
        assert!(text.contains("<th scope=\"row\" class=\"part\">a&lt;b</th><td>1</td>"), "{text}");
    }
}
