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
mod timeline;

use std::io::Write;

use plotters::prelude::*;

use super::Comparison;
use crate::report::picture::{Canvas, ImageFormat, Picture, WIDTH, write_picture};
use crate::report::{ReportError, Result};

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
    Chart { name: "timeline", summary: "memory over time", draw: timelines },
    Chart { name: "utilization", summary: "peaks, and what was in use", draw: utilization },
    Chart { name: "latency", summary: "time in driver calls, step by step", draw: latency::write },
    Chart { name: "map", summary: "the memory at the peak, block by block", draw: map::write },
];

/// Height of the panels of one file among others, and of a file that is alone.
const ROW: u32 = 640;
const ALONE: u32 = 900;
/// Height of what stands above bars that are alone, and of each bar with its label.
const BARS_HEAD: u32 = 164;
const BARS_ROW: u32 = 66;
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
    let panels = Panels::Both;
    write_picture(format, height(comparisons), out, &Rows { comparisons, panels })
}

/// Memory over time, a row for each file.
fn timelines(comparisons: &[Comparison], format: ImageFormat, out: &mut dyn Write) -> Result<()> {
    if !comparisons.iter().any(Comparison::has_history) {
        return Err(ReportError::NoHistory);
    }
    let height = if comparisons.len() < 2 { ALONE } else { ROW * comparisons.len() as u32 };
    write_picture(format, height, out, &Rows { comparisons, panels: Panels::Timeline })
}

/// What was held at the peak, and how much of it was in use.
fn utilization(comparisons: &[Comparison], format: ImageFormat, out: &mut dyn Write) -> Result<()> {
    if comparisons.len() > MOST_TIMELINES {
        return write_plot(comparisons, format, out);
    }
    let rows = comparisons.iter().map(|one| one.runs.len() as u32).max().unwrap_or(0);
    let height = (BARS_HEAD + BARS_ROW * rows) * comparisons.len().max(1) as u32;
    write_picture(format, height, out, &Rows { comparisons, panels: Panels::Bars })
}

/// Comparisons, a row for each.
struct Rows<'a> {
    comparisons: &'a [Comparison],
    panels: Panels,
}

/// What a row shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Panels {
    /// Memory over time, and bars; bars alone, if there are too many files.
    Both,
    Timeline,
    Bars,
}

impl Picture for Rows<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()> {
        if self.panels == Panels::Both && self.comparisons.len() > MOST_TIMELINES {
            return overview::draw(root, self.comparisons);
        }
        let rows = root.rows(self.comparisons.len());
        for (row, comparison) in rows.iter().zip(self.comparisons) {
            let legend = if self.panels == Panels::Bars { "" } else { first_oom(comparison) };
            let body = row.titled(comparison.title(), &(about(comparison) + legend))?;
            match self.panels {
                Panels::Both => {
                    let (left, right) = body.split_at_x(WIDTH as i32 - 430);
                    timeline::draw(&left, comparison)?;
                    bars::draw(&right, comparison)?;
                }
                Panels::Timeline => timeline::draw(&body, comparison)?,
                Panels::Bars => bars::draw(&body.indented(28), comparison)?,
            }
        }
        Ok(())
    }
}

fn height(comparisons: &[Comparison]) -> u32 {
    match comparisons.len() {
        0 | 1 => ALONE,
        few @ 2..=MOST_TIMELINES => ROW * few as u32,
        _ => overview::height(comparisons),
    }
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
