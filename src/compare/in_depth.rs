//! In depth: comparisons that follow every block of the allocator that each recording ran on, for the page.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::comparison::Comparison;
use super::run::{compare_all, compare_spread, each_file, scenarios};
use crate::blame::{self, BlameError, By};
use crate::sim::{Choices, FileError, Opened, RunError, Scenario, Spread, failed, open_all};

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
    let scenarios = scenarios(opened, choices);
    let recorded = Scenario::recorded(opened, scenarios.first(), &choices.setup);
    let Some(recorded) = recorded else { return compare_spread(opened, choices, spread) };
    // One more replay shows all that is asked below.
    let history = OnceLock::new();
    let follow = |scenario: &Scenario<'_>| -> Result<(), RunError> {
        if history.get().is_none() && scenario.is(&recorded) {
            let _ = history.set(blame::history(scenario)?);
        }
        Ok(())
    };
    let comparison = compare_all(&scenarios, opened, choices, spread, follow)?;
    let failed = |source| failed(opened, &recorded.choice, source);
    follow(&recorded).map_err(failed)?;
    let by = if opened.records.stacks.has_frames() { By::Line } else { By::Size };
    let loss = there(blame::loss(&recorded, by, false)).map_err(failed)?;
    let refusal = there(blame::refusal(&recorded, by, false)).map_err(failed)?;
    let card = blame::card_history(&opened.file, comparison.device);
    Ok(Comparison { history: history.into_inner(), loss, refusal, card, ..comparison })
}

/// The answer, if the recording has the moment that it is about.
fn there<T>(answer: Result<T, BlameError>) -> Result<Option<T>, RunError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(BlameError::Moment(_)) => Ok(None),
        Err(BlameError::Run(source)) => Err(source),
    }
}
