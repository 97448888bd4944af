//! Names that fit: what is too long for the terminal loses its front, since a path says most at its end.

use crate::report::section::Section;
use crate::report::{Look, NARROW, total};

/// Rather than that a name is cut to less than this, a column goes.
const LEAST: usize = 28;

/// Cuts the names of a table so that no line is longer than the terminal. Where the width is not known, none is cut.
/// Which columns go, and when a table is written row under row, is for the table to say.
pub(super) fn fit(Section { heading, rows, .. }: &mut Section, look: Look) {
    let Some(width) = look.width.map(usize::from).filter(|&width| width > 0) else { return };
    let length = |text: &str| text.chars().count();
    let column = |place: usize| {
        let cells = rows.iter().filter_map(|row| row.get(place));
        cells.map(|cell| length(cell)).chain([length(&heading[place])]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (1..heading.len()).map(column).collect();
    // What a name of no length leaves of a line with this many columns of numbers.
    let room = |columns: usize| {
        width.saturating_sub(total([0].into_iter().chain(widths[..columns].iter().copied())))
    };
    let fewest = if width < NARROW { widths.len() } else { 1 };
    let columns = (fewest..=widths.len()).rev().find(|&columns| room(columns) >= LEAST);
    // Row under row, a name has a line for itself.
    let room = columns.map_or(width, room);
    for row in rows {
        row[0] = cut(&row[0], room, look.has_boxes);
    }
}

/// The name, or its end behind an ellipsis, in `room` characters at most.
pub fn cut(name: &str, room: usize, has_ellipsis: bool) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let mark = if has_ellipsis { "…" } else { "..." };
    let kept = room.saturating_sub(mark.chars().count());
    mark.chars().chain(name.chars().skip(length - kept)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_is_kept() {
        assert_eq!(cut("transformers/a.py:84 f", 30, true), "transformers/a.py:84 f");
        assert_eq!(cut("transformers/a.py:84 f", 12, true), "…s/a.py:84 f");
        assert_eq!(cut("transformers/a.py:84 f", 12, false), "...a.py:84 f");
        assert_eq!(cut("äöüß", 3, true), "…üß");
    }

    #[test]
    fn a_name_is_cut_before_a_column_goes_and_a_column_goes_before_it_is_no_name() {
        let name = "transformers/models/opt/modeling_opt.py:499 forward";
        let table = |width: Option<u16>| {
            let row = [name, "larger", "+1.25 GiB", "10.5 GiB", "11.75 GiB", "1,234 to 1,235"];
            let heading = ["line", "change", "bytes", "before", "after", "blocks"];
            let rows = vec![row.map(str::to_owned).to_vec()];
            let look = Look { width, ..Look::default() };
            super::super::text(&[Section::new("", &heading, rows)], look)
        };
        let whole = table(None);
        let width_of = |text: &str| text.lines().map(str::len).max().unwrap_or(0);
        let length = width_of(&whole);
        let least = length - (name.len() - LEAST);
        let last = |width: usize| table(Some(width as u16)).lines().nth(2).unwrap().to_owned();
        assert_eq!(table(Some(length as u16)), whole);
        assert!(last(length - 1).starts_with("...sformers/models"), "{}", last(length - 1));
        assert_eq!(width_of(&table(Some(least as u16))), least);
        assert!(last(least).starts_with("...deling_opt.py:499 forward  larger"), "{}", last(least));
        let narrower = table(Some(least as u16 - 1));
        assert!(narrower.contains("Left out, as the terminal is narrow: blocks"), "{narrower}");
        assert!(narrower.contains("modeling_opt.py:499 forward"), "{narrower}");
        assert_eq!(table(Some(60)).lines().next(), Some(name));
    }
}
