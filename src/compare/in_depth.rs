//! In depth: comparisons that follow every block of the allocator that each recording ran on, for the page.

use std::path::{Path, PathBuf};

use super::comparison::Comparison;
use super::run::{compare_spread, each_file};
use crate::allocator::{self, Choice, Options};
use crate::blame::{self, BlameError, By};
use crate::sim::{Choices, FileError, Opened, RunError, Spread, failed, open_all};

/// Compares the allocators on every device of each of several files. `done` is called, from any thread, after each
/// file.
pub fn compare_in_depth(
    files: &[PathBuf],
    choices: &Choices,
    done: impl Fn(&Path) + Sync,
) -> Vec<Result<Comparison, FileError>> {
    each_file(files, done, |file, spread| match open_all(file, &choices.open) {
        Ok(all) => all.iter().map(|opened| compare_one(opened, choices, spread)).collect(),
        Err(error) => vec![Err(FileError::from(error))],
    })
}

fn compare_one(
    opened: &Opened,
    choices: &Choices,
    spread: Spread,
) -> Result<Comparison, FileError> {
    let comparison = compare_spread(opened, choices, spread)?;
    let Some(spec) = allocator::find(opened.recorded_by()) else { return Ok(comparison) };
    let (choice, setup) = (Choice { spec, options: Options::default() }, &choices.setup);
    let by = if opened.records.stacks.has_frames() { By::Line } else { By::Size };
    let failed = |source| failed(opened, &choice, source);
    let history = blame::history(opened, &choice, setup).map_err(failed)?;
    let loss = there(blame::loss(opened, &choice, setup, by, false)).map_err(failed)?;
    let refusal = there(blame::refusal(opened, &choice, setup, by, false)).map_err(failed)?;
    Ok(Comparison { history: Some(history), loss, refusal, ..comparison })
}

/// The answer, if the recording has the moment that it is about.
fn there<T>(answer: Result<T, BlameError>) -> Result<Option<T>, RunError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(BlameError::Moment(_)) => Ok(None),
        Err(BlameError::Run(source)) => Err(source),
    }
}
