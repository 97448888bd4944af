//! Single runs of a file: whether it may be used, and errors that name it.

use super::choice::Choice;
use super::opened::Opened;
use super::run::{RunError, Scenario};
use super::setup::Setup;
use crate::run::RunSummary;
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
    /// The recording does not show the whole job, which is needed.
    #[error("{file}: not the recording of a whole job: {reason} ({cure})")]
    Partial {
        /// The file.
        file: String,
        /// What is missing.
        reason: String,
        /// How to record it.
        cure: &'static str,
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

/// Whether the trace may be used, if nothing may be assumed about it.
pub(crate) fn check_assumptions(opened: &Opened, is_strict: bool) -> Result<(), FileError> {
    match opened.trace.warnings.first() {
        Some(warning) if is_strict => {
            let (file, assumption) = (opened.file.clone(), warning.to_string());
            Err(FileError::Assumption { file, assumption })
        }
        _ => Ok(()),
    }
}

/// One run, whose error names the file and the allocator.
pub(crate) fn run_one(
    opened: &Opened,
    choice: &Choice,
    setup: &Setup,
) -> Result<RunSummary, FileError> {
    let scenario = Scenario::new(opened, choice.clone(), setup.clone());
    let run = scenario.run().map_err(|source| failed(opened, choice, source))?.clone();
    setup.runs.made_one();
    Ok(run)
}

pub(crate) fn failed(opened: &Opened, choice: &Choice, reason: RunError) -> FileError {
    FileError::Run { file: opened.file.clone(), allocator: choice.spec.name, reason }
}
