//! Comparisons as JSON: the result is `{recordings: [...], runs: [...]}`; a run is a [`RunSummary`] field by field, and
//! each column that is computed from those.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use serde_json::Value;

use crate::compare::comparison::Comparison;
use crate::compare::{Column, Row, Unit, columns};
use crate::report::{Result, write_answer};
use crate::run::RunSummary;
use crate::trace::Coverage;

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
    #[serde(flatten)]
    computed: BTreeMap<&'static str, Option<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cards: Option<&'a [String]>,
}

impl<'a> Run<'a> {
    fn of(comparison: &'a Comparison) -> impl Iterator<Item = Self> {
        let columns = columns(&comparison.runs);
        comparison.rows().enumerate().map(move |(place, row)| Self {
            run: row.run,
            computed: computed(&row, columns.clone()),
            cards: comparison.cards.get(&place).map(Vec::as_slice),
        })
    }
}

/// The numbers of all columns that are no fields of the run.
fn computed(
    row: &Row<'_>,
    columns: impl Iterator<Item = &'static Column>,
) -> BTreeMap<&'static str, Option<Value>> {
    let fields = serde_json::to_value(row.run).unwrap_or_default();
    let number = |unit: Unit, value: f64| match unit {
        Unit::Bytes | Unit::Peak | Unit::Count => Value::from(value as i64),
        Unit::Share | Unit::Nanos => Value::from(value),
    };
    let others = columns.filter(|column| fields.get(column.key).is_none());
    others.map(|column| (column.key, (column.get)(row).map(|n| number(column.unit, n)))).collect()
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
