//! Memory over time as CSV: a row for each stretch of each run, numbers bare.
//!
//! A stretch is a bucket of the run's [`Timeline`](crate::run::Timeline): some thousands of equal length, each with
//! its lowest and its highest values, so that no peak is lost.

use std::io::Write;

use crate::compare::comparison::Comparison;
use crate::report::parquet::Value;
use crate::report::{Column, ReportError, Result, write_rows};
use crate::run::{RECORDED, RunSummary};
use crate::simulation::Range;

struct Stretch<'a> {
    run: &'a RunSummary,
    unit: &'static str,
    index: usize,
    bucket: &'a Range,
}

fn columns<'a>() -> [Column<Stretch<'a>>; 11] {
    [
        ("file", |row| Value::text(&row.run.file)),
        ("device", |row| Value::whole(u64::from(row.run.device))),
        ("allocator", |row| Value::text(&row.run.allocator)),
        ("options", |row| Value::text(row.run.options.join(" "))),
        ("unit", |row| Value::text(row.unit)),
        ("start", |row| Value::whole(row.run.timeline.start_of(row.index))),
        ("end", |row| {
            let timeline = &row.run.timeline;
            Value::whole(timeline.start_of(row.index + 1).min(timeline.end + 1))
        }),
        ("reserved_low_bytes", |row| Value::whole(row.bucket.low.reserved)),
        ("reserved_high_bytes", |row| Value::whole(row.bucket.high.reserved)),
        ("active_low_bytes", |row| Value::whole(row.bucket.low.active)),
        ("active_high_bytes", |row| Value::whole(row.bucket.high.active)),
    ]
}

/// Writes a row for each stretch of each run.
///
/// # Errors
/// If all recordings are of one moment, or `out` cannot be written.
pub fn write_timeline(comparisons: &[Comparison], out: &mut dyn Write) -> Result<()> {
    let shown: Vec<_> = comparisons.iter().filter(|one| one.has_history()).collect();
    if shown.is_empty() {
        return Err(ReportError::NoHistory);
    }
    write_rows(&columns(), shown.into_iter().flat_map(stretches), out)
}

fn stretches(comparison: &Comparison) -> impl Iterator<Item = Stretch<'_>> {
    let is_timed = comparison.span_us > 0;
    comparison.runs.iter().flat_map(move |run| {
        let unit = match run.allocator.as_str() {
            _ if is_timed => "us",
            // The recording counts its own entries.
            RECORDED => "entry",
            _ => "event",
        };
        let buckets = run.timeline.buckets.iter().enumerate();
        buckets.map(move |(index, bucket)| Stretch { run, unit, index, bucket })
    })
}
