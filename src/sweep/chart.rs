//! A sweep as a picture: one axis makes curves, two make a heat map.
//!
//! ```text
//!   GiB │╲                        fragment_limit                    each cell is labelled with its value;
//!       │ ╲___ gmlake              64 │ ▓▓ ▓▒ ▒▒ ░░              a cross marks runs that ran out of memory
//!       │- - - - - caching          2 │ ▓▒ ▒▒ ▒░ ░░
//!       └──────────────              └─────────────
//!         2  4  8  16 MiB               24  40  80 GiB
//! ```
//!
//! Axes show the values in the order given and at equal distances: most ranges are geometric, and some values are
//! names.

use std::io::Write;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::data::{Axis, Sweep, SweepRow};
use crate::report::picture::{
    Area, ImageFormat, Pen, Picture, WIDTH, failed, style, write_picture,
};
use crate::report::{ReportError, Result};
use crate::sim::title_of;
use crate::units::{GIB, Size};

pub(crate) const HEIGHT: u32 = 760;
pub(crate) const LEFT: i32 = 110;
pub(crate) const RIGHT: i32 = 330;
pub(crate) const ABOVE: i32 = 96;
pub(crate) const BELOW: i32 = 84;
/// Marks on an axis at most.
const MOST_MARKS: usize = 12;
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
        [x] => write_picture(format, HEIGHT, out, &Curves { sweep, x }),
        [x, y] => {
            let panels = panels(sweep);
            if panels.len() > MOST_PANELS {
                return Err(ReportError::Draw(format!(
                    "a heat map for each of {} files and allocators is too much; {MOST_PANELS} fit",
                    panels.len()
                )));
            }
            let height = HEIGHT * panels.len().max(1) as u32;
            write_picture(format, height, out, &HeatMaps { panels, x, y })
        }
        _ => Err(ReportError::Draw(format!(
            "a picture shows one or two axes with several values, and this sweep has {}",
            varied.len()
        ))),
    }
}

struct Curves<'a> {
    sweep: &'a Sweep,
    x: &'a Axis,
}

struct HeatMaps<'a> {
    panels: Vec<Line<'a>>,
    x: &'a Axis,
    y: &'a Axis,
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

impl Picture for Curves<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Area<'_, DB>, pen: Pen) -> Result<()> {
        let lines = panels(self.sweep);
        heading(root, self.sweep, &format!("Peak reserved memory over {}", self.x.name), pen)?;
        let most = self.sweep.rows.iter().map(gib).fold(0.0, f64::max).max(1e-3) * 1.08;
        let frame = Frame { columns: self.x.values.len(), most };
        frame.scale(root, self.x, pen)?;
        let mut more = style::more_colours().into_iter().cycle();
        let colours: Vec<RGBColor> = lines
            .iter()
            .map(|line| style::known(line.allocator).or_else(|| more.next()))
            .map(|c| c.unwrap_or(style::INK))
            .collect();
        let mut ends = Vec::new();
        for (line, &colour) in lines.iter().zip(&colours) {
            ends.push(frame.curve(root, line, self.x, pen.line(colour, 3))?);
        }
        let places = style::spread(&ends, 22, ABOVE, HEIGHT as i32 - BELOW);
        for ((line, &colour), y) in lines.iter().zip(&colours).zip(places) {
            let font = Pen::left(&pen.font(18, colour));
            pen.text(root, (WIDTH as i32 - RIGHT + 14, y), &line.name, &font)?;
        }
        Ok(())
    }
}

/// Where things are in a chart of curves.
pub(crate) struct Frame {
    pub(crate) columns: usize,
    pub(crate) most: f64,
}

impl Frame {
    pub(crate) fn x(&self, index: usize) -> i32 {
        let width = f64::from(WIDTH as i32 - LEFT - RIGHT);
        let share = if self.columns > 1 { index as f64 / (self.columns - 1) as f64 } else { 0.5 };
        LEFT + (width * share) as i32
    }

    pub(crate) fn y(&self, gib: f64) -> i32 {
        let height = f64::from(HEIGHT as i32 - ABOVE - BELOW);
        HEIGHT as i32 - BELOW - (height * gib / self.most) as i32
    }

    pub(crate) fn scale<DB: DrawingBackend>(
        &self,
        root: &DrawingArea<DB, Shift>,
        axis: &Axis,
        pen: Pen,
    ) -> Result<()> {
        let end = WIDTH as i32 - RIGHT;
        let step = nice_step(self.most / 6.0);
        let marks =
            (0..).map(|index| f64::from(index) * step).take_while(|&mark| mark <= self.most);
        for mark in marks {
            let line =
                [(LEFT, self.y(mark)), (end, self.y(mark))].map(|(x, y)| (pen.px(x), pen.px(y)));
            root.draw(&PathElement::new(line, pen.line(style::GRID, 1))).map_err(failed)?;
            let font = Pen::right(&pen.font(16, style::FAINT_INK));
            pen.text(root, (LEFT - 10, self.y(mark)), &format!("{mark} GiB"), &font)?;
        }
        let every = axis.values.len().div_ceil(MOST_MARKS);
        for (index, value) in axis.values.iter().enumerate().step_by(every) {
            let font = Pen::above(&pen.font(16, style::FAINT_INK));
            pen.text(root, (self.x(index), HEIGHT as i32 - BELOW + 30), value, &font)?;
        }
        let font = Pen::above(&pen.font(18, style::INK));
        pen.text(root, ((LEFT + end) / 2, HEIGHT as i32 - 18), &axis.name, &font)
    }

    /// Draws a line, a dot for each run and a cross for each that ran out of memory; returns where it ends.
    fn curve<DB: DrawingBackend>(
        &self,
        root: &DrawingArea<DB, Shift>,
        line: &Line<'_>,
        axis: &Axis,
        style: ShapeStyle,
    ) -> Result<i32> {
        let scale = root.dim_in_pixel().0 as i32 / WIDTH as i32;
        let level = line.rows.first().copied().filter(|_| line.is_level(axis));
        let runs: Vec<(i32, i32, bool)> = axis
            .values
            .iter()
            .enumerate()
            .filter_map(|(index, value)| {
                let row = level.or_else(|| line.at(axis, value))?;
                Some((self.x(index) * scale, self.y(gib(row)) * scale, row.oom_count > 0))
            })
            .collect();
        let points: Vec<(i32, i32)> = runs.iter().map(|&(x, y, _)| (x, y)).collect();
        root.draw(&PathElement::new(points, style)).map_err(failed)?;
        for &(x, y, has_oom) in &runs {
            if has_oom {
                let size = 8 * scale;
                root.draw(&Cross::new((x, y), size, style::ALARM.stroke_width(3 * scale as u32)))
                    .map_err(failed)?;
            } else if level.is_none() {
                root.draw(&Circle::new((x, y), 4 * scale, style.filled())).map_err(failed)?;
            }
        }
        Ok(runs.last().map_or(ABOVE, |&(_, y, _)| y / scale))
    }
}

impl Picture for HeatMaps<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Area<'_, DB>, pen: Pen) -> Result<()> {
        let rows = root.split_evenly((self.panels.len().max(1), 1));
        for (area, panel) in rows.iter().zip(&self.panels) {
            self.panel(area, panel, pen)?;
        }
        Ok(())
    }
}

impl HeatMaps<'_> {
    fn panel<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        panel: &Line<'_>,
        pen: Pen,
    ) -> Result<()> {
        let title = format!("{}: peak reserved memory", panel.name);
        let legend = "darker is more; grey with a cross: requests were left out";
        pen.title(area, &title, legend)?;
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
                    cell(area, [(left, top), (right, bottom)], row, range, pen)?;
                }
            }
        }
        self.marks(area, pen)
    }

    /// Left upper corner of a cell; one beyond the last is the end of the map.
    fn corner(&self, column: usize, line: usize) -> (i32, i32) {
        let share = |index: usize, count: usize| index as f64 / count as f64;
        let width = f64::from(WIDTH as i32 - 2 * LEFT - 60);
        let height = f64::from(HEIGHT as i32 - ABOVE - BELOW);
        let x = LEFT + 60 + (width * share(column, self.x.values.len())) as i32;
        let y = HEIGHT as i32 - BELOW - (height * share(line, self.y.values.len())) as i32;
        (x, y)
    }

    fn marks<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, pen: Pen) -> Result<()> {
        let (below, faint) = (HEIGHT as i32 - BELOW, pen.font(15, style::FAINT_INK));
        for (index, value) in
            self.x.values.iter().enumerate().step_by(self.x.values.len().div_ceil(MOST_MARKS))
        {
            let middle = (self.corner(index, 0).0 + self.corner(index + 1, 0).0) / 2;
            pen.text(area, (middle, below + 28), value, &Pen::above(&faint))?;
        }
        for (index, value) in
            self.y.values.iter().enumerate().step_by(self.y.values.len().div_ceil(MOST_MARKS))
        {
            let middle = (self.corner(0, index).1 + self.corner(0, index + 1).1) / 2;
            pen.text(area, (LEFT + 52, middle), value, &Pen::right(&faint))?;
        }
        let name = Pen::above(&pen.font(18, style::INK));
        pen.text(area, (WIDTH as i32 / 2, HEIGHT as i32 - 18), &self.x.name, &name)?;
        let above = Pen::left(&pen.font(18, style::INK));
        pen.text(area, (28, ABOVE - 12), &self.y.name, &above)
    }
}

/// A cell of a heat map between its left upper corner and its right lower one, `range` being all values of the map in
/// GiB.
fn cell<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    [(left, top), (right, bottom)]: [(i32, i32); 2],
    row: &SweepRow,
    (least, most): (f64, f64),
    pen: Pen,
) -> Result<()> {
    let has_oom = row.oom_count > 0;
    let share = if most > least { (gib(row) - least) / (most - least) } else { 0.0 };
    let colour = if has_oom { style::GRID } else { shade(share) };
    let corners = [(pen.px(left + 1), pen.px(top + 1)), (pen.px(right - 1), pen.px(bottom - 1))];
    area.draw(&Rectangle::new(corners, colour.filled())).map_err(failed)?;
    let middle = ((left + right) / 2, (top + bottom) / 2);
    if has_oom {
        let at = (pen.px(middle.0), pen.px(middle.1 - 16));
        area.draw(&Cross::new(at, pen.px(7), pen.line(style::ALARM, 3))).map_err(failed)?;
    }
    if right - left < NARROW {
        return Ok(());
    }
    let font = Pen::above(&pen.font_on(15, colour));
    pen.text(area, (middle.0, middle.1 + 14), &Size(row.reserved_peak_bytes).to_string(), &font)
}

fn heading<DB: DrawingBackend>(
    root: &DrawingArea<DB, Shift>,
    sweep: &Sweep,
    title: &str,
    pen: Pen,
) -> Result<()> {
    let first = sweep.rows.first().map_or("", |row| title_of(&row.file));
    let more = sweep.rows.iter().any(|row| Some(&row.file) != sweep.rows.first().map(|r| &r.file));
    let files = if more { String::new() } else { format!("{first}; ") };
    let text = format!("{files}a cross marks runs that ran out of memory");
    pen.title(root, title, &text)
}

/// From nearly white to a dark blue, which any colour vision tells apart.
fn shade(share: f64) -> RGBColor {
    let mix = |light: u8, dark: u8| {
        (f64::from(light) + share.clamp(0.0, 1.0) * (f64::from(dark) - f64::from(light))) as u8
    };
    RGBColor(mix(236, 8), mix(243, 64), mix(250, 129))
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-9).log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::data::Setting;

    fn sweep(axes: &[(&str, &[&str])]) -> Sweep {
        let axes: Vec<Axis> = axes
            .iter()
            .map(|(name, values)| Axis {
                name: (*name).to_owned(),
                values: values.iter().map(|&value| value.to_owned()).collect(),
            })
            .collect();
        let mut rows = vec![SweepRow { allocator: "gmlake".to_owned(), ..SweepRow::default() }];
        for axis in &axes {
            let set = |row: &SweepRow, value: &String| {
                let mut row = row.clone();
                row.settings.push(Setting { name: axis.name.clone(), value: value.clone() });
                row.reserved_peak_bytes += GIB * value.len() as u64;
                row
            };
            rows =
                rows.iter().flat_map(|row| axis.values.iter().map(move |v| set(row, v))).collect();
        }
        Sweep { axes, rows }
    }

    #[test]
    fn one_axis_makes_a_curve_and_two_a_map() {
        let mut one = Vec::new();
        let curve = sweep(&[("gmlake.fragment_limit", &["2MiB", "16MiB"])]);
        write_sweep(&curve, ImageFormat::Svg, &mut one).unwrap();
        let one = String::from_utf8(one).unwrap();
        assert!(one.contains("gmlake.fragment_limit") && one.contains("<polyline"), "{one}");
        let mut two = Vec::new();
        let map = sweep(&[("a.x", &["1", "10"]), ("a.y", &["1", "10", "100"]), ("a.z", &["7"])]);
        write_sweep(&map, ImageFormat::Svg, &mut two).unwrap();
        let two = String::from_utf8(two).unwrap();
        // Six cells and the background.
        assert_eq!(two.matches("<rect").count(), 7, "{two}");
    }

    #[test]
    fn what_cannot_be_drawn_is_said() {
        for axes in [&[][..], &[("a", &["1", "2"][..]), ("b", &["1", "2"]), ("c", &["1", "2"])]] {
            let error = write_sweep(&sweep(axes), ImageFormat::Svg, &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains("one or two axes"), "{error}");
        }
    }

    #[test]
    fn steps_of_a_scale_are_round() {
        for (least, step) in [(0.9, 1.0), (1.0, 1.0), (1.2, 2.0), (3.0, 5.0), (7.0, 10.0)] {
            assert!((nice_step(least) - step).abs() < 1e-9, "{least}");
        }
    }
}
