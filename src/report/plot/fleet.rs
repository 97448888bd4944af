//! A fleet as a picture: how many of its ranks hold how much, and what the cards have.
//!
//! ```text
//!   100 % │      ¦   ____¦____     a curve further to the left is an allocator that holds less;
//!         │  lake¦__/ __/¦         at a card's line, a curve is the share of ranks that the card holds
//!    50 % │   __/¦ _/ caching
//!       0 └─────────────────────
//!            8   16  32  64 GiB
//! ```

use std::io::Write;

use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::style::{self, Pen, failed};
use super::sweep::{ABOVE, BELOW, HEIGHT, LEFT, RIGHT};
use super::{Area, ImageFormat, Picture, WIDTH, write_picture};
use crate::metrics::{FleetSummary, FleetTotal};
use crate::report::ReportError;
use crate::units::{GIB, Size};

/// Draws which share of the ranks holds at most how much under each allocator.
///
/// # Errors
/// If no rank has a result, or `out` cannot be written.
pub fn write_fleet(
    fleet: &FleetSummary,
    format: ImageFormat,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let sizes = fleet.totals.iter().flat_map(|total| total.sizes.shares());
    let range = sizes
        .fold((f64::MAX, 0.0_f64), |(least, most), (bytes, _)| (bytes.min(least), bytes.max(most)));
    if range.1 == 0.0 {
        return Err(ReportError::Draw("no rank has a result".to_owned()));
    }
    // An eighth of a doubling on either side.
    let (least, most) = (range.0.log2() - 0.25, range.1.log2() + 0.25);
    write_picture(format, HEIGHT, out, &Shares { fleet, least, most })
}

/// The curves, on a scale of doublings from `least` to `most`.
struct Shares<'a> {
    fleet: &'a FleetSummary,
    least: f64,
    most: f64,
}

impl Picture for Shares<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Area<'_, DB>, pen: Pen) -> Result<(), ReportError> {
        let title = "Ranks that hold at most so much at their peaks";
        pen.text(root, (28, 18), title, &pen.font(28, style::INK))?;
        let legend = "further left is less memory; a dashed line is what a card has";
        pen.text(root, (28, 54), legend, &pen.font(18, style::FAINT_INK))?;
        self.scale(root, pen)?;
        self.cards(root, pen)?;
        let mut more = style::more_colours().into_iter().cycle();
        for (index, total) in self.fleet.totals.iter().enumerate() {
            let colour = style::known(&total.allocator).or_else(|| more.next());
            let colour = colour.unwrap_or(style::INK);
            self.curve(root, total, colour, pen)?;
            let y = ABOVE + 30 + 28 * index as i32;
            let font = Pen::left(&pen.font(18, colour));
            pen.text(root, (WIDTH as i32 - RIGHT + 24, y), &total.allocator, &font)?;
        }
        Ok(())
    }
}

impl Shares<'_> {
    fn x(&self, bytes: f64) -> i32 {
        let width = f64::from(WIDTH as i32 - LEFT - RIGHT);
        LEFT + (width * (bytes.log2() - self.least) / (self.most - self.least)) as i32
    }

    fn y(share: f64) -> i32 {
        let height = f64::from(HEIGHT as i32 - ABOVE - BELOW);
        HEIGHT as i32 - BELOW - (height * share) as i32
    }

    fn scale<DB: DrawingBackend>(&self, root: &Area<'_, DB>, pen: Pen) -> Result<(), ReportError> {
        let end = WIDTH as i32 - RIGHT;
        for quarter in 0..=4 {
            let share = f64::from(quarter) / 4.0;
            let line = [(LEFT, Self::y(share)), (end, Self::y(share))];
            let line = line.map(|(x, y)| (pen.px(x), pen.px(y)));
            root.draw(&PathElement::new(line, pen.line(style::GRID, 1))).map_err(failed)?;
            let font = Pen::right(&pen.font(16, style::FAINT_INK));
            let text = format!("{:.0} %", 100.0 * share);
            pen.text(root, (LEFT - 10, Self::y(share)), &text, &font)?;
        }
        let doublings = self.least.ceil() as i32..=self.most.floor() as i32;
        let every = (doublings.clone().count() / 12).max(1);
        for doubling in doublings.step_by(every) {
            let bytes = f64::from(doubling).exp2();
            let font = Pen::above(&pen.font(16, style::FAINT_INK));
            let text = Size(bytes as u64).to_string();
            pen.text(root, (self.x(bytes), HEIGHT as i32 - BELOW + 30), &text, &font)?;
        }
        let font = Pen::above(&pen.font(18, style::INK));
        pen.text(root, ((LEFT + end) / 2, HEIGHT as i32 - 18), "peak reserved memory", &font)
    }

    /// A dashed line for each card in the picture, with its name on the right.
    fn cards<DB: DrawingBackend>(&self, root: &Area<'_, DB>, pen: Pen) -> Result<(), ReportError> {
        let cards = self.fleet.targets.iter().filter(|card| {
            let size = (card.capacity_bytes as f64).log2();
            (self.least..=self.most).contains(&size)
        });
        let below = ABOVE + 60 + 28 * self.fleet.totals.len() as i32;
        for (index, card) in cards.enumerate() {
            let x = self.x(card.capacity_bytes as f64);
            let ends = [(x, Self::y(0.0)), (x, Self::y(1.0))].map(|(x, y)| (pen.px(x), pen.px(y)));
            let style = pen.line(style::FAINT_INK, 1);
            let dashes = DashedPathElement::new(ends, pen.px(8), pen.px(6), style);
            root.draw(&dashes).map_err(failed)?;
            let number = (index + 1).to_string();
            let font = Pen::above(&pen.font(15, style::FAINT_INK));
            pen.text(root, (x, ABOVE - 4), &number, &font)?;
            let font = Pen::left(&pen.font(15, style::FAINT_INK));
            let gib = card.capacity_bytes as f64 / GIB as f64;
            let text = format!("{number}  {}, {gib:.1} GiB", card.name);
            let y = below + 22 * index as i32;
            if y < HEIGHT as i32 - BELOW {
                pen.text(root, (WIDTH as i32 - RIGHT + 24, y), &text, &font)?;
            }
        }
        Ok(())
    }

    fn curve<DB: DrawingBackend>(
        &self,
        root: &Area<'_, DB>,
        total: &FleetTotal,
        colour: RGBColor,
        pen: Pen,
    ) -> Result<(), ReportError> {
        let mut points = vec![(LEFT, Self::y(0.0))];
        let mut before = 0.0;
        for (bytes, share) in total.sizes.shares() {
            points.push((self.x(bytes), Self::y(before)));
            points.push((self.x(bytes), Self::y(share)));
            before = share;
        }
        points.push((WIDTH as i32 - RIGHT, Self::y(before)));
        let points: Vec<_> = points.into_iter().map(|(x, y)| (pen.px(x), pen.px(y))).collect();
        root.draw(&PathElement::new(points, pen.line(colour, 3))).map_err(failed)
    }
}
