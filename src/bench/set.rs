//! The set: which traces there are, how each was made, and which part each belongs to.
//!
//! A list is a table with a line for each trace. Nobody chooses the part of a trace: it follows from the name. Of the
//! XXH3-128 of the name, in hexadecimal, the last digit decides: 0 to 4 is blind, the others are public.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::input_error::InputError;
use crate::reader_error;

/// The lists that are in the program.
const LISTS: [(&str, &str); 2] =
    [("small", include_str!("small.csv")), ("full", include_str!("full.csv"))];

/// Whether settings may be chosen on a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// They may.
    Public,
    /// It only judges.
    Blind,
}

impl Part {
    /// The part of a trace of this name.
    pub fn of(name: &str) -> Self {
        match XxHash3_128::oneshot(name.as_bytes()) % 16 {
            0..5 => Self::Blind,
            _ => Self::Public,
        }
    }
}

impl Display for Part {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Blind => "blind",
        })
    }
}

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceEntry {
    /// Its name, from which its part follows.
    pub name: String,
    /// The file, from the folder of the set.
    pub file: PathBuf,
    /// What the job does.
    pub job: String,
    /// How the trace came to be: recorded on a GPU, or predicted.
    pub made: String,
    /// The script that makes it, with its arguments; for recordings, where the script stands.
    pub script: String,
    /// Versions of the software.
    pub software: String,
    /// Licence of the script and the trace.
    pub licence: String,
    /// What PyTorch reserved at most when the same script ran on a GPU, in bytes, where it did.
    #[serde(default)]
    pub recorded_peak_bytes: Option<u64>,
}

impl TraceEntry {
    fn cure(&self) -> String {
        let name = &self.name;
        match self.made.starts_with("predicted") {
            true => format!("make it with 'python benchmark/make.py --only {name}'"),
            false => "run this in a clone of the repository, or give one with --folder".to_owned(),
        }
    }

    /// Its part.
    pub fn part(&self) -> Part {
        Part::of(&self.name)
    }
}

/// A list of traces, and where they are.
#[derive(Debug, Clone)]
pub struct Set {
    /// `small`, `full`, or the file.
    pub name: String,
    /// The traces, with files as they are to be opened.
    pub traces: Vec<TraceEntry>,
}

impl Set {
    /// A list of the program, or one in a file. Its traces are in `folder`.
    ///
    /// # Errors
    /// If there is no such list, a line of it is wrong, or a trace is not there.
    pub fn open(name: &str, folder: Option<&Path>) -> Result<Self, InputError> {
        let path = Path::new(name);
        let (text, beside) = match LISTS.iter().find(|list| list.0 == name) {
            Some((_, text)) => ((*text).to_owned(), Path::new("")),
            None => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|error| InputError::unreadable(path, error))?;
                (text, path.parent().unwrap_or(Path::new("")))
            }
        };
        let set = Self::read(name, &text, folder.unwrap_or(beside))?;
        match set.traces.iter().find(|entry| !entry.file.exists()) {
            None => Ok(set),
            Some(entry) => {
                let problem = format!("no such trace of the set {name}; {}", entry.cure());
                Err(InputError::at(entry.file.display(), problem))
            }
        }
    }

    fn read(name: &str, text: &str, folder: &Path) -> Result<Self, InputError> {
        let wrong = |reason| InputError::at(name, reason);
        let lines = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let traces: Result<Vec<TraceEntry>, _> = lines.into_deserialize().collect();
        let mut traces = traces.map_err(|error| wrong(reader_error::table(&error)))?;
        for (place, entry) in traces.iter().enumerate() {
            if traces[..place].iter().any(|other| other.name == entry.name) {
                return Err(wrong(format!("the trace {:?} is there twice", entry.name)));
            }
        }
        if traces.is_empty() {
            return Err(wrong("the list has no traces".to_owned()));
        }
        traces.iter_mut().for_each(|entry| entry.file = folder.join(&entry.file));
        Ok(Self { name: name.to_owned(), traces })
    }

    /// Whether this is the name of a list of the program.
    pub fn is_built_in(name: &str) -> bool {
        LISTS.iter().any(|list| list.0 == name)
    }

    /// Only the traces of one part.
    ///
    /// # Errors
    /// If there are none.
    pub fn only(mut self, part: Part) -> Result<Self, InputError> {
        self.traces.retain(|entry| entry.part() == part);
        match self.traces.is_empty() {
            false => Ok(self),
            true => Err(InputError::at(self.name, format!("no trace of the set is {part}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_are_lists_with_both_parts_and_the_small_one_is_in_the_full_one() {
        let [small, full] = LISTS.map(|(name, text)| Set::read(name, text, Path::new("")).unwrap());
        assert!(small.traces.len() >= 20 && full.traces.len() == 200);
        assert!(small.traces.iter().all(|entry| full.traces.contains(entry)));
        let told = |entry: &TraceEntry| {
            [&entry.job, &entry.script, &entry.software, &entry.licence]
                .iter()
                .all(|s| !s.is_empty())
        };
        assert!(full.traces.iter().all(told));
        // A third of 200, five sixteenths on average.
        let blind = full.only(Part::Blind).unwrap().traces.len();
        assert!((45..=80).contains(&blind), "{blind} of 200 are blind");
    }

    #[test]
    fn the_rule_of_the_parts_is_the_one_written_down() {
        for name in ["a", "b", "llama", "opt-1.3b-N"] {
            let text = format!("{:032x}", XxHash3_128::oneshot(name.as_bytes()));
            let is_blind = "01234".contains(&text[31..]);
            assert_eq!(Part::of(name) == Part::Blind, is_blind, "{name}: {text}");
        }
        assert_eq!(Part::of("a"), Part::Public);
    }

    #[test]
    fn a_list_that_is_wrong_says_where() {
        let head = "name,file,job,made,script,software,licence\n";
        let error = |text: &str| Set::read("mine", text, Path::new("")).unwrap_err().to_string();
        assert_eq!(error(head), "mine: the list has no traces");
        let line = "a,a.csv,j,m,s,v,l\n";
        assert!(error(&format!("{head}{line}{line}")).contains("\"a\" is there twice"));
        assert!(error(&format!("{head}a,b\n")).starts_with("mine: "));
    }
}
