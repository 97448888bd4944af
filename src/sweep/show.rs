//! Sweeps as tables and data: a row for each run, and a column for each axis.

use std::io::Write;

use super::data::{Axis, Sweep, SweepRow};
use crate::report::parquet::{Value, encode};
use crate::report::section::Section;
use crate::report::{Column, PARTIAL, Result, cells, write_cells};
use crate::sim::title_of;
use crate::units::{Count, Nanos, grouped};

/// Rows that are shown on a terminal.
const MOST_ROWS: usize = 200;

/// The columns after the axes, for programs. A new one is a line here.
const COLUMNS: &[Column<SweepRow>] = &[
    ("device", |row| Value::whole(u64::from(row.device))),
    ("allocator", |row| Value::text(row.allocator.clone())),
    ("device_memory_bytes", |row| Value::whole(row.device_memory_bytes)),
    ("profile_name", |row| Value::Text(row.profile.clone())),
    ("events", |row| Value::whole(row.events)),
    ("certainty", |row| Value::text(row.certainty.name())),
    ("requested_peak_bytes", |row| Value::whole(row.requested_peak_bytes)),
    ("active_peak_bytes", |row| Value::whole(row.active_peak_bytes)),
    ("reserved_peak_bytes", |row| Value::whole(row.reserved_peak_bytes)),
    ("utilization", |row| Value::Real(row.utilization)),
    ("oom_count", |row| Value::whole(row.oom_count)),
    ("first_oom_event", |row| Value::whole(row.first_oom_event)),
    ("first_oom_step", |row| Value::whole(row.first_oom_step)),
    ("alloc_retries", |row| Value::whole(row.of_allocator(Some(row.alloc_retries)))),
    ("device_calls", |row| Value::whole(row.of_allocator(Some(row.device_calls)))),
    ("predicted_driver_ns", |row| Value::whole(row.of_allocator(row.predicted_driver_ns))),
    ("host_ns", |row| Value::whole(row.host_ns)),
];

/// Writes a row for each run: the file, the axes, then every number.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_csv(sweep: &Sweep, out: &mut dyn Write) -> Result<()> {
    write_cells(names(sweep), sweep.rows.iter().map(|row| all_cells(sweep, row)), out)
}

/// Writes the columns of the CSV as Parquet.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_parquet(sweep: &Sweep, out: &mut dyn Write) -> Result<()> {
    let rows: Vec<Vec<Value>> = sweep.rows.iter().map(|row| all_cells(sweep, row)).collect();
    // An empty sweep has columns all the same, and no cells to go by.
    let sample = all_cells(sweep, &sweep.rows.first().cloned().unwrap_or_default());
    let kinds = sample.iter().map(Value::kind);
    let columns: Vec<_> = names(sweep).into_iter().zip(kinds).collect();
    // The library wants to write from any thread, which a writer here need not allow.
    Ok(out.write_all(&encode("sweep", &columns, &rows)?)?)
}

/// Names of all columns.
fn names(sweep: &Sweep) -> Vec<&str> {
    let axes = sweep.axes.iter().map(|axis| axis.name.as_str());
    ["file"].into_iter().chain(axes).chain(COLUMNS.iter().map(|&(name, _)| name)).collect()
}

/// The cells of a row, in the order of [`names`].
fn all_cells(sweep: &Sweep, row: &SweepRow) -> Vec<Value> {
    let axes = sweep.axes.iter().map(|axis| row.value_of(&axis.name).map(str::to_owned));
    let file = Some(row.file.clone());
    let texts = [file].into_iter().chain(axes).map(Value::Text);
    texts.chain(cells(COLUMNS, row)).collect()
}

/// What is shown of a sweep.
pub fn sections(sweep: &Sweep) -> Vec<Section> {
    let files = sweep.rows.iter().any(|row| row.file != sweep.rows[0].file);
    let is_priced = sweep.rows.iter().any(|row| row.predicted_driver_ns.is_some());
    // A profile that is no axis is the same in all rows, and said once.
    let mut heading = if files { vec!["file"] } else { Vec::new() };
    heading.push("allocator");
    heading.extend(sweep.axes.iter().map(|axis| axis.name.as_str()));
    // Columns to the right go first on a narrow terminal.
    heading.extend(["peak reserved", "OOMs", "utilization", "retries", "driver calls"]);
    if is_priced {
        heading.push("driver time");
    }
    let row = |row: &SweepRow| {
        let mut cells = if files { vec![title_of(&row.file).to_owned()] } else { Vec::new() };
        cells.push(row.allocator.clone());
        let setting = |axis: &Axis| row.value_of(&axis.name).unwrap_or("-").to_owned();
        cells.extend(sweep.axes.iter().map(setting));
        cells.push(row.reserved().to_string());
        cells.push(grouped(row.oom_count));
        cells.push(format!("{:.1} %", 100.0 * row.utilization));
        let of_allocator = |value: Option<u64>, show: fn(u64) -> String| {
            row.of_allocator(value).map_or_else(|| "-".to_owned(), show)
        };
        let counts = [row.alloc_retries, row.device_calls];
        cells.extend(counts.map(|count| of_allocator(Some(count), grouped)));
        if is_priced {
            cells.push(of_allocator(row.predicted_driver_ns, |ns| Nanos(ns as f64).to_string()));
        }
        cells
    };
    let rows = sweep.rows.iter().take(MOST_ROWS).map(row).collect();
    vec![Section::new(title(sweep), &heading, rows)]
}

fn title(sweep: &Sweep) -> String {
    let mut title = match &sweep.rows[..] {
        [] => return "nothing was run".to_owned(),
        [first, ..] => {
            format!("{}: {}", title_of(&first.file), Count(sweep.rows.len() as u64, "run"))
        }
    };
    let profiles = sweep.rows.iter().filter_map(|row| row.profile.as_deref());
    if let Some(profile) = profiles.reduce(|a, b| if a == b { a } else { "the axis" }) {
        title += &format!("; driver time by profile {profile}");
    }
    if sweep.is_partial() {
        title += &format!("; {PARTIAL}");
    }
    if sweep.rows.len() > MOST_ROWS {
        title += &format!("; the first {MOST_ROWS}, all with --export-csv");
    }
    title
}
