//! The panels of the overview, each as a chart of its own.

use std::io::Write;

use plotters::prelude::*;

use super::{ALONE, MOST_TIMELINES, Overview, ROW, about, bars, first_oom, height, timeline};
use crate::compare::comparison::Comparison;
use crate::report::picture::{Canvas, ImageFormat, Picture, write_picture};
use crate::report::{ReportError, Result};

/// Height of what stands above the bars, and of each bar with its label.
const HEAD: u32 = 164;
const ROOM: u32 = 66;

/// Memory over time, a row for each file.
pub(super) fn timelines(
    comparisons: &[Comparison],
    format: ImageFormat,
    out: &mut dyn Write,
) -> Result<()> {
    if !comparisons.iter().any(Comparison::has_history) {
        return Err(ReportError::NoHistory);
    }
    let height = if comparisons.len() < 2 { ALONE } else { ROW * comparisons.len() as u32 };
    write_picture(format, height, out, &Rows { comparisons, has_bars: false })
}

/// What was held at the peak, and how much of it was in use.
pub(super) fn utilization(
    comparisons: &[Comparison],
    format: ImageFormat,
    out: &mut dyn Write,
) -> Result<()> {
    if comparisons.len() > MOST_TIMELINES {
        return write_picture(format, height(comparisons), out, &Overview { comparisons });
    }
    let rows = comparisons.iter().map(|one| one.runs.len() as u32).max().unwrap_or(0);
    let height = (HEAD + ROOM * rows) * comparisons.len().max(1) as u32;
    write_picture(format, height, out, &Rows { comparisons, has_bars: true })
}

/// One panel for each file.
struct Rows<'a> {
    comparisons: &'a [Comparison],
    has_bars: bool,
}

impl Picture for Rows<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()> {
        let rows = root.rows(self.comparisons.len());
        for (row, comparison) in rows.iter().zip(self.comparisons) {
            let legend = if self.has_bars { "" } else { first_oom(comparison) };
            let subtitle = about(comparison) + legend;
            let body = row.titled(comparison.title(), &subtitle)?;
            if self.has_bars {
                bars::draw(&body.indented(28), comparison)?;
            } else {
                timeline::draw(&body, comparison)?;
            }
        }
        Ok(())
    }
}
