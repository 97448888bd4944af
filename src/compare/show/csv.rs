//! CSV: one row for each run, numbers bare, the same columns as the table and each driver call.

use std::io::Write;

use crate::compare::columns::Unit;
use crate::compare::comparison::Comparison;
use crate::compare::{Row, columns};
use crate::device::CallCounts;
use crate::report::parquet::Value;
use crate::report::{Column, Result, cells, write_cells};

/// What a row begins with, before the columns of all tables.
fn before<'a>() -> [Column<Row<'a>>; 9] {
    [
        ("file", |row| Value::text(&row.run.file)),
        ("device", |row| Value::whole(u64::from(row.run.device))),
        ("device_memory_bytes", |row| Value::whole(row.run.device_memory_bytes)),
        ("allocator", |row| Value::text(&row.run.allocator)),
        ("options", |row| Value::text(row.run.options.join(" "))),
        ("events", |row| Value::whole(row.run.events)),
        ("first_oom_event", |row| Value::whole(row.run.first_oom_event)),
        ("certainty", |row| Value::text(row.run.certainty.name())),
        ("requested_peak_bytes", |row| Value::whole(row.run.requested_peak_bytes)),
    ]
}

/// Writes a row for each run.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_csv(comparisons: &[Comparison], out: &mut dyn Write) -> Result<()> {
    let before = before();
    let calls = CallCounts::default().rows();
    let columns = columns(comparisons.iter().flat_map(|comparison| &comparison.runs));
    let names = before.iter().map(|&(name, _)| name);
    let names = names.chain(columns.clone().map(|column| column.key));
    let names = names.chain(calls.iter().map(|&(name, _)| name));
    let row = |row| {
        let mut all = cells(&before, &row);
        let of = |value: Option<f64>, unit: Unit| Value::Text(value.map(|v| unit.raw(v)));
        all.extend(columns.clone().map(|column| of((column.get)(&row), column.unit)));
        all.extend(row.run.device_calls.rows().iter().map(|&(_, count)| Value::whole(count)));
        all
    };
    write_cells(names, comparisons.iter().flat_map(Comparison::rows).map(row), out)
}
