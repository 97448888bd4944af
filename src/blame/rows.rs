//! Blame: whose bytes they are that are live at one moment, by the line that asked for them or by another kind of name.
//!
//! ```text
//!   live bytes   ████████████████████████████████████████████████████████  at the peak
//!   rows         ███ model.py:84 ███┊██ train.py:30 ██┊█ no stack █┊ ...    each block in exactly one row
//! ```
//!
//! The rows add up to the live bytes of the moment, to the byte. Live is what was asked for and not yet given back, the
//! blocks that a stream still uses among them: PyTorch's `requested_bytes`.

use serde::Serialize;

use crate::trace::{Certainty, Coverage};
use crate::units::Bytes;

/// What a request without a call stack is called: Python has no frame in the threads that run the backward pass.
pub const NO_STACK: &str = "no Python stack: autograd's backward threads";

/// What a block is called that was live before the recording started, and about which nothing more is known.
pub const BEFORE: &str = "live before the recording started";

/// The kind of name that rows have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The line that asked: file, line and function.
    #[default]
    Line,
    /// The user's own line: the innermost outside of packages and of the standard library.
    Own,
    /// The file and the function of the line that asked.
    Function,
    /// Its Python module.
    Module,
    /// The lines of the whole call stack.
    Stack,
    /// The innermost annotation (`record_function`, optimizer) that was open then.
    Annotation,
    /// What it is for, as the program noted it or by the rule of [`Category`](super::Category).
    Category,
    /// PyTorch's `user_metadata` and `compile_context`.
    Metadata,
    /// The size that was asked for.
    Size,
}

impl By {
    /// Every kind with the name that is typed. A new kind has its line here, and its names in `blame::names`.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Line, "line"),
        (Self::Own, "own"),
        (Self::Function, "function"),
        (Self::Module, "module"),
        (Self::Stack, "stack"),
        (Self::Category, "category"),
        (Self::Annotation, "annotation"),
        (Self::Metadata, "metadata"),
        (Self::Size, "size"),
    ];

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, own)| *own == name).map(|(by, _)| by)
    }

    /// The name that is typed.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(by, _)| *by == self).map_or("", |(_, name)| name)
    }

    /// Whether it needs call stacks.
    pub fn needs_stacks(self) -> bool {
        matches!(self, Self::Line | Self::Own | Self::Function | Self::Module | Self::Stack)
    }
}

/// Live blocks of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BlameRow {
    /// The name, of the kind that was asked for.
    pub name: String,
    /// Where rows are lines: the user's own line from which most of the bytes were asked for, if that is another one.
    pub own: Option<String>,
    /// Bytes asked for.
    pub bytes: Bytes,
    /// Blocks.
    pub blocks: u64,
    /// Training step of the oldest of them, from 1; `None`: it is older than the first step, or there are none.
    pub oldest_step: Option<u64>,
}

/// The live bytes of one moment by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Blame {
    /// The trace file, as given.
    pub file: String,
    /// Index of the device in that file.
    pub device: u32,
    /// How much of the job the recording shows.
    pub coverage: Coverage,
    /// How the live bytes, or what an allocator holds, stand to those of the whole job. Only a peak may be exceeded
    /// elsewhere: what any other moment has is exact.
    pub certainty: Certainty,
    /// The allocator whose moment it is; `None`: of the program alone, whatever allocator it runs on.
    pub allocator: Option<String>,
    /// The moment in words.
    pub at: String,
    /// Index of the event after which it is so; `None`: before the first.
    pub event: Option<u64>,
    /// Microseconds since the first event.
    pub time_us: u64,
    /// Training step of the moment, from 1.
    pub step: Option<u64>,
    /// Bytes that are live: the sum of all rows.
    pub live_bytes: Bytes,
    /// Bytes held from the device, if an allocator was simulated.
    pub reserved_bytes: Option<Bytes>,
    /// Bytes among the live ones that were requested while the recording ran, and have no call stack.
    pub stackless_bytes: Bytes,
    /// Bytes among the live ones that were live before the recording started.
    pub before_bytes: Bytes,
    /// The kind of name.
    pub by: By,
    /// The rows, largest first.
    pub rows: Vec<BlameRow>,
}

impl BlameRow {
    /// The name, and behind it the user's own line that it was called from.
    pub fn with_own(&self) -> String {
        with_own(&self.name, self.own.as_deref())
    }
}

/// A line, and behind it the user's own line that called it.
pub(super) fn with_own(name: &str, own: Option<&str>) -> String {
    match own {
        Some(own) => format!("{name} < {own}"),
        None => name.to_owned(),
    }
}

impl Blame {
    /// The row with this name.
    pub fn row(&self, name: &str) -> Option<&BlameRow> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// The ranks of one job, each at its own moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct JobBlame {
    /// The job's name.
    pub name: String,
    /// The ranks that could be read, in order.
    pub ranks: Vec<RankBlame>,
}

/// One rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RankBlame {
    /// Number of the rank, if the file's name tells one.
    pub rank: Option<u64>,
    /// What is live there.
    pub blame: Blame,
}

/// A name whose bytes are not the same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RankDifference {
    /// The name.
    pub name: String,
    /// Bytes on the rank that has least, and its number.
    pub least: (Bytes, u64),
    /// Bytes on the rank that has most, and its number.
    pub most: (Bytes, u64),
}

impl JobBlame {
    /// The rank on which most is live; of equals the first.
    pub fn worst(&self) -> Option<&RankBlame> {
        self.ranks.iter().rev().max_by_key(|rank| rank.blame.live_bytes)
    }

    /// The names that differ between ranks, those that differ most first.
    pub fn differences(&self) -> Vec<RankDifference> {
        let mut names: Vec<&str> =
            self.ranks.iter().flat_map(|rank| &rank.blame.rows).map(|row| &row.name[..]).collect();
        names.sort_unstable();
        names.dedup();
        let mut found: Vec<RankDifference> =
            names.into_iter().filter_map(|name| self.difference(name)).collect();
        found.sort_by_key(|row| std::cmp::Reverse(row.most.0 - row.least.0));
        found
    }

    fn difference(&self, name: &str) -> Option<RankDifference> {
        let bytes = |(place, rank): (usize, &RankBlame)| {
            let bytes = rank.blame.row(name).map_or(0, |row| row.bytes);
            (bytes, rank.rank.unwrap_or(place as u64))
        };
        let all = || self.ranks.iter().enumerate().map(bytes);
        let least = all().min_by_key(|&(bytes, _)| bytes)?;
        let most = all().max_by_key(|&(bytes, rank)| (bytes, std::cmp::Reverse(rank)))?;
        (least.0 < most.0).then(|| RankDifference { name: name.to_owned(), least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(number: u64, rows: &[(&str, Bytes)]) -> RankBlame {
        let row = |&(name, bytes): &(&str, Bytes)| BlameRow {
            name: name.to_owned(),
            bytes,
            ..BlameRow::default()
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        let live_bytes = rows.iter().map(|row| row.bytes).sum();
        RankBlame { rank: Some(number), blame: Blame { rows, live_bytes, ..Blame::default() } }
    }

    #[test]
    fn ranks_differ_in_what_one_of_them_has_more_of() {
        let ranks = vec![
            rank(0, &[("a", 10), ("b", 5)]),
            rank(1, &[("a", 10), ("b", 7), ("c", 1)]),
            rank(2, &[("a", 10), ("b", 8)]),
        ];
        let job = JobBlame { name: "job".to_owned(), ranks };
        assert_eq!(job.worst().and_then(|rank| rank.rank), Some(1), "of equals the first");
        let found = job.differences();
        let names: Vec<_> = found.iter().map(|row| &row.name[..]).collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!((found[0].least, found[0].most), ((5, 0), (8, 2)));
        assert_eq!((found[1].least, found[1].most), ((0, 0), (1, 1)));
    }

    #[test]
    fn every_kind_is_known_by_its_name() {
        for (by, name) in By::ALL {
            assert_eq!((By::from_name(name), by.name()), (Some(by), name));
        }
        assert_eq!(By::from_name("colour"), None);
    }
}
