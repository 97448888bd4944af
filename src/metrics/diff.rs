//! Difference: the peaks of two recordings of one program, row by row.
//!
//! ```text
//!   before   train.py:30 step   2 GiB      model.py:84 f   1 GiB
//!   after    train.py:31 step   2 GiB      model.py:84 f   3 GiB      new.py:7 g   1 GiB
//!            same (it moved)               larger                     new
//! ```
//!
//! Rows are matched by their names. A line whose name is left over on both sides moved, if file, function and bytes are
//! the same; or if it is the only one of its function that is left over on either side.

use serde::Serialize;

use super::{Blame, BlameRow, By, SCHEMA_VERSION};
use crate::units::Bytes;

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It was not there before.
    New,
    /// It is not there any more.
    Gone,
    /// It has more bytes.
    Larger,
    /// It has fewer bytes.
    Smaller,
    /// It has as many bytes.
    Same,
}

impl Change {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Larger => "larger",
            Self::Smaller => "smaller",
            Self::Same => "same",
        }
    }
}

/// A row of both peaks, or of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiffRow {
    /// The name after; before, if it is gone.
    pub name: String,
    /// The name before, if it is another.
    pub moved_from: Option<String>,
    /// What became of it.
    pub change: Change,
    /// Bytes and blocks before.
    pub before: (Bytes, u64),
    /// Bytes and blocks after.
    pub after: (Bytes, u64),
}

impl DiffRow {
    /// Bytes more than before; negative if fewer.
    #[must_use]
    pub fn growth(&self) -> i128 {
        i128::from(self.after.0) - i128::from(self.before.0)
    }
}

/// The peaks of two recordings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Version of the JSON export.
    pub schema_version: u32,
    /// Both files, as given.
    pub files: [String; 2],
    /// Most live bytes of both.
    pub live_bytes: [Bytes; 2],
    /// Most bytes held of both, where the recordings say so.
    pub reserved_bytes: [Option<Bytes>; 2],
    /// The kind of name.
    pub by: By,
    /// The rows, those that differ most first.
    pub rows: Vec<DiffRow>,
}

impl Diff {
    /// The difference of two peaks by the same kind of name.
    #[must_use]
    pub fn of(before: &Blame, after: &Blame) -> Self {
        let mut rows = matched(&before.rows, &after.rows);
        rows.sort_by(|a, b| {
            let size = |row: &DiffRow| (row.growth().unsigned_abs(), row.growth(), row.after.0);
            size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
        });
        Self {
            schema_version: SCHEMA_VERSION,
            files: [before.file.clone(), after.file.clone()],
            live_bytes: [before.live_bytes, after.live_bytes],
            reserved_bytes: [None, None],
            by: after.by,
            rows,
        }
    }

    /// Live bytes at the peak more than before; negative if fewer. It is the sum of all rows' growth.
    #[must_use]
    pub fn growth(&self) -> i128 {
        i128::from(self.live_bytes[1]) - i128::from(self.live_bytes[0])
    }
}

fn matched(before: &[BlameRow], after: &[BlameRow]) -> Vec<DiffRow> {
    let mut left: Vec<&BlameRow> = Vec::new();
    let mut rows: Vec<DiffRow> = Vec::new();
    for row in before {
        match after.iter().find(|other| other.name == row.name) {
            Some(other) => rows.push(pair(Some(row), Some(other))),
            None => left.push(row),
        }
    }
    let is_left = |row: &&BlameRow| !before.iter().any(|other| other.name == row.name);
    let mut came: Vec<&BlameRow> = after.iter().filter(is_left).collect();
    let same_bytes = |a: &BlameRow, b: &BlameRow, _: &[&BlameRow], _: &[&BlameRow]| {
        (a.bytes, a.blocks) == (b.bytes, b.blocks)
    };
    let only_ones = |a: &BlameRow, _: &BlameRow, left: &[&BlameRow], came: &[&BlameRow]| {
        let of_function = |rows: &[&BlameRow]| {
            rows.iter().filter(|row| function(&row.name) == function(&a.name)).count()
        };
        of_function(left) == 1 && of_function(came) == 1
    };
    take_moved(&mut left, &mut came, &mut rows, same_bytes);
    take_moved(&mut left, &mut came, &mut rows, only_ones);
    rows.extend(left.into_iter().map(|row| pair(Some(row), None)));
    rows.extend(came.into_iter().map(|row| pair(None, Some(row))));
    rows
}

/// Pairs lines of the same file and function that `fits` accepts.
fn take_moved(
    left: &mut Vec<&BlameRow>,
    came: &mut Vec<&BlameRow>,
    rows: &mut Vec<DiffRow>,
    fits: impl Fn(&BlameRow, &BlameRow, &[&BlameRow], &[&BlameRow]) -> bool,
) {
    let mut place = 0;
    while place < left.len() {
        let row = left[place];
        let is_it = |other: &&BlameRow| {
            function(&row.name).is_some()
                && function(&row.name) == function(&other.name)
                && fits(row, other, left, came)
        };
        match came.iter().position(is_it) {
            Some(other) => {
                rows.push(pair(Some(row), Some(came.remove(other))));
                left.remove(place);
            }
            None => place += 1,
        }
    }
}

/// File and function of a line's name, `file:line function`.
fn function(name: &str) -> Option<(&str, &str)> {
    let (place, function) = name.split_once(' ')?;
    let (file, line) = place.rsplit_once(':')?;
    line.parse::<u64>().ok().map(|_| (file, function))
}

fn pair(before: Option<&BlameRow>, after: Option<&BlameRow>) -> DiffRow {
    let numbers = |row: Option<&BlameRow>| row.map_or((0, 0), |row| (row.bytes, row.blocks));
    let (was, is) = (numbers(before), numbers(after));
    let change = match (before, after) {
        (None, _) => Change::New,
        (_, None) => Change::Gone,
        _ if was.0 < is.0 => Change::Larger,
        _ if was.0 > is.0 => Change::Smaller,
        _ => Change::Same,
    };
    let name = |row: &BlameRow| row.name.clone();
    let shown = after.or(before).map(name).unwrap_or_default();
    let moved_from = before.map(name).filter(|old| *old != shown);
    DiffRow { name: shown, moved_from, change, before: was, after: is }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blame(rows: &[(&str, Bytes)]) -> Blame {
        let row = |&(name, bytes): &(&str, Bytes)| BlameRow {
            name: name.to_owned(),
            bytes,
            blocks: 1,
            oldest_step: None,
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        Blame { live_bytes: rows.iter().map(|row| row.bytes).sum(), rows, ..Blame::default() }
    }

    fn changes(diff: &Diff) -> Vec<(&str, Change, i128)> {
        diff.rows.iter().map(|row| (&row.name[..], row.change, row.growth())).collect()
    }

    #[test]
    fn what_differs_most_comes_first_and_the_rows_add_up() {
        let before = blame(&[("a.py:1 f", 10), ("b.py:2 g", 20), ("c.py:3 h", 5)]);
        let after = blame(&[("a.py:1 f", 11), ("b.py:2 g", 20), ("d.py:4 i", 9)]);
        let diff = Diff::of(&before, &after);
        assert_eq!(
            changes(&diff),
            [
                ("d.py:4 i", Change::New, 9),
                ("c.py:3 h", Change::Gone, -5),
                ("a.py:1 f", Change::Larger, 1),
                ("b.py:2 g", Change::Same, 0),
            ]
        );
        assert_eq!(diff.growth(), diff.rows.iter().map(DiffRow::growth).sum::<i128>());
    }

    #[test]
    fn lines_that_moved_are_the_same_lines() {
        let before = blame(&[("a.py:10 f", 10), ("a.py:12 f", 20), ("b.py:7 g", 3)]);
        let after = blame(&[("a.py:11 f", 10), ("a.py:13 f", 20), ("b.py:8 g", 4)]);
        let diff = Diff::of(&before, &after);
        assert_eq!(diff.rows[0].moved_from.as_deref(), Some("b.py:7 g"));
        assert_eq!(diff.rows[0].change, Change::Larger);
        assert!(diff.rows[1..].iter().all(|row| row.change == Change::Same), "{diff:?}");
        let unlike = Diff::of(&blame(&[("a.py:1 f", 1)]), &blame(&[("a.py:1 g", 1)]));
        assert_eq!(changes(&unlike).len(), 2);
    }
}
