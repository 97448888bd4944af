//! JSON: `{schema_version, tool_version, runs: [...]}`, where a run is a [`RunSummary`] field by field.

use std::io::Write;

use serde::Serialize;

use super::{Report, ReportError};
use crate::metrics::{Comparison, RunSummary, SCHEMA_VERSION};

/// Every number of every run.
pub(super) struct Json;

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    tool_version: &'static str,
    runs: Vec<&'a RunSummary>,
}

impl Report for Json {
    fn write(&self, comparisons: &[Comparison], out: &mut dyn Write) -> Result<(), ReportError> {
        let document = Document {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            runs: comparisons.iter().flat_map(|comparison| &comparison.runs).collect(),
        };
        serde_json::to_writer_pretty(&mut *out, &document).map_err(std::io::Error::from)?;
        Ok(out.write_all(b"\n")?)
    }
}
