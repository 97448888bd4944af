//! Bars: how much each allocator held at its peak, and how much of that was in use at the peak of use.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::compare::comparison::Comparison;
use crate::report::Result;
use crate::report::picture::{Pen, failed, style};
use crate::run::RunSummary;
use crate::units::Size;

const MARGIN: i32 = 24;
/// Height of a bar, and of a bar with its label.
const BAR: i32 = 20;
const HIGHEST_ROW: i32 = 84;
const LOWEST_ROW: i32 = 50;

/// Draws the panel.
pub(super) fn draw<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    comparison: &Comparison,
    pen: Pen,
) -> Result<()> {
    let (width, height) = area.dim_in_pixel();
    let (width, height) = ((width / pen.scale) as i32, (height / pen.scale) as i32);
    pen.text(
        area,
        (0, 0),
        "Peak reserved, and how much of it was used",
        &pen.font(20, style::INK),
    )?;
    let rows = comparison.runs.len().max(1) as i32;
    let row = ((height - 80) / rows).clamp(LOWEST_ROW, HIGHEST_ROW);
    let most = comparison.runs.iter().map(|run| run.reserved_peak_bytes).max().unwrap_or(0).max(1);
    let full = f64::from(width - MARGIN);
    for (index, (run, colour)) in
        comparison.runs.iter().zip(style::colours(&comparison.runs)).enumerate()
    {
        let top = 44 + index as i32 * row;
        let length = |bytes: u64| (full * bytes as f64 / most as f64).round() as i32;
        pen.text(area, (0, top), &run.label(), &pen.font(18, style::INK))?;
        let figures = Pen::right(&pen.font(18, style::INK));
        pen.text(area, (width - MARGIN, top + 9), &figure(run), &figures)?;
        let bar = |bytes: u64, style: ShapeStyle| {
            let corners = [(0, pen.px(top + 24)), (pen.px(length(bytes)), pen.px(top + 24 + BAR))];
            area.draw(&Rectangle::new(corners, style)).map_err(failed)
        };
        bar(run.reserved_peak_bytes, colour.mix(0.25).filled())?;
        bar(run.active_peak_bytes.min(run.reserved_peak_bytes), colour.filled())?;
    }
    Ok(())
}

fn figure(run: &RunSummary) -> String {
    let share = format!("{:.1} % of {}", 100.0 * run.utilization, Size(run.reserved_peak_bytes));
    match run.oom_count {
        0 => share,
        1 => format!("1 OOM, {share}"),
        ooms => format!("{ooms} OOMs, {share}"),
    }
}
