//! `RemoteError`: why a remote file was not read, in one line.

use std::path::Path;

use super::address::shown;

/// Why a remote file or folder could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {problem}; {remedy}")]
pub struct RemoteError {
    /// The URL, without what is secret in it.
    pub url: String,
    /// What happened.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
    /// Whether it may well be there later: the network or the server failed, however often it was tried.
    pub is_transient: bool,
}

impl RemoteError {
    /// What no other try will change.
    pub(super) fn new(url: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (problem, remedy) = (problem.into(), remedy.into());
        Self { url: shown(Path::new(url)), problem, remedy, is_transient: false }
    }

    #[cfg(not(feature = "remote"))]
    pub(super) fn not_built(url: &str) -> Self {
        let remedy = "copy the file here, or build with --features remote";
        Self::new(url, "this program was built without remote files", remedy)
    }
}
