//! The picture: memory against driver time, a point for each allocator, and the front of those that nobody dominates.
//!
//! ```text
//!   memory above  │ ○ caching
//!   live, log     │    ╲
//!                 │     ○───────── ○ lake ────────── ○ gmlake       left and below is better
//!                 └──────────────────────────────────────────
//!                   driver time of a job, logarithmic
//! ```

use std::io::Write;

use plotters::prelude::*;

use super::data::{Bench, Summary};
use crate::allocator::{Role, find};
use crate::report::Result;
use crate::report::picture::{
    Area, ImageFormat, Pen, Picture, WIDTH, failed, style, write_picture,
};
use crate::units::Nanos;

/// Height of the picture, and the edges of a panel's frame in it.
const HEIGHT: u32 = 720;
const ABOVE: i32 = 130;
const BELOW: i32 = 70;
const LEFT: i32 = 80;
const RIGHT: i32 = 190;
/// What a driver time of nothing is drawn as, in nanoseconds.
const LEAST: f64 = 1e3;
/// And an excess of memory of nothing.
const LEAST_SHARE: f64 = 1e-3;

/// Draws the picture.
///
/// # Errors
/// If `out` cannot be written.
pub fn write(bench: &Bench, format: ImageFormat, out: &mut dyn Write) -> Result<()> {
    write_picture(format, HEIGHT, out, &Front { bench })
}

struct Front<'b> {
    bench: &'b Bench,
}

impl Picture for Front<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Area<'_, DB>, pen: Pen) -> Result<()> {
        let title = format!("Memory and driver time, the set {}", self.bench.set);
        let legend =
            "medians over the traces; filled: no other is better in memory and driver time";
        pen.title(root, &title, legend)?;
        let (left, right) = root.split_horizontally(pen.px(WIDTH as i32 / 2));
        let once = |summary: &Summary| summary.driver_once_median_ns;
        let step = |summary: &Summary| summary.driver_step_median_ns;
        panel(&left, &self.points(once), "driver time once", pen)?;
        panel(&right, &self.points(step), "driver time in each step", pen)
    }
}

impl Front<'_> {
    /// All allocators but the bounds.
    fn points(&self, time: impl Fn(&Summary) -> Option<u64>) -> Vec<Point> {
        let mut more = style::more_colours().into_iter().cycle();
        let point = |summary: &Summary| {
            let role = find(&summary.allocator).map(|spec| spec.role);
            let ns = time(summary).filter(|_| role != Some(Role::Bound))?;
            Some(Point {
                name: summary.allocator.clone(),
                colour: style::known(&summary.allocator)
                    .or_else(|| more.next())
                    .unwrap_or(style::INK),
                ns: (ns as f64).max(LEAST),
                memory: summary.memory_mean,
                is_on_front: summary.is_on_front,
            })
        };
        self.bench.summaries.iter().filter_map(point).collect()
    }
}

/// An allocator.
struct Point {
    name: String,
    colour: RGBColor,
    ns: f64,
    memory: f64,
    is_on_front: bool,
}

/// Where points lie in a panel, in finished pixels.
struct Scale {
    /// Decades of nanoseconds.
    first: f64,
    last: f64,
    /// Decades of the share of memory above live memory.
    top: f64,
}

impl Scale {
    fn of(points: &[Point]) -> Self {
        let decades = || points.iter().map(|point| point.ns.log10());
        let top = points.iter().map(|point| (point.memory - 1.0).max(LEAST_SHARE).log10());
        Self {
            first: decades().fold(f64::INFINITY, f64::min).floor().min(6.0),
            last: decades().fold(0.0, f64::max).ceil().max(7.0),
            top: top.fold(-1.0, f64::max).ceil(),
        }
    }

    fn x(&self, ns: f64) -> i32 {
        let part = (ns.log10() - self.first) / (self.last - self.first);
        LEFT + (part * f64::from(WIDTH as i32 / 2 - LEFT - RIGHT)) as i32
    }

    fn y(&self, memory: f64) -> i32 {
        let bottom = LEAST_SHARE.log10();
        let part = ((memory - 1.0).max(LEAST_SHARE).log10() - bottom) / (self.top - bottom);
        HEIGHT as i32 - BELOW - (part * f64::from(HEIGHT as i32 - ABOVE - BELOW)) as i32
    }
}

fn panel<DB: DrawingBackend>(
    area: &Area<'_, DB>,
    points: &[Point],
    name: &str,
    pen: Pen,
) -> Result<()> {
    let scale = Scale::of(points);
    grid(area, &scale, name, pen)?;
    let wanted: Vec<i32> = points.iter().map(|point| scale.y(point.memory)).collect();
    let labels = style::spread(&wanted, 19, ABOVE - 20, HEIGHT as i32 - BELOW);
    for (point, label) in points.iter().zip(labels) {
        let (x, y) = (scale.x(point.ns), scale.y(point.memory));
        let line = pen.line(point.colour, 2);
        let shape = if point.is_on_front { line.filled() } else { line };
        area.draw(&Circle::new((pen.px(x), pen.px(y)), pen.px(6), shape)).map_err(failed)?;
        pen.text(area, (x + 12, label), &point.name, &Pen::left(&pen.font(16, point.colour)))?;
    }
    Ok(())
}

/// Lines for each decade of time and each fifth of the memory, with their names.
fn grid<DB: DrawingBackend>(
    area: &Area<'_, DB>,
    scale: &Scale,
    name: &str,
    pen: Pen,
) -> Result<()> {
    let (right, bottom) = (WIDTH as i32 / 2 - RIGHT, HEIGHT as i32 - BELOW);
    let line = |from: (i32, i32), to: (i32, i32)| {
        let ends = [from, to].map(|(x, y)| (pen.px(x), pen.px(y)));
        area.draw(&PathElement::new(ends.to_vec(), pen.line(style::GRID, 1))).map_err(failed)
    };
    let font = pen.font(16, style::FAINT_INK);
    for decade in scale.first as i32..=scale.last as i32 {
        let x = scale.x(10_f64.powi(decade));
        line((x, ABOVE), (x, bottom))?;
        let text = Nanos(10_f64.powi(decade)).to_string();
        pen.text(area, (x, bottom + 26), &text, &Pen::above(&font))?;
    }
    for decade in LEAST_SHARE.log10() as i32..=scale.top as i32 {
        let share = 10_f64.powi(decade);
        let y = scale.y(1.0 + share);
        line((LEFT, y), (right, y))?;
        pen.text(area, (LEFT - 10, y), &format!("{} %", share * 100.0), &Pen::right(&font))?;
    }
    let font = pen.font(18, style::INK);
    pen.text(area, ((LEFT + right) / 2, HEIGHT as i32 - 12), name, &Pen::above(&font))?;
    let title = "memory at the peak above live memory, mean";
    pen.text(area, (LEFT, ABOVE - 24), title, &Pen::left(&font))
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::row;
    use super::*;

    #[test]
    fn a_point_in_each_panel_for_every_allocator_but_the_bounds() {
        let rows = vec![
            row("a", "bound", 100, 0),
            row("a", "lake", 105, 50_000),
            row("a", "caching", 150, 10_000_000),
        ];
        let mut out = Vec::new();
        write(&Bench::new("mine", "h200", rows), ImageFormat::Svg, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("<circle").count(), 4, "{text}");
        for name in ["lake", "caching"] {
            assert_eq!(text.matches(&format!("\n{name}\n")).count(), 2, "{name}");
        }
        assert!(!text.contains("\nbound\n"));
    }
}
