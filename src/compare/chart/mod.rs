//! Charts of comparisons: memory over time and the part of it that was used, as SVG or PNG.
//!
//! ```text
//!   ┌─────────────────────────────────────────────┬───────────────────┐
//!   │ GiB  ┌───────────────── caching             │ caching     39.6 %│   up to three files: a row for each;
//!   │    ┌─┘  ┌────────────── expandable          │ ██████░░░░░░░░░░░ │   more: bars alone
//!   │ ▁▂▄█▇▂▄▆█▇▂▄▆█▇▂▄▆█▇▂▄                      │ expandable  80.3 %│
//!   └─────────────────────────────────────────────┴───────────────────┘
//! ```

mod bars;
mod latency;
mod map;
mod overview;
mod single;
mod timeline;

use std::io::Write;

use plotters::prelude::*;

use super::Comparison;
use crate::report::Result;
use crate::report::picture::{Canvas, ImageFormat, Picture, WIDTH, write_picture};

/// A chart that can be drawn by itself.
#[derive(Debug, Clone, Copy)]
pub struct Chart {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub summary: &'static str,
    /// Writes it as a picture.
    pub draw: fn(&[Comparison], ImageFormat, &mut dyn Write) -> Result<()>,
}

/// The charts. To add one, write its file and its line here.
pub const CHARTS: &[Chart] = &[
    Chart { name: "timeline", summary: "memory over time", draw: single::timelines },
    Chart { name: "utilization", summary: "peaks, and what was in use", draw: single::utilization },
    Chart { name: "latency", summary: "time in driver calls, step by step", draw: latency::write },
    Chart { name: "map", summary: "the memory at the peak, block by block", draw: map::write },
];

/// Height of the panels of one file among others, and of a file that is alone.
const ROW: u32 = 640;
const ALONE: u32 = 900;
/// With more files than this, there is no memory over time.
const MOST_TIMELINES: usize = 3;

/// Draws memory over time and utilization.
///
/// # Errors
/// If the picture cannot be drawn, or `out` not be written.
pub fn write_plot(
    comparisons: &[Comparison],
    format: ImageFormat,
    out: &mut dyn Write,
) -> Result<()> {
    write_picture(format, height(comparisons), out, &Overview { comparisons })
}

/// Comparisons, as this picture shows them.
struct Overview<'a> {
    comparisons: &'a [Comparison],
}

impl Picture for Overview<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()> {
        if self.comparisons.len() > MOST_TIMELINES {
            return overview::draw(root, self.comparisons);
        }
        let rows = root.rows(self.comparisons.len());
        rows.iter().zip(self.comparisons).try_for_each(|(row, one)| panels(row, one))
    }
}

fn height(comparisons: &[Comparison]) -> u32 {
    match comparisons.len() {
        0 | 1 => ALONE,
        few @ 2..=MOST_TIMELINES => ROW * few as u32,
        _ => overview::height(comparisons),
    }
}

/// The two panels of one file, under their title.
fn panels<DB: DrawingBackend>(row: &Canvas<DB>, comparison: &Comparison) -> Result<()> {
    let subtitle = about(comparison) + first_oom(comparison);
    let body = row.titled(comparison.title(), &subtitle)?;
    let (left, right) = body.split_at_x(WIDTH as i32 - 430);
    timeline::draw(&left, comparison)?;
    bars::draw(&right, comparison)
}

/// What there is to know of one file, without its name, which is the title.
fn about(comparison: &Comparison) -> String {
    let about = comparison.about();
    about.split_once(": ").map_or(String::new(), |(_, rest)| limited(comparison, rest))
}

/// A line of a picture, which first says where the recording is not the whole job.
fn limited(comparison: &Comparison, text: &str) -> String {
    let limits = comparison.coverage.limits();
    limits.into_iter().chain([text.to_owned()]).collect::<Vec<_>>().join("; ")
}

/// The legend of memory over time.
fn first_oom(comparison: &Comparison) -> &'static str {
    let has_oom = comparison.runs.iter().any(|run| run.oom_count > 0);
    if has_oom { "; a cross marks the first OOM" } else { "" }
}
