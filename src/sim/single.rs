//! Single runs of a file: whether it may be used, and errors that name it.

use super::choice::Choice;
use super::failure::FileError;
use super::opened::Opened;
use super::run::{RunError, run_cached};
use super::setup::Setup;
use crate::run::RunSummary;

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
    let run = run_cached(opened, choice, setup).map_err(|source| failed(opened, choice, source))?;
    setup.runs.made_one();
    Ok(run)
}

pub(crate) fn failed(opened: &Opened, choice: &Choice, reason: RunError) -> FileError {
    FileError::Run { file: opened.file.clone(), allocator: choice.spec.name, reason }
}
