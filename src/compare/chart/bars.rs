//! Bars: how much each allocator held at its peak, and how much of that was in use at the peak of use.

use plotters::prelude::*;

use crate::compare::comparison::Comparison;
use crate::report::Result;
use crate::report::picture::{Canvas, font, style};
use crate::run::RunSummary;
use crate::units::Count;

const MARGIN: i32 = 24;
/// Height of a bar, and of a bar with its label.
const BAR: i32 = 20;
const HIGHEST_ROW: i32 = 84;
const LOWEST_ROW: i32 = 50;

/// Draws the panel.
pub(super) fn draw<DB: DrawingBackend>(area: &Canvas<DB>, comparison: &Comparison) -> Result<()> {
    let (width, height) = area.size();
    area.text((0, 0), "Peak reserved, and how much of it was used", font(20, style::INK))?;
    let runs = &comparison.runs;
    let row = ((height - 80) / runs.len().max(1) as i32).clamp(LOWEST_ROW, HIGHEST_ROW);
    let most = runs.iter().map(|run| run.reserved_peak_bytes).max().unwrap_or(0).max(1);
    let full = f64::from(width - MARGIN);
    for (index, (run, colour)) in runs.iter().zip(style::colours(runs)).enumerate() {
        let top = 44 + index as i32 * row;
        let length = |bytes: u64| (full * bytes as f64 / most as f64).round() as i32;
        area.text((0, top), &run.label(), font(18, style::INK))?;
        area.text((width - MARGIN, top + 9), &figure(run), font(18, style::INK).right())?;
        let corners = |bytes: u64| [(0, top + 24), (length(bytes), top + 24 + BAR)];
        area.rectangle(corners(run.reserved_peak_bytes), &colour.mix(0.25))?;
        area.rectangle(corners(run.active_peak_bytes.min(run.reserved_peak_bytes)), &colour)?;
    }
    Ok(())
}

fn figure(run: &RunSummary) -> String {
    let share = run.share_of_reserved();
    match run.oom_count {
        0 => share,
        ooms => format!("{}, {share}", Count(ooms, "OOM")),
    }
}
