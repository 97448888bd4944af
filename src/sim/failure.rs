//! Failures: why a file has no result.

use super::run::RunError;
use crate::trace::TraceError;

/// Why there is no comparison of a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A run came to no result.
    #[error("{file}: {allocator}: {reason}")]
    Run {
        /// The file.
        file: String,
        /// The allocator.
        allocator: &'static str,
        /// What happened.
        reason: RunError,
    },
    /// Something had to be assumed about the trace, which was forbidden.
    #[error("{file}: {assumption} (--strict)")]
    Assumption {
        /// The file.
        file: String,
        /// The first assumption, with its count.
        assumption: String,
    },
}
