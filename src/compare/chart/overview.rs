//! Many files at a glance: for each file and allocator, how much of the reserved memory was used.

use plotters::prelude::*;

use crate::compare::comparison::Comparison;
use crate::report::PARTIAL;
use crate::report::Result;
use crate::report::picture::{Canvas, font, style};
use crate::units::Count;

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
    area: &Canvas<DB>,
    comparisons: &[Comparison],
) -> Result<()> {
    let traces = Count(comparisons.len() as u64, "trace");
    let mut title = format!("Utilization of {}: peak active / peak reserved", traces);
    if comparisons.len() > MOST_FILES {
        title += &format!(" (the first {MOST_FILES} are shown)");
    }
    let is_partial = comparisons.iter().any(|comparison| comparison.coverage.is_partial());
    area.title(&title, if is_partial { PARTIAL } else { "" })?;
    scale(area, height(comparisons) as i32)?;
    let mut top = HEAD;
    for comparison in comparisons.iter().take(MOST_FILES) {
        group(area, comparison, top)?;
        top += comparison.runs.len() as i32 * BAR + GAP;
    }
    Ok(())
}

fn place(share: f64) -> i32 {
    BARS + (f64::from(END - BARS) * share.clamp(0.0, 1.0)).round() as i32
}

/// Lines at every fifth of the whole.
fn scale<DB: DrawingBackend>(area: &Canvas<DB>, height: i32) -> Result<()> {
    for fifth in 0..=5 {
        let share = f64::from(fifth) / 5.0;
        let x = place(share);
        area.line([(x, HEAD - 10), (x, height - GAP)], style::GRID, 1)?;
        let faint = font(16, style::FAINT_INK);
        area.text((x, HEAD - 14), &format!("{:.0} %", 100.0 * share), faint.above())?;
    }
    Ok(())
}

/// One file: its name at the left, a bar for each allocator.
fn group<DB: DrawingBackend>(area: &Canvas<DB>, comparison: &Comparison, top: i32) -> Result<()> {
    let runs = &comparison.runs;
    let middle = top + runs.len() as i32 * BAR / 2;
    area.text((NAMES, middle), comparison.title(), font(18, style::INK).right())?;
    for (index, (run, colour)) in runs.iter().zip(style::colours(runs)).enumerate() {
        let top = top + index as i32 * BAR;
        let (middle, end) = (top + BAR / 2, place(run.utilization));
        area.text((BARS - 8, middle), &run.allocator, font(14, style::INK).right())?;
        area.rectangle([(BARS, top + 2), (end, top + BAR - 2)], &colour)?;
        let text = match run.oom_count {
            0 => run.share_of_reserved(),
            ooms => format!("{}, {}", run.share_of_reserved(), Count(ooms, "OOM")),
        };
        area.text((end + 8, middle), &text, font(14, style::FAINT_INK).left())?;
    }
    Ok(())
}
