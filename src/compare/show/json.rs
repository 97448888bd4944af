//! Comparisons as JSON: the result is `{recordings: [...], runs: [...]}`; a run is a [`RunSummary`] field by field.

use std::io::Write;

use serde::Serialize;

use crate::compare::Report;
use crate::compare::comparison::Comparison;
use crate::report::{Result, write_answer};
use crate::run::RunSummary;
use crate::trace::Coverage;

/// Every number of every run.
pub(super) struct Json;

#[derive(Serialize)]
struct Document<'a> {
    recordings: Vec<Recording<'a>>,
    runs: Vec<Run<'a>>,
}

/// One run, and what was found out beside it.
#[derive(Serialize)]
struct Run<'a> {
    #[serde(flatten)]
    run: &'a RunSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    cards: Option<&'a [String]>,
}

impl<'a> Run<'a> {
    fn of(comparison: &'a Comparison) -> impl Iterator<Item = Self> {
        let runs = comparison.runs.iter().enumerate();
        runs.map(|(place, run)| Self {
            run,
            cards: comparison.cards.get(&place).map(Vec::as_slice),
        })
    }
}

/// What the runs of one device of a file have in common.
#[derive(Serialize)]
struct Recording<'a> {
    file: &'a str,
    device: u32,
    coverage: &'a Coverage,
    notes: &'a [String],
}

impl<'a> Recording<'a> {
    fn of(comparison: &'a Comparison) -> Self {
        let Comparison { file, device, coverage, notes, .. } = comparison;
        Self { file, device: *device, coverage, notes }
    }
}

impl Report for Json {
    fn write(&self, comparisons: &[Comparison], out: &mut dyn Write) -> Result<()> {
        write_comparisons("compare", comparisons, out)
    }
}

/// Writes every number of every run, as the answer of `command`.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_comparisons(
    command: &str,
    comparisons: &[Comparison],
    out: &mut dyn Write,
) -> Result<()> {
    let document = Document {
        recordings: comparisons.iter().map(Recording::of).collect(),
        runs: comparisons.iter().flat_map(Run::of).collect(),
    };
    write_answer(command, &document, out)
}
