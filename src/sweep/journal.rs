//! The journal of a sweep, so that one that was killed continues where it was.
//!
//! A journal is a file next to the output: a first line that says what it is, then a line for each finished run, with
//! all that the result depends on as its key. A line is written at once and in one piece; if the end of the last one
//! is missing, its run is made again. Another trace, option, profile or version of this program has another key, so a
//! journal never answers for what it has not seen.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::data::SweepRow;
use crate::input_error::InputError;

const HEADER: &str = "{\"gmlake-sim\":\"journal of a sweep\",\"format\":1}";

/// A journal that is open for more.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    known: FxHashMap<String, SweepRow>,
}

#[derive(Serialize, Deserialize)]
struct Line<K, R> {
    key: K,
    row: R,
}

impl Journal {
    /// Opens a journal or begins one.
    ///
    /// # Errors
    /// If it cannot be written, is in use, or is no journal.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let wrong = |problem| InputError::at(path.display(), problem);
        let failed = |error| InputError::at(path.display(), error);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path).map_err(failed)?;
        file.try_lock().map_err(|_| wrong("another sweep is writing this journal"))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let (text, rest) = text.split_at(whole);
        let mut lines = text.split(|&byte| byte == b'\n');
        let first = lines.next().unwrap_or_default();
        // The first line may be torn too; nothing else is without an end.
        let is_ours = if whole == 0 {
            HEADER.as_bytes().starts_with(rest)
        } else {
            first == HEADER.as_bytes()
        };
        if !is_ours {
            return Err(wrong("not the journal of a sweep: remove it or name another file"));
        }
        file.set_len(whole as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        if whole == 0 {
            writeln!(file, "{HEADER}").map_err(failed)?;
        }
        let known =
            lines.filter_map(|line| serde_json::from_slice::<Line<String, SweepRow>>(line).ok());
        let known = known.map(|line| (line.key, line.row)).collect();
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), known })
    }

    /// The result of an earlier sweep's run.
    pub fn known(&self, key: &str) -> Option<&SweepRow> {
        self.known.get(key)
    }

    /// A run that is not `ours`, by its key and its result.
    pub(super) fn stranger(&self, ours: impl Fn(&str, &SweepRow) -> bool) -> Option<&SweepRow> {
        let strangers = self.known.iter().filter(|(key, row)| !ours(key, row));
        strangers.map(|(_, row)| row).min_by(|a, b| a.file.cmp(&b.file))
    }

    /// The file that it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs that an earlier sweep has made.
    pub fn runs(&self) -> usize {
        self.known.len()
    }

    /// Notes a result.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note(&self, key: &str, row: &SweepRow) -> Result<(), InputError> {
        let failed = |error: io::Error| InputError::at(self.path.display(), error);
        let line = serde_json::to_vec(&Line { key, row });
        let mut line = line.map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        // A thread that panicked while it held the file has at worst torn a line, which is allowed for.
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(&line).map_err(failed)
    }

    /// Removes the journal: its results are where they belong.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn finish(self) -> Result<(), InputError> {
        let removed = std::fs::remove_file(&self.path);
        removed.map_err(|error| InputError::at(self.path.display(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(events: u64) -> SweepRow {
        SweepRow { file: "a \"file\"\n".to_owned(), events, ..SweepRow::default() }
    }

    #[test]
    fn what_was_noted_is_known_again_even_if_the_end_is_torn_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.journal");
        {
            let journal = Journal::open(&path).unwrap();
            assert_eq!(journal.runs(), 0);
            journal.note("one", &row(1)).unwrap();
            journal.note("two", &row(2)).unwrap();
            let busy = Journal::open(&path).unwrap_err().to_string();
            assert!(busy.contains("another sweep is writing this journal"), "{busy}");
        }
        let whole = std::fs::read(&path).unwrap();
        for end in 0..=whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            let journal = Journal::open(&path).unwrap();
            let lines = whole[..end].iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(journal.runs(), lines.saturating_sub(1));
            journal.note("three", &row(3)).unwrap();
            drop(journal);
            let again = Journal::open(&path).unwrap();
            assert_eq!(again.known("three"), Some(&row(3)));
            assert_eq!(again.known("one").is_some(), lines > 1);
        }
        Journal::open(&path).unwrap().finish().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_journal_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious.txt");
        for text in ["results of a year\n", "results", "{\"gmlake-sim\":\"something else\"}\n"] {
            std::fs::write(&path, text).unwrap();
            let foreign = Journal::open(&path).unwrap_err().to_string();
            assert!(foreign.contains("not the journal of a sweep"), "{foreign}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert!(Journal::open(&folder.path().join("no/such/folder")).is_err());
    }
}
