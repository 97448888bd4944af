//! Curves over an axis of values: memory in GiB, a curve for each of what is compared, with its name at its end.
//!
//! Axes show the values in the order given and at equal distances: most ranges are geometric, and some values are
//! names.

use plotters::prelude::*;

use crate::report::Result;
use crate::report::picture::{Canvas, Picture, WIDTH, font, style};
use crate::sweep::data::Axis;

pub(crate) const HEIGHT: u32 = 760;
pub(super) const LEFT: i32 = 110;
const RIGHT: i32 = 330;
pub(super) const ABOVE: i32 = 96;
pub(super) const BOTTOM: i32 = HEIGHT as i32 - 84;
const END: i32 = WIDTH as i32 - RIGHT;
/// Marks on an axis at most.
const MOST_MARKS: usize = 12;

/// A picture of curves.
pub(crate) struct Curves<'a> {
    pub(crate) title: String,
    pub(crate) legend: String,
    pub(crate) axis: &'a Axis,
    /// What the top of the picture is, in GiB.
    pub(crate) most: f64,
    /// Heights in GiB, each with its name: dashed lines.
    pub(crate) levels: Vec<(String, f64)>,
    pub(crate) curves: Vec<Curve>,
}

/// One of the curves.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) colour: RGBColor,
    /// Numbers of values on the axis, each with a height in GiB and how it is marked.
    pub(crate) points: Vec<(usize, f64, Mark)>,
}

/// What a point of a curve is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// One that is as all the others.
    None,
    /// A result.
    Dot,
    /// Memory ran out.
    Cross,
}

impl Picture for Curves<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()> {
        root.title(&self.title, &self.legend)?;
        self.scale(root)?;
        let mut labels = Vec::new();
        for (name, gib) in &self.levels {
            let y = self.y(*gib);
            root.dashed([(LEFT, y), (END, y)], [10, 6], style::FAINT_INK, 1)?;
            labels.push((name, style::FAINT_INK, y));
        }
        for curve in &self.curves {
            labels.push((&curve.name, curve.colour, self.curve(root, curve)?));
        }
        let ends: Vec<i32> = labels.iter().map(|&(.., y)| y).collect();
        let places = style::spread(&ends, 22, ABOVE, BOTTOM);
        for ((name, colour, _), y) in labels.into_iter().zip(places) {
            root.text((END + 14, y), name, font(18, colour).left())?;
        }
        Ok(())
    }
}

impl Curves<'_> {
    fn x(&self, index: usize) -> i32 {
        let columns = self.axis.values.len();
        let share = if columns > 1 { index as f64 / (columns - 1) as f64 } else { 0.5 };
        LEFT + (f64::from(END - LEFT) * share) as i32
    }

    fn y(&self, gib: f64) -> i32 {
        BOTTOM - (f64::from(BOTTOM - ABOVE) * gib / self.most) as i32
    }

    fn scale<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()> {
        let step = nice_step(self.most / 6.0);
        let marks = (0..).map(|index| f64::from(index) * step);
        for mark in marks.take_while(|&mark| mark <= self.most) {
            let y = self.y(mark);
            root.line([(LEFT, y), (END, y)], style::GRID, 1)?;
            root.text((LEFT - 10, y), &format!("{mark} GiB"), font(16, style::FAINT_INK).right())?;
        }
        for (index, value) in marked(self.axis) {
            let below = (self.x(index), BOTTOM + 30);
            root.text(below, value, font(16, style::FAINT_INK).above())?;
        }
        let middle = ((LEFT + END) / 2, HEIGHT as i32 - 18);
        root.text(middle, &self.axis.name, font(18, style::INK).above())
    }

    /// Draws a curve and its marks; returns where it ends.
    fn curve<DB: DrawingBackend>(&self, root: &Canvas<DB>, curve: &Curve) -> Result<i32> {
        let place = |&(index, gib, _): &(usize, f64, Mark)| (self.x(index), self.y(gib));
        root.line(curve.points.iter().map(place), curve.colour, 3)?;
        for point in &curve.points {
            match point.2 {
                Mark::None => {}
                Mark::Dot => {
                    root.circle(place(point), 4, root.stroke(curve.colour, 3).filled())?;
                }
                Mark::Cross => root.cross(place(point), 8)?,
            }
        }
        Ok(curve.points.last().map_or(ABOVE, |point| place(point).1))
    }
}

/// The values that are written next to an axis, each with its number.
pub(super) fn marked(axis: &Axis) -> impl Iterator<Item = (usize, &String)> {
    axis.values.iter().enumerate().step_by(axis.values.len().div_ceil(MOST_MARKS))
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

    #[test]
    fn steps_of_a_scale_are_round() {
        for (least, step) in [(0.9, 1.0), (1.0, 1.0), (1.2, 2.0), (3.0, 5.0), (7.0, 10.0)] {
            assert!((nice_step(least) - step).abs() < 1e-9, "{least}");
        }
    }
}
