//! CSV: one row for each run, numbers bare, the same columns as the table and each driver call.

use std::io::Write;

use crate::compare::comparison::Comparison;
use crate::compare::{Column, Row, columns};
use crate::device::CallCounts;
use crate::report::Result;
use crate::report::write_row;

/// What a row begins with, before the columns of all tables.
const BEFORE: [&str; 9] = [
    "file",
    "device",
    "device_memory_bytes",
    "allocator",
    "options",
    "events",
    "first_oom_event",
    "is_lower_bound",
    "requested_peak_bytes",
];

/// Writes a row for each run.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_csv(comparisons: &[Comparison], out: &mut dyn Write) -> Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let calls = CallCounts::default().rows();
    let columns = columns(comparisons.iter().flat_map(|comparison| &comparison.runs));
    let keys = columns.clone().map(|column| column.key);
    let heading = BEFORE.into_iter().chain(keys).chain(calls.iter().map(|&(name, _)| name));
    writer.write_record(heading).map_err(std::io::Error::from)?;
    for row in comparisons.iter().flat_map(Comparison::rows) {
        write_row(&mut writer, fields(&row, columns.clone()))?;
    }
    Ok(writer.flush()?)
}

fn fields(row: &Row<'_>, columns: impl Iterator<Item = &'static Column>) -> Vec<String> {
    let run = row.run;
    let optional = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let mut fields = vec![
        run.file.clone(),
        run.device.to_string(),
        optional(run.device_memory_bytes),
        run.allocator.clone(),
        run.options.join(" "),
        run.events.to_string(),
        optional(run.first_oom_event),
        run.is_lower_bound.to_string(),
        run.requested_peak_bytes.to_string(),
    ];
    let shown =
        |value: Option<f64>, unit: crate::compare::columns::Unit| value.map(|v| unit.raw(v));
    fields.extend(columns.map(|c| shown((c.get)(row), c.unit).unwrap_or_default()));
    fields.extend(run.device_calls.rows().iter().map(|(_, count)| count.to_string()));
    fields
}
