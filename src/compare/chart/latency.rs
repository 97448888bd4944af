//! Driver time, step by step: a line for each allocator, on a logarithmic scale, with a floor for steps without a call.

use std::io::Write;

use plotters::prelude::*;

use super::{ROW, limited};
use crate::compare::comparison::Comparison;
use crate::report::picture::{Canvas, ImageFormat, Picture, font, style, write_picture};
use crate::report::{ReportError, Result};
use crate::run::{RECORDED, RunSummary};
use crate::units::Nanos;

/// Room for the scale at the left, the names at the right, and the steps' numbers below.
const LEFT: i32 = 96;
const RIGHT: i32 = 210;
const BELOW: i32 = 64;
const ABOVE: i32 = 44;
/// Below the lowest power of ten: no call at all.
const FLOOR: i32 = 30;
/// Height of a row without a chart.
const EMPTY_ROW: u32 = 140;
/// Numbered steps at most.
const MOST_NUMBERS: usize = 24;

/// Writes the picture, a row for each file.
pub(super) fn write(
    comparisons: &[Comparison],
    format: ImageFormat,
    out: &mut dyn Write,
) -> Result<()> {
    if comparisons.iter().all(|comparison| lines(comparison).is_empty()) {
        return Err(ReportError::Empty(NO_STEPS));
    }
    let height = comparisons.iter().map(room).sum();
    write_picture(format, height, out, &Latency { comparisons })
}

const NO_STEPS: &str =
    "the time in driver calls is drawn step by step, and no training steps were found";

/// Height of a file's row: one without steps has its title and a sentence.
fn room(comparison: &Comparison) -> u32 {
    if lines(comparison).is_empty() { EMPTY_ROW } else { ROW }
}

struct Latency<'a> {
    comparisons: &'a [Comparison],
}

impl Picture for Latency<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()> {
        let mut rest = root.split_at_y(0).1;
        for comparison in self.comparisons {
            let (row, below) = rest.split_at_y(room(comparison) as i32);
            rest = below;
            let body = row.titled(comparison.title(), &subtitle(comparison))?;
            let lines = lines(comparison);
            let Some(scale) = Scale::new(&body, &lines) else {
                let faint = font(18, style::FAINT_INK);
                body.text((28, 10), "No training steps were found.", faint)?;
                continue;
            };
            grid(&body, &scale)?;
            for (_, nanos, colour) in &lines {
                line(&body, &scale, nanos, *colour)?;
            }
            names(&body, &scale, &lines)?;
        }
        Ok(())
    }
}

/// What the chart shows.
fn subtitle(comparison: &Comparison) -> String {
    let profile = comparison.profile().map_or(String::new(), |p| format!(" with prices of {p}"));
    let what = format!("Predicted time in driver calls, each training step by itself{profile}");
    limited(comparison, &what)
}

/// A name, the time of each step in nanoseconds, and a colour.
type Line = (String, Vec<u64>, RGBColor);

fn lines(comparison: &Comparison) -> Vec<Line> {
    let is_drawn = |run: &RunSummary| run.allocator != RECORDED && !run.is_bound();
    let runs = comparison.runs.iter().zip(style::colours(&comparison.runs));
    let of = |run: &RunSummary| -> Option<Vec<u64>> {
        run.steps.iter().map(|step| Some(step.predicted_driver_ns?.total)).collect()
    };
    let lines = runs.filter(|(run, _)| is_drawn(run) && !run.steps.is_empty());
    lines.filter_map(|(run, colour)| Some((run.label(), of(run)?, colour))).collect()
}

/// Where things are, in finished pixels.
struct Scale {
    steps: usize,
    /// Powers of ten at the bottom and at the top.
    powers: (i32, i32),
    right: i32,
    bottom: i32,
}

impl Scale {
    /// `None` if there is nothing to draw.
    fn new<DB: DrawingBackend>(area: &Canvas<DB>, lines: &[Line]) -> Option<Self> {
        let steps = lines.iter().map(|(_, nanos, _)| nanos.len()).max()?;
        let all = || lines.iter().flat_map(|(_, nanos, _)| nanos).filter(|&&ns| ns > 0);
        let power = |ns: u64| (ns as f64).log10();
        let low = all().min().map_or(3.0, |&ns| power(ns)).floor() as i32;
        let high = all().max().map_or(6.0, |&ns| power(ns)).ceil() as i32;
        let (width, height) = area.size();
        let (right, bottom) = (width - RIGHT, height - BELOW);
        Some(Self { steps, powers: (low, high.max(low + 1)), right, bottom })
    }

    fn x(&self, step: usize) -> i32 {
        let room = f64::from(self.right - LEFT - 20);
        let share = step as f64 / (self.steps.max(2) - 1) as f64;
        LEFT + 10 + (room * share).round() as i32
    }

    fn y(&self, nanos: f64) -> i32 {
        if nanos <= 0.0 {
            return self.bottom;
        }
        let (low, high) = (f64::from(self.powers.0), f64::from(self.powers.1));
        let share = (nanos.log10() - low) / (high - low);
        let lowest = self.bottom - FLOOR;
        lowest - (f64::from(lowest - ABOVE) * share).round() as i32
    }
}

fn grid<DB: DrawingBackend>(area: &Canvas<DB>, scale: &Scale) -> Result<()> {
    let ink = font(16, style::INK);
    area.text((28, 14), "driver time in a step (logarithmic scale)", ink.left())?;
    let powers = (scale.powers.0..=scale.powers.1).map(|power| {
        let nanos = 10_f64.powi(power);
        // The unit is enough to tell a power of ten: "100 ms", not "100.0 ms".
        (scale.y(nanos), Nanos(nanos).to_string().replace(".00", "").replace(".0", ""))
    });
    for (y, text) in powers.chain([(scale.bottom, "none".to_owned())]) {
        area.line([(LEFT, y), (scale.right, y)], style::GRID, 1)?;
        area.text((LEFT - 10, y), &text, ink.right())?;
    }
    let each = scale.steps.div_ceil(MOST_NUMBERS).max(1);
    for step in (0..scale.steps).step_by(each) {
        area.text((scale.x(step), scale.bottom + 26), &(step + 1).to_string(), ink.above())?;
    }
    let middle = (LEFT + scale.right) / 2;
    area.text((middle, scale.bottom + 54), "training step", ink.above())
}

fn line<DB: DrawingBackend>(
    area: &Canvas<DB>,
    scale: &Scale,
    nanos: &[u64],
    colour: RGBColor,
) -> Result<()> {
    let point = |(step, &ns): (usize, &u64)| (scale.x(step), scale.y(ns as f64));
    let points: Vec<(i32, i32)> = nanos.iter().enumerate().map(point).collect();
    for &point in points.iter().filter(|_| nanos.len() <= 80) {
        area.circle(point, 4, colour.filled())?;
    }
    area.line(points, colour, 2)
}

/// Names at the right ends of the lines, as in the other pictures.
fn names<DB: DrawingBackend>(area: &Canvas<DB>, scale: &Scale, lines: &[Line]) -> Result<()> {
    let end = |(_, nanos, _): &Line| scale.y(nanos.last().map_or(0.0, |&ns| ns as f64));
    let ends: Vec<i32> = lines.iter().map(end).collect();
    let places = style::spread(&ends, 22, ABOVE, scale.bottom);
    for (((name, _, colour), from), to) in lines.iter().zip(ends).zip(places) {
        let thread = [(scale.right, from), (scale.right + 6, from), (scale.right + 20, to)];
        area.line(thread, *colour, 1)?;
        area.text((scale.right + 26, to), name, font(18, *colour).left())?;
    }
    Ok(())
}
