//! Memory over time as CSV: a row for each stretch of each run, numbers bare.
//!
//! A stretch is a bucket of the run's [`Timeline`](crate::run::Timeline): some thousands of equal length, each with
//! its lowest and its highest values, so that no peak is lost.

use std::io::{Error, Write};

use crate::compare::comparison::Comparison;
use crate::report::Result;
use crate::run::{RECORDED, RunSummary};
use crate::simulation::Range;

const COLUMNS: [&str; 11] = [
    "file",
    "device",
    "allocator",
    "options",
    "unit",
    "start",
    "end",
    "reserved_low_bytes",
    "reserved_high_bytes",
    "active_low_bytes",
    "active_high_bytes",
];

/// Writes a row for each stretch of each run.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_timeline(comparisons: &[Comparison], out: &mut dyn Write) -> Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(COLUMNS).map_err(Error::from)?;
    for comparison in comparisons {
        for run in &comparison.runs {
            let unit = match run.allocator.as_str() {
                _ if comparison.span_us > 0 => "us",
                // The recording counts its own entries.
                RECORDED => "entry",
                _ => "event",
            };
            for (index, bucket) in run.timeline.buckets.iter().enumerate() {
                writer.write_record(fields(run, unit, index, bucket)).map_err(Error::from)?;
            }
        }
    }
    Ok(writer.flush()?)
}

fn fields(run: &RunSummary, unit: &str, index: usize, bucket: &Range) -> [String; 11] {
    let Range { low, high } = bucket;
    [
        run.file.clone(),
        run.device.to_string(),
        run.allocator.clone(),
        run.options.join(" "),
        unit.to_owned(),
        run.timeline.start_of(index).to_string(),
        (run.timeline.start_of(index + 1).min(run.timeline.end + 1)).to_string(),
        low.reserved.to_string(),
        high.reserved.to_string(),
        low.active.to_string(),
        high.active.to_string(),
    ]
}
