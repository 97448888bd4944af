//! Many files at a glance: for each file and allocator, how much of the reserved memory was used.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::compare::comparison::Comparison;
use crate::report::Result;
use crate::report::picture::{Pen, failed, style};
use crate::units::Size;

/// More files would make an unreadable picture.
const MOST_FILES: usize = 40;
const HEAD: i32 = 96;
const BAR: i32 = 17;
const GAP: i32 = 18;
/// Where names end, bars begin, and bars end.
const NAMES: i32 = 340;
const BARS: i32 = 520;
const END: i32 = 1400;

/// Height of the picture in pixels.
pub(super) fn height(comparisons: &[Comparison]) -> u32 {
    let shown = comparisons.iter().take(MOST_FILES);
    let rows: i32 = shown.map(|comparison| comparison.runs.len() as i32 * BAR + GAP).sum();
    (HEAD + rows + GAP).unsigned_abs()
}

/// Draws the picture.
pub(super) fn draw<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    comparisons: &[Comparison],
    pen: Pen,
) -> Result<()> {
    let mut title =
        format!("Utilization of {} traces: peak active / peak reserved", comparisons.len());
    if comparisons.len() > MOST_FILES {
        title += &format!(" (the first {MOST_FILES} are shown)");
    }
    pen.title(area, &title, "")?;
    scale(area, height(comparisons) as i32, pen)?;
    let mut top = HEAD;
    for comparison in comparisons.iter().take(MOST_FILES) {
        group(area, comparison, top, pen)?;
        top += comparison.runs.len() as i32 * BAR + GAP;
    }
    Ok(())
}

fn place(share: f64) -> i32 {
    BARS + (f64::from(END - BARS) * share.clamp(0.0, 1.0)).round() as i32
}

/// Lines at every fifth of the whole.
fn scale<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, height: i32, pen: Pen) -> Result<()> {
    for fifth in 0..=5 {
        let share = f64::from(fifth) / 5.0;
        let x = place(share);
        let line = vec![(pen.px(x), pen.px(HEAD - 10)), (pen.px(x), pen.px(height - GAP))];
        area.draw(&PathElement::new(line, pen.line(style::GRID, 1))).map_err(failed)?;
        let font = Pen::above(&pen.font(16, style::FAINT_INK));
        pen.text(area, (x, HEAD - 14), &format!("{:.0} %", 100.0 * share), &font)?;
    }
    Ok(())
}

/// One file: its name at the left, a bar for each allocator.
fn group<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    comparison: &Comparison,
    top: i32,
    pen: Pen,
) -> Result<()> {
    let middle = top + comparison.runs.len() as i32 * BAR / 2;
    let font = Pen::right(&pen.font(18, style::INK));
    pen.text(area, (NAMES, middle), comparison.title(), &font)?;
    for (index, (run, colour)) in
        comparison.runs.iter().zip(style::colours(&comparison.runs)).enumerate()
    {
        let top = top + index as i32 * BAR;
        let name = Pen::right(&pen.font(14, style::INK));
        pen.text(area, (BARS - 8, top + BAR / 2), &run.allocator, &name)?;
        let end = place(run.utilization);
        let corners = [(pen.px(BARS), pen.px(top + 2)), (pen.px(end), pen.px(top + BAR - 2))];
        area.draw(&Rectangle::new(corners, colour.filled())).map_err(failed)?;
        let held = Size(run.reserved_peak_bytes);
        let ooms =
            if run.oom_count > 0 { format!(", {} OOMs", run.oom_count) } else { String::new() };
        let text = format!("{:.1} % of {held}{ooms}", 100.0 * run.utilization);
        pen.text(
            area,
            (end + 8, top + BAR / 2),
            &text,
            &Pen::left(&pen.font(14, style::FAINT_INK)),
        )?;
    }
    Ok(())
}
