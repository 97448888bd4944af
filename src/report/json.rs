//! JSON: `{schema_version, tool_version, recordings: [...], runs: [...]}`, where a run is a [`RunSummary`] field by
//! field.

use std::io::Write;

use serde::Serialize;

use super::{Report, ReportError};
use crate::metrics::{Comparison, RunSummary, SCHEMA_VERSION};
use crate::trace::Coverage;

/// Every number of every run.
pub(super) struct Json;

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    tool_version: &'static str,
    recordings: Vec<Recording<'a>>,
    runs: Vec<&'a RunSummary>,
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
    fn write(&self, comparisons: &[Comparison], out: &mut dyn Write) -> Result<(), ReportError> {
        let document = Document {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            recordings: comparisons.iter().map(Recording::of).collect(),
            runs: comparisons.iter().flat_map(|comparison| &comparison.runs).collect(),
        };
        serde_json::to_writer_pretty(&mut *out, &document).map_err(std::io::Error::from)?;
        Ok(out.write_all(b"\n")?)
    }
}
