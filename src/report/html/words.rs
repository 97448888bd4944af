//! Words: sections of a report, titles and tables, as HTML.

use std::fmt::Write as _;

use super::escape;
use crate::report::section::Section;

/// The sections one after another. The first column of each table holds names, the others numbers.
pub(super) fn html(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        for line in section.title.lines() {
            let _ = write!(text, "<p>{}</p>", escape(line));
        }
        if let Some(name) = section.heading.first() {
            let _ = write!(
                text,
                "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{}\">{}</div>",
                escape(name),
                table(section)
            );
        }
    }
    text
}

fn table(section: &Section) -> String {
    let cell = |name: &String| format!("<th scope=\"col\">{}</th>", escape(name));
    let heading: String = section.heading.iter().map(cell).collect();
    let row = |row: &Vec<String>| {
        let (name, numbers) = row.split_first().map_or(("", &[][..]), |(a, b)| (a.as_str(), b));
        // A row that is part of the one above is indented.
        let class = if name.starts_with("  ") { " class=\"part\"" } else { "" };
        let cells: String =
            numbers.iter().map(|text| format!("<td>{}</td>", escape(text))).collect();
        format!("<tr><th scope=\"row\"{class}>{}</th>{cells}</tr>", escape(name.trim_start()))
    };
    let rows: String = section.rows.iter().map(row).collect();
    format!("<table class=\"named\"><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody></table>")
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
