//! A sweep as a picture: one axis makes curves, two make a heat map.
//!
//! ```text
//!   GiB │╲                        fragment_limit                    each cell is labelled with its value;
//!       │ ╲___ gmlake              64 │ ▓▓ ▓▒ ▒▒ ░░              a cross marks runs that ran out of memory
//!       │- - - - - caching          2 │ ▓▒ ▒▒ ▒░ ░░
//!       └──────────────              └─────────────
//!         2  4  8  16 MiB               24  40  80 GiB
//! ```

pub(crate) mod curves;

use std::io::Write;

use plotters::prelude::*;

use self::curves::{ABOVE, BOTTOM, Curve, Curves, HEIGHT, LEFT, Mark, marked};
use super::data::{Axis, Sweep, SweepRow};
use crate::report::picture::{
    Canvas, ImageFormat, Picture, WIDTH, font, font_on, style, write_picture,
};
use crate::report::{PARTIAL, ReportError, Result};
use crate::sim::title_of;
use crate::units::GIB;

/// Panels of a picture at most.
const MOST_PANELS: usize = 6;
/// Cells of a heat map that are narrower have no room for a number.
const NARROW: i32 = 84;

/// Draws peak reserved memory over one axis or two of a sweep; axes with a single value do not count.
///
/// # Errors
/// If more than two axes are varied, or none, if there are too many files and allocators for a heat map, or `out`
/// cannot be written.
pub fn write_sweep(sweep: &Sweep, format: ImageFormat, out: &mut dyn Write) -> Result<()> {
    let varied: Vec<&Axis> = sweep.axes.iter().filter(|axis| axis.values.len() > 1).collect();
    match varied[..] {
        [axis] => write_picture(format, HEIGHT, out, &curves(sweep, axis)),
        [x, y] => {
            let panels = panels(sweep);
            if panels.len() > MOST_PANELS {
                return Err(ReportError::Draw(format!(
                    "a heat map for each of {} files and allocators is too much; {MOST_PANELS} fit",
                    panels.len()
                )));
            }
            let height = HEIGHT * panels.len().max(1) as u32;
            write_picture(
                format,
                height,
                out,
                &HeatMaps { panels, x, y, is_partial: sweep.is_partial() },
            )
        }
        _ => Err(ReportError::Draw(format!(
            "a picture shows one or two axes with several values, and this sweep has {}",
            varied.len()
        ))),
    }
}

struct HeatMaps<'a> {
    panels: Vec<Line<'a>>,
    x: &'a Axis,
    y: &'a Axis,
    is_partial: bool,
}

/// Rows of one file and allocator, and of one value of whatever else is set.
struct Line<'a> {
    name: String,
    allocator: &'a str,
    rows: Vec<&'a SweepRow>,
}

/// A line for each file and allocator.
fn panels(sweep: &Sweep) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let several = sweep.rows.iter().any(|row| row.file != sweep.rows[0].file);
    for row in &sweep.rows {
        let name = match several {
            true => format!("{}, {}", title_of(&row.file), row.allocator),
            false => row.allocator.clone(),
        };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.rows.push(row),
            None => lines.push(Line { name, allocator: &row.allocator, rows: vec![row] }),
        }
    }
    lines
}

impl Line<'_> {
    fn at(&self, axis: &Axis, value: &str) -> Option<&SweepRow> {
        self.rows.iter().copied().find(|row| row.value_of(&axis.name) == Some(value))
    }

    /// Whether the axis is none of this allocator's: its result is the same all along.
    fn is_level(&self, axis: &Axis) -> bool {
        self.rows.iter().all(|row| row.value_of(&axis.name).is_none())
    }
}

fn gib(row: &SweepRow) -> f64 {
    row.reserved_peak_bytes as f64 / GIB as f64
}

/// A curve for each file and allocator: a dot for each run, a cross for each that ran out of memory.
fn curves<'a>(sweep: &'a Sweep, axis: &'a Axis) -> Curves<'a> {
    let lines = panels(sweep);
    let colours = style::colours_of(lines.iter().map(|line| line.allocator));
    let curve = |(line, colour): (&Line<'_>, RGBColor)| {
        let level = line.rows.first().copied().filter(|_| line.is_level(axis));
        let point = |(index, value): (usize, &String)| {
            let row = level.or_else(|| line.at(axis, value))?;
            let mark = match level {
                _ if row.oom_count > 0 => Mark::Cross,
                Some(_) => Mark::None,
                None => Mark::Dot,
            };
            Some((index, gib(row), mark))
        };
        let points = axis.values.iter().enumerate().filter_map(point).collect();
        Curve { name: line.name.clone(), colour, points }
    };
    let first = sweep.rows.first();
    let more = sweep.rows.iter().any(|row| Some(&row.file) != first.map(|row| &row.file));
    let file = first.map(|row| format!("{}; ", title_of(&row.file))).filter(|_| !more);
    Curves {
        title: format!("Peak reserved memory over {}", axis.name),
        legend: file.unwrap_or_default()
            + &legend(sweep.is_partial(), "a cross marks runs that ran out of memory"),
        axis,
        most: sweep.rows.iter().map(gib).fold(0.0, f64::max).max(1e-3) * 1.08,
        levels: Vec::new(),
        curves: lines.iter().zip(colours).map(curve).collect(),
    }
}

/// What the marks of a picture mean.
fn legend(is_partial: bool, marks: &str) -> String {
    if is_partial { format!("{marks}; {PARTIAL}") } else { marks.to_owned() }
}

impl Picture for HeatMaps<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()> {
        let rows = root.rows(self.panels.len());
        rows.iter().zip(&self.panels).try_for_each(|(area, panel)| self.panel(area, panel))
    }
}

impl HeatMaps<'_> {
    fn panel<DB: DrawingBackend>(&self, area: &Canvas<DB>, panel: &Line<'_>) -> Result<()> {
        let title = format!("{}: peak reserved memory", panel.name);
        let marks = "darker is more; grey with a cross: requests were left out";
        area.title(&title, &legend(self.is_partial, marks))?;
        // Who refused requests did less, and is no measure for the others.
        let served = panel.rows.iter().filter(|row| row.oom_count == 0);
        let range = served.fold((f64::MAX, 0.0), |(least, most): (f64, f64), row| {
            (least.min(gib(row)), most.max(gib(row)))
        });
        for (column, x) in self.x.values.iter().enumerate() {
            for (line, y) in self.y.values.iter().enumerate() {
                let row = panel.rows.iter().find(|row| {
                    let is = |axis: &Axis, value: &str| {
                        row.value_of(&axis.name).is_none_or(|v| v == value)
                    };
                    is(self.x, x) && is(self.y, y)
                });
                if let Some(row) = row {
                    let (left, bottom) = self.corner(column, line);
                    let (right, top) = self.corner(column + 1, line + 1);
                    cell(area, [(left, top), (right, bottom)], row, range)?;
                }
            }
        }
        self.marks(area)
    }

    /// Left lower corner of a cell; one beyond the last is the end of the map.
    fn corner(&self, column: usize, line: usize) -> (i32, i32) {
        let share = |index: usize, count: usize| index as f64 / count as f64;
        let width = f64::from(WIDTH as i32 - 2 * LEFT - 60);
        let x = LEFT + 60 + (width * share(column, self.x.values.len())) as i32;
        let height = f64::from(BOTTOM - ABOVE);
        (x, BOTTOM - (height * share(line, self.y.values.len())) as i32)
    }

    fn marks<DB: DrawingBackend>(&self, area: &Canvas<DB>) -> Result<()> {
        let faint = font(15, style::FAINT_INK);
        for (index, value) in marked(self.x) {
            let middle = (self.corner(index, 0).0 + self.corner(index + 1, 0).0) / 2;
            area.text((middle, BOTTOM + 28), value, faint.above())?;
        }
        for (index, value) in marked(self.y) {
            let middle = (self.corner(0, index).1 + self.corner(0, index + 1).1) / 2;
            area.text((LEFT + 52, middle), value, faint.right())?;
        }
        let name = font(18, style::INK);
        area.text((WIDTH as i32 / 2, HEIGHT as i32 - 18), &self.x.name, name.above())?;
        area.text((28, ABOVE - 12), &self.y.name, name.left())
    }
}

/// A cell of a heat map between its left upper corner and its right lower one, `range` being all values of the map in
/// GiB.
fn cell<DB: DrawingBackend>(
    area: &Canvas<DB>,
    [(left, top), (right, bottom)]: [(i32, i32); 2],
    row: &SweepRow,
    (least, most): (f64, f64),
) -> Result<()> {
    let has_oom = row.oom_count > 0;
    let share = if most > least { (gib(row) - least) / (most - least) } else { 0.0 };
    let colour = if has_oom { style::GRID } else { shade(share) };
    area.rectangle([(left + 1, top + 1), (right - 1, bottom - 1)], &colour)?;
    let middle = ((left + right) / 2, (top + bottom) / 2);
    if has_oom {
        area.cross((middle.0, middle.1 - 16), 7)?;
    }
    if right - left < NARROW {
        return Ok(());
    }
    let text = row.reserved().to_string();
    area.text((middle.0, middle.1 + 14), &text, font_on(15, colour).above())
}

/// From nearly white to a dark blue, which any colour vision tells apart.
fn shade(share: f64) -> RGBColor {
    let mix = |light: u8, dark: u8| {
        (f64::from(light) + share.clamp(0.0, 1.0) * (f64::from(dark) - f64::from(light))) as u8
    };
    RGBColor(mix(236, 8), mix(243, 64), mix(250, 129))
}
