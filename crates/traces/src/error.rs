//! `TraceError`: why a file is not a trace, in one line that names the file, the place, the problem and the remedy.

use std::fmt;
use std::path::Path;

use gmlake_core::printable::printable;
use gmlake_remote::RemoteError;

/// Where in a file something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// In the file as a whole.
    File,
    /// On the way here: the file is remote, and did not come.
    Network,
    /// At this byte of the content, counted from 0 after decompression.
    Byte(u64),
    /// In this line, counted from 1.
    Line(u64),
    /// In this line and column, counted from 1.
    Column(u64, u64),
    /// At this item of the document, such as `device_traces[0][17].size`, which ends at the given byte.
    Item(String, u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File | Self::Network => Ok(()),
            Self::Byte(at) => write!(f, "byte {at}: "),
            Self::Line(line) => write!(f, "line {line}: "),
            Self::Column(line, column) => write!(f, "line {line}, column {column}: "),
            Self::Item(path, at) => write!(f, "{path} (byte {at}): "),
        }
    }
}

/// What reading a trace returns.
pub type Result<T, E = TraceError> = std::result::Result<T, E>;

/// Why a trace could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {position}{problem}; {remedy}")]
pub struct TraceError {
    /// The file, as it was named; `-` is standard input.
    pub path: String,
    /// The place in it.
    pub position: Position,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
    /// What the file is in place of a trace, if it is a text about memory that ran out: that part of it.
    pub text: Option<Box<str>>,
}

impl TraceError {
    /// An error in a file whose name is filled in later, by [`TraceError::in_file`].
    pub(super) fn new(position: Position, problem: impl Into<String>, remedy: &str) -> Self {
        let (problem, remedy) = (problem.into(), remedy.to_owned());
        Self { path: "-".to_owned(), position, problem, remedy, text: None }
    }

    /// The error for a text about memory that ran out.
    #[cold]
    pub(super) fn of_text(text: Box<str>) -> Self {
        let problem = "the text of an out-of-memory, which has no events";
        let remedy = "gmlake-sim blame explains it; record a snapshot for everything else";
        Self { text: Some(text), ..Self::new(Position::File, problem, remedy) }
    }

    /// The same error, in the file `path`.
    #[must_use]
    pub(super) fn in_file(mut self, path: &Path) -> Self {
        self.path = printable(&gmlake_remote::shown(path)).into_owned();
        self
    }
}

impl From<RemoteError> for TraceError {
    fn from(error: RemoteError) -> Self {
        Self::new(Position::Network, error.problem, &error.remedy)
    }
}

impl From<Box<Self>> for TraceError {
    fn from(boxed: Box<Self>) -> Self {
        *boxed
    }
}

/// At most 60 characters of a text from a file, on one line.
pub(super) fn excerpt(text: &[u8]) -> String {
    let head = String::from_utf8_lossy(&text[..text.len().min(240)]);
    let mut out: String = head.chars().take(60).flat_map(char::escape_debug).collect();
    if head.chars().count() > 60 || text.len() > 240 {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_that_says_where_what_and_what_to_do() {
        let position = Position::Item("device_traces[0][17].size".to_owned(), 4711);
        let error = TraceError::new(position, "not a whole number", "record it again");
        assert_eq!(
            error.in_file(Path::new("a\nb.pickle")).to_string(),
            "a\\nb.pickle: device_traces[0][17].size (byte 4711): not a whole number; record it again"
        );
        assert_eq!(excerpt(b"a\nb\xff"), "a\\nb\u{fffd}");
        assert!(excerpt(&[b'x'; 1000]).len() < 70);
    }
}
