//! Difference: the peaks of two recordings of one program, row by row.
//!
//! ```text
//!   before   train.py:30 step   2 GiB      model.py:84 f   1 GiB
//!   after    train.py:31 step   2 GiB      model.py:84 f   3 GiB      new.py:7 g   1 GiB
//!            same (it moved)               larger                     new
//! ```
//!
//! Rows are matched by their names. A line whose name is left over on both sides moved, if file, function and bytes are
//! the same; or if it is the only one of its function left over on either side. In addition the call stacks must prove
//! that its file was changed: one of its lines belongs to another function than before. Two lines of an unchanged file
//! are therefore never taken for one, however alike they are ([`Lines`]).
//!
//! ```text
//!   before   a.py:10 f   a.py:14 g                 after   a.py:14 f   a.py:18 g     line 14 was g's, and is f's now
//! ```
//!
//! Where nothing proves it, a line that is gone and one that is new stay two rows. If they are of one function and have
//! the same bytes and blocks, they come last: the function has not changed ([`Diff::renumbered`]).

use std::str::FromStr;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::files::Files;
use super::lines::{Lines, line_of};
use super::names::Namer;
use super::rows::{Blame, BlameRow, By};
use super::{BlameError, Question, blame_by};
use crate::sim::Opened;
use crate::trace::Coverage;
use crate::units::{Bytes, parse_share, parse_size};

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
    /// It is there once, and the other recording is not the whole job.
    Unknown,
}

impl Change {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Larger => "larger",
            Self::Smaller => "smaller",
            Self::Same => "same",
            Self::Unknown => "unknown",
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
    pub fn growth(&self) -> i128 {
        i128::from(self.after.0) - i128::from(self.before.0)
    }
}

/// The peaks of two recordings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Both files, as given.
    pub files: [String; 2],
    /// How much of their jobs they show. Unless both are complete, rows are of what was recorded, and peaks are bounds.
    pub coverage: [Coverage; 2],
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
    /// The difference of two peaks by the same kind of name. `lines` are those of both programs.
    pub fn of(before: &Blame, after: &Blame, lines: &[Lines; 2]) -> Self {
        let mut rows = matched(&before.rows, &after.rows, lines);
        let renumbered: FxHashSet<String> =
            renumbered(&rows).into_iter().map(|place| rows[place].name.clone()).collect();
        rows.sort_by(|a, b| {
            let growth = |row: &DiffRow| match renumbered.contains(&row.name) {
                true => 0,
                false => row.growth(),
            };
            let size = |row: &DiffRow| (growth(row).unsigned_abs(), growth(row), row.after.0);
            size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
        });
        Self {
            files: [before.file.clone(), after.file.clone()],
            coverage: Default::default(),
            live_bytes: [before.live_bytes, after.live_bytes],
            reserved_bytes: [None, None],
            by: after.by,
            rows,
        }
    }

    /// The same of recordings that show this much of their jobs.
    #[must_use]
    pub fn of_parts(mut self, coverage: [Coverage; 2]) -> Self {
        for row in &mut self.rows {
            let is_open = match row.change {
                Change::New => coverage[0].is_partial(),
                Change::Gone => coverage[1].is_partial(),
                _ => false,
            };
            row.change = if is_open { Change::Unknown } else { row.change };
        }
        Self { coverage, ..self }
    }

    /// Places of the rows that are gone and of those that are new in the same function with the same bytes and blocks.
    /// Either these lines have other numbers, or the function does the same on other lines: nothing tells which.
    pub fn renumbered(&self) -> Vec<usize> {
        renumbered(&self.rows)
    }

    /// Live bytes at the peak more than before; negative if fewer. It is the sum of all rows' growth.
    pub fn growth(&self) -> i128 {
        i128::from(self.live_bytes[1]) - i128::from(self.live_bytes[0])
    }
}

fn renumbered(rows: &[DiffRow]) -> Vec<usize> {
    let mut gone: FxHashMap<_, Vec<usize>> = FxHashMap::default();
    let of = |lacks: fn(&DiffRow) -> bool| {
        let rows = rows.iter().enumerate().filter(move |(_, row)| lacks(row));
        rows.filter_map(|(place, row)| Some((place, row, function(&row.name)?)))
    };
    for (place, row, function) in of(|row| row.after.1 == 0) {
        gone.entry((function, row.before)).or_default().push(place);
    }
    let twins = of(|row| row.before.1 == 0).filter_map(|(place, row, function)| {
        Some([place, gone.get_mut(&(function, row.after))?.pop()?])
    });
    twins.flatten().collect()
}

fn matched(before: &[BlameRow], after: &[BlameRow], lines: &[Lines; 2]) -> Vec<DiffRow> {
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
    take_moved(&mut left, &mut came, &mut rows, lines, same_bytes);
    take_moved(&mut left, &mut came, &mut rows, lines, only_ones);
    rows.extend(left.into_iter().map(|row| pair(Some(row), None)));
    rows.extend(came.into_iter().map(|row| pair(None, Some(row))));
    rows
}

/// Pairs lines of the same file and function that `fits` accepts.
fn take_moved(
    left: &mut Vec<&BlameRow>,
    came: &mut Vec<&BlameRow>,
    rows: &mut Vec<DiffRow>,
    lines: &[Lines; 2],
    fits: impl Fn(&BlameRow, &BlameRow, &[&BlameRow], &[&BlameRow]) -> bool,
) {
    let mut place = 0;
    while place < left.len() {
        let row = left[place];
        let is_it = |other: &&BlameRow| {
            function(&row.name).is_some()
                && function(&row.name) == function(&other.name)
                && is_moved(lines, &row.name, &other.name)
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

fn is_moved(lines: &[Lines; 2], from: &str, to: &str) -> bool {
    let (Some((file, from, _)), Some((_, to, _))) = (line_of(from), line_of(to)) else {
        return false;
    };
    lines[0].moved(&lines[1], file, from, to)
}

/// File and function of a line's name, `file:line function`.
fn function(name: &str) -> Option<(&str, &str)> {
    line_of(name).map(|(file, _, function)| (file, function))
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

/// How much larger a peak may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// A share of the peak before.
    Share(f64),
    /// This many bytes.
    Bytes(Bytes),
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        // A part of a byte was meant for a share.
        let is_fraction = text.contains('.') && text.ends_with(|c: char| c.is_ascii_digit());
        let share = || parse_share(text).ok().filter(|&share| share >= 0.0).map(Self::Share);
        let tolerance = match text.ends_with('%') {
            true => share(),
            false => parse_size(text).ok().filter(|_| !is_fraction).map(Self::Bytes),
        };
        tolerance.ok_or_else(|| {
            format!("invalid tolerance {text:?}; expected a share (1%) or a size (64MiB)")
        })
    }
}

impl Tolerance {
    /// Whether the second peak is larger than is tolerated; `None` if the recordings do not show it. The peak of a job
    /// that was recorded in part may be larger: before, it makes growth less, and after, more.
    pub fn is_exceeded(self, diff: &Diff) -> Option<bool> {
        let is_exceeded = match self {
            Self::Share(share) => diff.growth() as f64 > share * diff.live_bytes[0] as f64,
            Self::Bytes(bytes) => diff.growth() > i128::from(bytes),
        };
        let [before, after] = diff.coverage.each_ref().map(Coverage::is_partial);
        let is_open = if is_exceeded { before } else { after };
        (!is_open).then_some(is_exceeded)
    }
}

/// The peaks of live bytes of two recordings, by name.
///
/// # Errors
/// If one of them is empty.
pub fn diff(before: &Opened, after: &Opened, by: By, innermost: bool) -> Result<Diff, BlameError> {
    let question = Question { by, innermost, ..Question::default() };
    let [old, new] = Files::of_both(&before.records.stacks, &after.records.stacks);
    let mut namers = [
        Namer::with_files(before, by, innermost, old),
        Namer::with_files(after, by, innermost, new),
    ];
    let lines = [namers[0].lines(), namers[1].lines()];
    let [old, new] = &mut namers;
    let peaks = [blame_by(before, &question, old)?, blame_by(after, &question, new)?];
    let coverage = [before, after].map(|opened| opened.coverage.clone());
    let mut diff = Diff::of(&peaks[0], &peaks[1], &lines).of_parts(coverage);
    let reserved = |opened: &Opened| opened.recorded.as_ref().map(|run| run.reserved_peak_bytes);
    diff.reserved_bytes = [reserved(before), reserved(after)];
    Ok(diff)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::Gap;

    fn blame(rows: &[(&str, Bytes)]) -> Blame {
        let row = |&(name, bytes): &(&str, Bytes)| BlameRow {
            name: name.to_owned(),
            bytes,
            blocks: 1,
            ..BlameRow::default()
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        Blame { live_bytes: rows.iter().map(|row| row.bytes).sum(), rows, ..Blame::default() }
    }

    /// The difference, where the stacks have these lines in addition to those of the rows.
    fn diff(before: &Blame, after: &Blame, others: [&[&str]; 2]) -> Diff {
        let lines = |blame: &Blame, others: &[&str]| {
            Lines::of(blame.rows.iter().map(|row| &row.name[..]).chain(others.iter().copied()))
        };
        Diff::of(before, after, &[lines(before, others[0]), lines(after, others[1])])
    }

    fn changes(diff: &Diff) -> Vec<(&str, Change, i128)> {
        diff.rows.iter().map(|row| (&row.name[..], row.change, row.growth())).collect()
    }

    #[test]
    fn what_differs_most_comes_first_and_the_rows_add_up() {
        let before = blame(&[("a.py:1 f", 10), ("b.py:2 g", 20), ("c.py:3 h", 5)]);
        let after = blame(&[("a.py:1 f", 11), ("b.py:2 g", 20), ("d.py:4 i", 9)]);
        let diff = diff(&before, &after, [&[], &[]]);
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
        let before_lines = ["a.py:13 main", "b.py:8 h", "b.py:20 main"];
        let after_lines = ["a.py:14 main", "b.py:9 h", "b.py:21 main"];
        let diff = diff(&before, &after, [&before_lines, &after_lines]);
        assert_eq!(diff.rows[0].moved_from.as_deref(), Some("b.py:7 g"));
        assert_eq!(diff.rows[0].change, Change::Larger);
        assert!(diff.rows[1..].iter().all(|row| row.change == Change::Same), "{diff:?}");
        let unlike = self::diff(&blame(&[("a.py:1 f", 1)]), &blame(&[("a.py:1 g", 1)]), [&[], &[]]);
        assert_eq!(changes(&unlike).len(), 2);
    }

    #[test]
    fn two_lines_of_an_unchanged_file_are_two_lines() {
        let (before, after) = (blame(&[("a.py:10 f", 10)]), blame(&[("a.py:12 f", 10)]));
        for others in [
            ["a.py:34 main", "a.py:34 main"],
            ["a.py:3 g", "a.py:3 g"],
            ["a.py:34 main", "a.py:36 main"],
            // A comprehension has the line of the function around it.
            ["a.py:12 <listcomp>", "a.py:14 <listcomp>"],
        ] {
            let found = diff(&before, &after, [&others[..1], &others[1..]]);
            assert!(found.rows.iter().all(|row| row.moved_from.is_none()), "{others:?}: {found:?}");
            assert_eq!(found.renumbered().len(), 2);
        }
        let found = diff(&before, &after, [&["a.py:12 main"], &["a.py:14 main"]]);
        assert_eq!(found.rows[0].moved_from.as_deref(), Some("a.py:10 f"));
    }

    #[test]
    fn what_only_has_other_numbers_comes_after_what_grew() {
        let before = blame(&[("a.py:10 f", 900), ("a.py:12 f", 5), ("a.py:20 g", 7)]);
        let after = blame(&[("a.py:11 f", 900), ("a.py:12 f", 9), ("a.py:21 g", 8)]);
        let found = diff(&before, &after, [&[], &[]]);
        let names: Vec<&str> = found.rows.iter().map(|row| &row.name[..]).collect();
        assert_eq!(names, ["a.py:21 g", "a.py:20 g", "a.py:12 f", "a.py:11 f", "a.py:10 f"]);
        assert_eq!(found.renumbered().len(), 2);
        assert_eq!(found.growth(), found.rows.iter().map(DiffRow::growth).sum::<i128>());
    }

    /// Lines of a made-up file, each with its function and the bytes that it holds before and after; where a recording
    /// has nothing of a line, `None`.
    type Source = Vec<(u64, usize, Option<Bytes>, Option<Bytes>)>;

    const FUNCTIONS: [&str; 4] = ["<module>", "f", "forward", "step"];

    fn sources() -> impl Strategy<Value = Source> {
        let bytes = || prop::option::of(1..4_u64);
        let lines = prop::collection::btree_map(1..40_u64, (0..4_usize, bytes(), bytes()), 0..20);
        lines.prop_map(|lines| lines.into_iter().map(|(n, (f, a, b))| (n, f, a, b)).collect())
    }

    /// A recording of the file: in the first `before` the lines as they are, in the second those behind `from` further
    /// down by `shift`.
    fn recording(source: &Source, is_after: bool, from: u64, shift: u64) -> (Blame, Lines) {
        let line = |&(number, function, before, after): &(u64, usize, _, Option<Bytes>)| {
            let number = if number >= from { number + shift } else { number };
            let bytes: Option<Bytes> = if is_after { after } else { before };
            Some((format!("a.py:{number} {}", FUNCTIONS[function]), bytes?))
        };
        let rows: Vec<(String, Bytes)> = source.iter().filter_map(line).collect();
        let rows: Vec<(&str, Bytes)> = rows.iter().map(|(name, n)| (&name[..], *n)).collect();
        (blame(&rows), Lines::of(rows.iter().map(|(name, _)| *name)))
    }

    proptest! {
        #[test]
        fn lines_of_an_unchanged_file_are_never_paired(source in sources()) {
            let (before, old) = recording(&source, false, 0, 0);
            let (after, new) = recording(&source, true, 0, 0);
            let found = Diff::of(&before, &after, &[old, new]);
            prop_assert!(found.rows.iter().all(|row| row.moved_from.is_none()), "{found:?}");
            prop_assert_eq!(found.growth(), found.rows.iter().map(DiffRow::growth).sum::<i128>());
        }

        /// Of a changed file lines may be paired, within their function.
        #[test]
        fn lines_of_a_changed_file_are_paired_within_their_function(
            source in sources(),
            from in 1..40_u64,
            shift in 1..5_u64,
        ) {
            let (before, old) = recording(&source, false, 0, 0);
            let (after, new) = recording(&source, true, from, shift);
            let found = Diff::of(&before, &after, &[old, new]);
            for row in &found.rows {
                let Some(was) = &row.moved_from else { continue };
                prop_assert_eq!(function(was), function(&row.name), "{:?}", row);
            }
            prop_assert_eq!(found.growth(), found.rows.iter().map(DiffRow::growth).sum::<i128>());
        }
    }

    /// `None`: the job's peak after may be larger than what was recorded of it, the one before too.
    #[test]
    fn of_parts_only_what_no_larger_peak_refutes_is_known() {
        let part = || Coverage::new(vec![Gap::Growing]);
        let tolerance: Tolerance = "1%".parse().unwrap();
        for (live_bytes, of_first, of_second, of_both) in
            [([1000, 1011], None, Some(true), None), ([1000, 1010], Some(false), None, None)]
        {
            let is_exceeded =
                |coverage| tolerance.is_exceeded(&Diff { live_bytes, coverage, ..Diff::default() });
            assert_eq!(is_exceeded([part(), Coverage::default()]), of_first);
            assert_eq!(is_exceeded([Coverage::default(), part()]), of_second);
            assert_eq!(is_exceeded([part(), part()]), of_both);
        }
    }

    #[test]
    fn a_tolerance_is_a_share_or_a_size() {
        let diff = Diff { live_bytes: [1000, 1010], ..Diff::default() };
        for (text, is_exceeded) in
            [("0%", true), ("0.9%", true), ("1%", false), ("9B", true), ("10", false)]
        {
            let tolerance: Tolerance = text.parse().unwrap();
            assert_eq!(tolerance.is_exceeded(&diff), Some(is_exceeded), "{text}");
        }
        for text in ["", "%", "-1%", "x", "nan%", "0.12"] {
            assert!(text.parse::<Tolerance>().is_err(), "{text}");
        }
    }
}
