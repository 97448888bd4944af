//! Submissions: the figures of a benchmark in a file, which anybody can check by running it again.
//!
//! What depends on the machine is no part of the check. A trace is named by its content, so that figures of another
//! trace are not compared.

use std::collections::{BTreeMap, BTreeSet};
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
    /// If it is none, of another version, or has not one row for each allocator on each trace.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let wrong = |reason| InputError::at(path.display(), reason);
        let text = fs::read(path).map_err(|error| InputError::unreadable(path, error))?;
        let read: Self = serde_json::from_slice(&text)
            .map_err(|error| wrong(format!("no submission of 'gmlake-sim bench': {error}")))?;
        if read.format != FORMAT {
            return Err(wrong(format!("format {:?}; expected {FORMAT:?}", read.format)));
        }
        match read.problem() {
            None => Ok(read),
            Some(problem) => Err(wrong(problem)),
        }
    }

    /// What is wrong with the rows: there is one for each allocator on each trace.
    fn problem(&self) -> Option<String> {
        let of_trace = |trace| self.allocators.keys().map(move |name| (trace, name));
        let mut missing: BTreeSet<_> = self.traces.keys().flat_map(of_trace).collect();
        if missing.is_empty() {
            return Some("the submission has no rows".to_owned());
        }
        for Row { trace, allocator, .. } in &self.rows {
            if !missing.remove(&(trace, allocator)) {
                return Some(format!("a row too many, of {allocator} on {trace}"));
            }
        }
        missing.first().map(|(trace, name)| format!("the row of {name} on {trace} is missing"))
    }

    /// Only those traces of a set that were submitted.
    ///
    /// # Errors
    /// If one is not in the set, or another file.
    pub fn traces_of(&self, mut set: Set) -> Result<Set, InputError> {
        set.traces.retain(|entry| self.traces.contains_key(&entry.name));
        let here = hashes(&set)?;
        match self.traces.iter().find(|(name, hash)| here.get(*name) != Some(hash)) {
            Some((trace, _)) if here.contains_key(trace) => {
                let problem = "the file is not the one of the submission; make the set anew";
                Err(InputError::at(trace, problem))
            }
            Some((trace, _)) => {
                let Set { name, .. } = set;
                let problem = format!("no trace of the set {name}; expected {} as --set", self.set);
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
        let mut differences = Vec::new();
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
        ("oom_count", row.oom_count.to_string()),
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
    };
    set.traces.iter().map(hash).collect()
}
