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
use crate::report::Result;
use crate::report::picture::{Canvas, ImageFormat, Picture, WIDTH, font, style, write_picture};
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
    write_picture(format, HEIGHT, out, bench)
}

impl Picture for Bench {
    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()> {
        let title = format!("Memory and driver time, the set {}", self.set);
        let legend =
            "medians over the traces; filled: no other is better in memory and driver time";
        root.title(&title, legend)?;
        let (left, right) = root.split_at_x(WIDTH as i32 / 2);
        let once = |summary: &Summary| summary.driver_once_median_ns;
        let step = |summary: &Summary| summary.driver_step_median_ns;
        panel(&left, &points(self, once), "driver time once")?;
        panel(&right, &points(self, step), "driver time in each step")
    }
}

/// All allocators that have a score; a bound makes no calls, and has no time.
fn points(bench: &Bench, time: impl Fn(&Summary) -> Option<u64>) -> Vec<Point> {
    let scored = bench.summaries.iter();
    let scored = scored.filter_map(|one| Some((one, time(one)?, one.memory_mean?)));
    let shown: Vec<_> = scored.collect();
    let colours = style::colours_of(shown.iter().map(|(summary, ..)| &summary.allocator[..]));
    let point = |((summary, ns, memory), colour): ((&Summary, u64, f64), RGBColor)| Point {
        name: summary.allocator.clone(),
        colour,
        ns: (ns as f64).max(LEAST),
        memory,
        is_on_front: summary.is_on_front,
    };
    shown.into_iter().zip(colours).map(point).collect()
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

fn panel<DB: DrawingBackend>(area: &Canvas<DB>, points: &[Point], name: &str) -> Result<()> {
    let scale = Scale::of(points);
    grid(area, &scale, name)?;
    let wanted: Vec<i32> = points.iter().map(|point| scale.y(point.memory)).collect();
    let labels = style::spread(&wanted, 19, ABOVE - 20, HEIGHT as i32 - BELOW);
    for (point, label) in points.iter().zip(labels) {
        let (x, y) = (scale.x(point.ns), scale.y(point.memory));
        let line = area.stroke(point.colour, 2);
        area.circle((x, y), 6, if point.is_on_front { line.filled() } else { line })?;
        area.text((x + 12, label), &point.name, font(16, point.colour).left())?;
    }
    Ok(())
}

/// Lines for each decade of time and each fifth of the memory, with their names.
fn grid<DB: DrawingBackend>(area: &Canvas<DB>, scale: &Scale, name: &str) -> Result<()> {
    let (right, bottom) = (WIDTH as i32 / 2 - RIGHT, HEIGHT as i32 - BELOW);
    let faint = font(16, style::FAINT_INK);
    for decade in scale.first as i32..=scale.last as i32 {
        let x = scale.x(10_f64.powi(decade));
        area.line([(x, ABOVE), (x, bottom)], style::GRID, 1)?;
        let text = Nanos(10_f64.powi(decade)).to_string();
        area.text((x, bottom + 26), &text, faint.above())?;
    }
    for decade in LEAST_SHARE.log10() as i32..=scale.top as i32 {
        let share = 10_f64.powi(decade);
        let y = scale.y(1.0 + share);
        area.line([(LEFT, y), (right, y)], style::GRID, 1)?;
        area.text((LEFT - 10, y), &format!("{} %", share * 100.0), faint.right())?;
    }
    let title = font(18, style::INK);
    area.text(((LEFT + right) / 2, HEIGHT as i32 - 12), name, title.above())?;
    area.text((LEFT, ABOVE - 24), "memory at the peak above live memory, mean", title.left())
}
