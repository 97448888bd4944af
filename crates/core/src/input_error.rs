//! Input errors: what is wrong with what the user gave, as one line of text.

use std::fmt::Display;
use std::io;
use std::path::Path;

/// What is wrong with a file, a folder or a word that the user gave, for people to read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub String);

impl InputError {
    /// The name, and what is wrong with it.
    pub fn at(name: impl Display, problem: impl Display) -> Self {
        Self(format!("{name}: {problem}"))
    }

    /// A file that cannot be read, and what the system says.
    pub fn unreadable(file: &Path, error: io::Error) -> Self {
        Self::at(file.display(), format_args!("cannot be read: {error}"))
    }
}
