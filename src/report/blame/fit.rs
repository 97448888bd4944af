//! Names that fit: what is too long for the terminal loses its front, since a path says most at its end.

use super::super::table::Look;

/// A name is never cut to less than this.
const LEAST: usize = 16;

/// Cuts the names of a table so that no line is longer than the terminal. Where the width is not known, none is cut.
pub(super) fn fit(rows: &mut [(String, Vec<String>)], heading: &[&str], look: Look) {
    let Some(width) = look.width.map(usize::from).filter(|&width| width > 0) else { return };
    let length = |text: &str| text.chars().count();
    let column = |place: usize| {
        let cells = rows.iter().filter_map(|(_, cells)| cells.get(place));
        cells.map(|cell| length(cell)).chain([length(heading[place])]).max().unwrap_or(0)
    };
    // Three characters stand between two columns at most.
    let numbers: usize = (0..heading.len()).map(|place| column(place) + 3).sum();
    let room = width.saturating_sub(numbers + 2).max(LEAST);
    for (name, _) in rows {
        *name = cut(name, room, look.has_boxes);
    }
}

/// The name, or its end behind an ellipsis, in `room` characters at most.
#[must_use]
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
}
