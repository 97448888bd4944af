//! Submissions: the figures of a benchmark in a file, which anybody can check by running it again.
//!
//! What depends on the machine is no part of the check. A trace is named by its content, so that figures of another
//! trace are not compared.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::data::{Bench, Row};
use super::set::Set;
use crate::input_error::InputError;

/// What the files say of themselves; raised when a field changes its meaning.
const FORMAT: &str = "gmlake-bench 1";

/// A file that was submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// `gmlake-bench 1`.
    pub format: String,
    /// Version of gmlake that made it.
    pub tool_version: String,
    /// Name of the set.
    pub set: String,
    /// Name of the price list.
    pub profile: String,
    /// XXH3-128 of the file of each trace, in hexadecimal.
    pub traces: BTreeMap<String, String>,
    /// The allocators, with the options that differ from their defaults, as `name=value`.
    pub allocators: BTreeMap<String, Vec<String>>,
    /// A row for each allocator on each trace.
    pub rows: Vec<Row>,
}

/// A figure that does not come out again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name of the trace.
    pub trace: String,
    /// Name of the allocator.
    pub allocator: String,
    /// Name of the figure.
    pub figure: &'static str,
    /// As submitted.
    pub submitted: String,
    /// As it is now.
    pub found: String,
}

impl Submission {
    /// What is to be submitted of a benchmark.
    ///
    /// # Errors
    /// If a trace cannot be read.
    pub fn new(
        bench: &Bench,
        set: &Set,
        allocators: BTreeMap<String, Vec<String>>,
    ) -> Result<Self, InputError> {
        Ok(Self {
            format: FORMAT.to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            set: set.name.clone(),
            profile: bench.profile.clone(),
            traces: hashes(set)?,
            allocators,
            rows: bench.rows.clone(),
        })
    }

    /// Reads a submission.
    ///
    /// # Errors
    /// If it is none, or of another version.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let wrong = |reason| InputError::at(path.display(), reason);
        let text = fs::read(path).map_err(|error| InputError::unreadable(path, error))?;
        let read: Self = serde_json::from_slice(&text)
            .map_err(|error| wrong(format!("no submission of 'gmlake-sim bench': {error}")))?;
        match read.format == FORMAT {
            true => Ok(read),
            false => Err(wrong(format!("format {:?}; expected {FORMAT:?}", read.format))),
        }
    }

    /// Only those traces of a set that were submitted.
    ///
    /// # Errors
    /// If one is not in the set, or another file.
    pub fn traces_of(&self, mut set: Set) -> Result<Set, InputError> {
        set.traces.retain(|entry| self.traces.contains_key(&entry.name));
        let here = hashes(&set)?;
        match self.traces.iter().find(|(name, hash)| here.get(*name) != Some(hash)) {
            Some((trace, _)) => {
                let problem = "the file is not the one of the submission; make the set anew";
                Err(InputError::at(trace, problem))
            }
            None => Ok(set),
        }
    }

    /// Submissions together, as one benchmark. Nothing runs.
    ///
    /// # Errors
    /// If one cannot be read, is of other traces or prices than the first, or has an allocator that another one has.
    pub fn join(files: &[PathBuf]) -> Result<Bench, InputError> {
        let mut all: Vec<Self> = Vec::new();
        for path in files {
            let next = Self::open(path)?;
            if let Some(reason) = all.iter().find_map(|other| next.clash(other)) {
                return Err(InputError::at(path.display(), reason));
            }
            all.push(next);
        }
        let (set, profile) =
            all.first().map(|s| (s.set.clone(), s.profile.clone())).unwrap_or_default();
        let mut rows: Vec<Row> = all.into_iter().flat_map(|submission| submission.rows).collect();
        rows.sort_by(|one, other| one.trace.cmp(&other.trace));
        Ok(Bench::new(&set, &profile, rows))
    }

    /// Why this submission cannot stand in a table with another.
    fn clash(&self, other: &Self) -> Option<String> {
        let both = self.allocators.keys().find(|name| other.allocators.contains_key(*name));
        if (&self.profile, &self.traces) != (&other.profile, &other.traces) {
            Some("other traces or other prices than the files before it".to_owned())
        } else {
            both.map(|name| format!("{name} is in a file before it, too"))
        }
    }

    /// What does not come out again in these rows.
    pub fn differences(&self, found: &[Row]) -> Vec<Difference> {
        let same =
            |row: &&Row, other: &Row| row.trace == other.trace && row.allocator == other.allocator;
        let is_missing = |row: &&Row| !self.rows.iter().any(|other| same(&other, row));
        let missing = found.iter().filter(is_missing).map(|row| Difference {
            trace: row.trace.clone(),
            allocator: row.allocator.clone(),
            figure: "reserved_peak_bytes",
            submitted: "nothing".to_owned(),
            found: row.reserved_peak_bytes.to_string(),
        });
        let mut differences: Vec<Difference> = missing.collect();
        for row in &self.rows {
            let now = found.iter().find(|other| same(other, row)).map(figures).unwrap_or_default();
            for (place, (figure, submitted)) in figures(row).into_iter().enumerate() {
                let found = now.get(place).map_or("nothing", |(_, value)| value);
                if found != submitted {
                    differences.push(Difference {
                        trace: row.trace.clone(),
                        allocator: row.allocator.clone(),
                        figure,
                        submitted,
                        found: found.to_owned(),
                    });
                }
            }
        }
        differences
    }
}

/// The figures that come out the same on every machine.
fn figures(row: &Row) -> Vec<(&'static str, String)> {
    let number = |value: Option<u64>| value.map_or("none".to_owned(), |value| value.to_string());
    vec![
        ("part", format!("{:?}", row.part)),
        ("live_peak_bytes", row.live_peak_bytes.to_string()),
        ("reserved_peak_bytes", row.reserved_peak_bytes.to_string()),
        ("card", row.card.clone().unwrap_or_else(|| "none".to_owned())),
        ("possible_card", row.possible_card.clone().unwrap_or_else(|| "none".to_owned())),
        ("driver_calls", row.driver_calls.to_string()),
        ("driver_once_ns", number(row.driver_once_ns)),
        ("driver_step_ns", number(row.driver_step_ns)),
        ("requests", row.requests.to_string()),
    ]
}

/// The hash of each trace's file.
fn hashes(set: &Set) -> Result<BTreeMap<String, String>, InputError> {
    let hash = |entry: &super::TraceEntry| {
        let file = &entry.file;
        let bytes = fs::read(file).map_err(|error| InputError::unreadable(file, error))?;
        Ok((entry.name.clone(), format!("{:032x}", XxHash3_128::oneshot(&bytes))))
        ("oom_count", row.oom_count.to_string()),
    };
    set.traces.iter().map(hash).collect()
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::row;
    use super::*;

    fn submission(rows: Vec<Row>) -> Submission {
        Submission {
            format: FORMAT.to_owned(),
            tool_version: String::new(),
            set: "mine".to_owned(),
            profile: "h200".to_owned(),
            traces: BTreeMap::new(),
            allocators: BTreeMap::new(),
            rows,
        }
    }

    #[test]
    fn the_same_figures_reproduce_and_host_time_does_not_count() {
        let submitted = submission(vec![row("a", "lake", 105, 50)]);
        let now = Row { host_ns_per_request: Some(9.0), ..row("a", "lake", 105, 50) };
        assert_eq!(submitted.differences(&[now]), []);
    }

    #[test]
    fn a_figure_that_is_better_than_true_is_found() {
        let submitted = submission(vec![row("a", "lake", 101, 50)]);
        let differences = submitted.differences(&[row("a", "lake", 105, 50)]);
        assert_eq!(differences.len(), 1);
        let only = &differences[0];
        assert_eq!((only.figure, only.submitted.as_str()), ("reserved_peak_bytes", "101"));
        assert_eq!(only.found, "105");
        assert_eq!(submitted.differences(&[]).len(), 10);
    }

    #[test]
    fn a_row_that_was_left_out_is_missed() {
        let all = [row("a", "lake", 105, 50), row("b", "lake", 190, 50)];
        let differences = submission(all[..1].to_vec()).differences(&all);
        let missed: Vec<_> = differences.iter().map(|d| (&*d.trace, &*d.submitted)).collect();
        assert_eq!(missed, [("b", "nothing")]);
    }
}
