//! Tables: each in the room that a terminal has. No word is ever broken, and no line folds over.
//!
//! ```text
//!   wide enough          allocator  peak reserved  utilization  driver calls
//!                        ---------- -------------- ------------ -------------
//!                        caching        62.74 GiB       39.6 %           426
//!
//!   too narrow           allocator  peak reserved  utilization
//!                        ---------- -------------- ------------
//!                        caching        62.74 GiB       39.6 %
//!                        Left out, as the terminal is narrow: driver calls
//!
//!   below 80 columns     caching
//!                          peak reserved  62.74 GiB
//!                          utilization    39.6 %
//!                          driver calls   426
//! ```

use std::collections::BTreeSet;
use std::env;
use std::io::{IsTerminal, stdout};

use anstyle::Style;
use terminal_size::{Width, terminal_size_of};
use unicode_width::UnicodeWidthStr;

use crate::printable::printable;

/// A table below this width is written row under row, if it does not fit as it is.
pub(crate) const NARROW: usize = 80;

/// What the place where a table is shown can do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// Lines may be drawn with box characters; else with ASCII.
    pub has_boxes: bool,
    /// Colours are shown.
    pub has_colour: bool,
    /// Characters in a line; `None`: as many as needed.
    pub width: Option<u16>,
}

/// What a terminal that does not tell its width is taken to have.
const USUAL_WIDTH: u16 = 120;

impl Look {
    /// That of standard output, without colours. What is no terminal gets lines as long as needed.
    pub fn of_stdout() -> Self {
        if !stdout().is_terminal() {
            return Self::default();
        }
        let width = terminal_size_of(stdout()).map(|(Width(width), _)| width);
        let width = width.filter(|&width| width > 0).unwrap_or(USUAL_WIDTH);
        Self { has_boxes: has_utf8(), has_colour: false, width: Some(width) }
    }
}

fn has_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(env::var_os);
    let first = locale.map(|value| value.to_string_lossy().to_lowercase()).find(|v| !v.is_empty());
    first.is_some_and(|value| value.contains("utf-8") || value.contains("utf8"))
}

/// A table with a heading, its first column to the left and the others to the right, as wide as there is room.
pub fn plain(heading: Vec<String>, rows: Vec<Vec<String>>, look: Look) -> String {
    // Names come from files.
    let cell = |text: String| Cell::plain(printable(&text).into_owned());
    let cells = |row: Vec<String>| row.into_iter().map(cell).collect();
    let dispensable: Vec<usize> = (1..heading.len()).rev().collect();
    fitted(&heading, rows.into_iter().map(cells).collect(), &dispensable, look)
}

/// A text of a table, of one or more lines.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A text that is shown in this style where there are colours.
    pub(crate) const fn new(text: String, style: Style) -> Self {
        Self { text, style }
    }

    /// A text as it is.
    pub(crate) const fn plain(text: String) -> Self {
        Self::new(text, Style::new())
    }

    /// Line `index` of the text, with blanks that make it `width` wide, to its right if `is_left`.
    fn line(&self, index: usize, width: usize, is_left: bool, look: Look) -> String {
        let text = self.text.lines().nth(index).unwrap_or_default();
        let blanks = " ".repeat(width.saturating_sub(text.width()));
        let style = if look.has_colour { self.style } else { Style::new() };
        let text = if text.is_empty() { String::new() } else { format!("{style}{text}{style:#}") };
        if is_left { text + &blanks } else { blanks + &text }
    }
}

/// A table with its first column to the left and the others to the right. Where it is too wide, columns go, those
/// first that `dispensable` names first (by their places); the first column stays.
pub(crate) fn fitted(
    heading: &[String],
    rows: Vec<Vec<Cell>>,
    dispensable: &[usize],
    look: Look,
) -> String {
    let widths = widths(heading, &rows);
    let room = look.width.map_or(usize::MAX, usize::from);
    let mut shown: BTreeSet<usize> = (0..heading.len()).collect();
    let fits = |shown: &BTreeSet<usize>| total(shown.iter().map(|&place| widths[place])) <= room;
    if fits(&shown) {
        return drawn(heading, &rows, &shown, look);
    }
    for place in dispensable {
        if fits(&shown) {
            break;
        }
        shown.remove(place);
    }
    // Names of rows alone are no table.
    if room < NARROW || shown.len() < 2 || !fits(&shown) {
        return vertical(heading, &rows, look);
    }
    let gone = (0..heading.len()).filter(|place| !shown.contains(place));
    let gone: Vec<String> = gone.map(|place| heading[place].replace('\n', " ")).collect();
    let note = format!("Left out, as the terminal is narrow: {}", gone.join(", "));
    format!("{}\n{}", drawn(heading, &rows, &shown, look), wrapped(&note, room))
}

/// Characters that each column needs.
fn widths(heading: &[String], rows: &[Vec<Cell>]) -> Vec<usize> {
    let longest = |text: &str| text.lines().map(UnicodeWidthStr::width).max().unwrap_or(0);
    let mut widths: Vec<usize> = heading.iter().map(|name| longest(name)).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = longest(&cell.text).max(*width);
        }
    }
    widths
}

/// Characters in a line of columns this wide: each has a blank behind it, and one more before the next.
pub(crate) fn total(widths: impl Iterator<Item = usize>) -> usize {
    widths.map(|width| width + 2).sum::<usize>().saturating_sub(1)
}

/// The columns that are shown, without blanks at line ends.
fn drawn(heading: &[String], rows: &[Vec<Cell>], shown: &BTreeSet<usize>, look: Look) -> String {
    let widths = widths(heading, rows);
    let lines = |row: &[Cell]| -> Vec<String> {
        let height = shown.iter().filter_map(|&place| Some(row.get(place)?.text.lines().count()));
        let line = |index| {
            let cells = shown.iter().enumerate().filter_map(|(at, &place)| {
                Some(row.get(place)?.line(index, widths[place], at == 0, look))
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        (0..height.max().unwrap_or(0).max(1)).map(line).collect()
    };
    let mut out = lines(&heading.iter().cloned().map(Cell::plain).collect::<Vec<_>>());
    let dash = if look.has_boxes { "─" } else { "-" };
    let rules = shown.iter().map(|&place| dash.repeat(widths[place] + 1));
    out.push(rules.collect::<Vec<_>>().join(" "));
    out.extend(rows.iter().flat_map(|row| lines(row)));
    out.join("\n")
}

/// Row under row: its name, and a line for each of its numbers.
fn vertical(heading: &[String], rows: &[Vec<Cell>], look: Look) -> String {
    let names: Vec<String> = heading.iter().map(|name| name.replace('\n', " ")).collect();
    let width = names.iter().skip(1).map(|name| name.chars().count()).max().unwrap_or(0);
    let row = |row: &Vec<Cell>| {
        let name = row.first().map(|cell| cell.text.replace('\n', " ")).unwrap_or_default();
        let name = if look.has_colour { format!("\x1b[1m{name}\x1b[0m") } else { name };
        let numbers = names.iter().zip(row).skip(1);
        let numbers = numbers
            .map(|(name, cell)| format!("\n  {name:<width$}  {}", cell.text.replace('\n', " ")));
        std::iter::once(name).chain(numbers).collect::<String>()
    };
    rows.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// The text with lines of at most `width` characters, broken between words. A line that goes on is indented as it
/// began, or, where it has two columns with blanks between them, as its second column. Words that are longer stay
/// whole.
pub fn wrapped(text: &str, width: usize) -> String {
    let lines = text.split('\n').map(|line| {
        // What has escape sequences is part of a table, which was fitted.
        if line.chars().count() <= width || line.contains('\x1b') {
            return line.to_owned();
        }
        wrapped_line(line, width)
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn wrapped_line(line: &str, width: usize) -> String {
    let indent = " ".repeat(indent(line, width));
    let (mut out, mut length, mut gap) = (String::new(), 0, 0);
    for word in line.split(' ') {
        if word.is_empty() {
            gap += 1;
            continue;
        }
        let size = word.chars().count();
        let is_first = out.trim_start().is_empty();
        if !is_first && length + gap + size > width {
            out = format!("{out}\n{indent}");
            length = indent.len();
        } else {
            out += &" ".repeat(gap);
            length += gap;
        }
        out += word;
        (length, gap) = (length + size, 1);
    }
    out
}

/// Where a line that goes on begins.
fn indent(line: &str, width: usize) -> usize {
    let start = line.len() - line.trim_start().len();
    let text = &line[start..];
    let second = text.find("  ").map(|at| at + text[at..].len() - text[at..].trim_start().len());
    let second = second.map(|at| start + text[..at].chars().count());
    second.filter(|&at| at <= width / 2).unwrap_or(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(columns: usize, width: Option<u16>) -> String {
        let heading: Vec<String> = (0..columns).map(|at| format!("column\n{at}")).collect();
        let row = |name: &str| {
            (0..columns)
                .map(|at| Cell::plain(if at == 0 { name.to_owned() } else { format!("{at} GiB") }))
                .collect()
        };
        let dispensable: Vec<usize> = (1..columns).rev().collect();
        let look = Look { width, ..Look::default() };
        fitted(&heading, vec![row("caching"), row("expandable")], &dispensable, look)
    }

    #[test]
    fn what_fits_is_left_alone_and_what_does_not_loses_columns_from_the_end() {
        let whole = table(4, None);
        assert_eq!(table(4, Some(200)), whole);
        insta::assert_snapshot!(whole, @r"
        column      column  column  column
        0                1       2       3
        ----------- ------- ------- -------
        caching      1 GiB   2 GiB   3 GiB
        expandable   1 GiB   2 GiB   3 GiB
        ");
        let narrow = table(12, Some(80));
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert!(narrow.contains("8 GiB") && !narrow.contains("10 GiB"), "{narrow}");
        let left_out = "Left out, as the terminal is narrow: column 9, column 10, column 11";
        assert!(narrow.ends_with(left_out));
    }

    #[test]
    fn a_narrow_terminal_gets_row_under_row() {
        insta::assert_snapshot!(table(4, Some(30)), @r"
        caching
          column 1  1 GiB
          column 2  2 GiB
          column 3  3 GiB
        expandable
          column 1  1 GiB
          column 2  2 GiB
          column 3  3 GiB
        ");
    }

    #[test]
    fn a_line_of_two_columns_goes_on_in_its_second() {
        let line = "held at the end  96 MiB in 2 segments, 32 MiB in use";
        let indent = " ".repeat(17);
        let expected =
            format!("held at the end  96 MiB in 2\n{indent}segments, 32 MiB\n{indent}in use");
        assert_eq!(wrapped(line, 34), expected);
        assert_eq!(wrapped("  a bc d", 5), "  a\n  bc\n  d");
    }

    proptest! {
        #[test]
        fn wrapping_keeps_every_word_and_the_width(
            text in "[ ]{0,3}([a-z]{1,9}[ ]){0,30}",
            width in 12_usize..60,
        ) {
            let out = wrapped(&text, width);
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(words(&out), words(&text));
            prop_assert!(out.lines().all(|line| line.trim_end().chars().count() <= width));
        }

        #[test]
        fn no_table_is_wider_than_its_terminal(columns in 1_usize..20, width in 30_u16..300) {
            let text = table(columns, Some(width));
            let fits = |line: &str| line.chars().count() <= usize::from(width);
            prop_assert!(text.lines().all(fits), "{}", text);
        }
    }
}
