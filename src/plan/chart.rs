//! A series of plans as a picture: the memory that each allocator needs at each value, and what the cards have.
//!
//! ```text
//!   GiB │- - - - - - - - - - - - H100 80GB     a card is enough where a curve is below its line
//!       │            ___ caching
//!       │- - - - ___/- - - - - - L40S
//!       │    ___/____________ lake
//!       └────────────────────
//!         8   16   32   64  batch
//! ```

use std::io::Write;

use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::data::{JobPlan, Series};
use crate::report::picture::{
    Area, ImageFormat, Pen, Picture, WIDTH, failed, style, write_picture,
};
use crate::report::{ReportError, Result};
use crate::sweep::Axis;
use crate::sweep::chart::{ABOVE, BELOW, Frame, HEIGHT, LEFT, RIGHT};
use crate::units::GIB;
use gmlake_core::cards::Target;

/// Room above what is needed most, so that the card that is enough for it is in the picture.
const HEADROOM: f64 = 1.08;

/// Draws the smallest device memory of each allocator over the quantity in which the jobs differ.
///
/// # Errors
/// If no job has a result, or `out` cannot be written.
pub fn write_series(series: &Series, format: ImageFormat, out: &mut dyn Write) -> Result<()> {
    let first = series.jobs.iter().find_map(|job| job.ranks.first());
    let first = first.ok_or_else(|| ReportError::Draw("no job has a result".to_owned()))?;
    let lines: Vec<Line> = first
        .needs
        .iter()
        .enumerate()
        .map(|(index, need)| Line {
            name: need.label(),
            colour: style::known(&need.allocator),
            needs: series.jobs.iter().map(|job| gib(job, index)).collect(),
        })
        .collect();
    let most = lines.iter().flat_map(|line| &line.needs).flatten().copied().fold(1e-3, f64::max);
    let mut cards: Vec<&Target> = first.targets.iter().collect();
    cards.sort_by_key(|card| card.capacity_bytes);
    // Those that decide something, and the first that is always enough.
    let enough = cards.iter().position(|card| capacity(card) >= most);
    cards.truncate(enough.map_or(cards.len(), |index| index + 1));
    let most = cards.last().map_or(most, |card| most.max(capacity(card)));
    write_picture(format, HEIGHT, out, &Chart { series, lines, cards, most: most * HEADROOM })
}

struct Chart<'a> {
    series: &'a Series,
    lines: Vec<Line>,
    cards: Vec<&'a Target>,
    most: f64,
}

/// What one allocator needs at each value, in GiB.
struct Line {
    name: String,
    colour: Option<RGBColor>,
    needs: Vec<Option<f64>>,
}

fn gib(job: &JobPlan, index: usize) -> Option<f64> {
    let bytes = job.worst(index)?.1.smallest_bytes()?;
    Some(bytes as f64 / GIB as f64)
}

fn capacity(card: &Target) -> f64 {
    card.capacity_bytes as f64 / GIB as f64
}

impl Picture for Chart<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Area<'_, DB>, pen: Pen) -> Result<()> {
        let title = format!("The smallest device memory by {}", self.series.quantity);
        let legend = "a card is enough where a curve is below its line";
        pen.title(root, &title, legend)?;
        let values = self.series.values.iter().map(f64::to_string).collect();
        let axis = Axis { name: self.series.quantity.clone(), values };
        let frame = Frame { columns: self.series.values.len(), most: self.most };
        frame.scale(root, &axis, pen)?;
        let mut labels = self.draw_cards(root, &frame, pen)?;
        let mut more = style::more_colours().into_iter().cycle();
        for line in &self.lines {
            let colour = line.colour.or_else(|| more.next()).unwrap_or(style::INK);
            let end = curve(root, &frame, line, pen.line(colour, 3))?;
            labels.push((line.name.clone(), colour, end));
        }
        let ends: Vec<i32> = labels.iter().map(|&(_, _, y)| y).collect();
        let places = style::spread(&ends, 22, ABOVE, HEIGHT as i32 - BELOW);
        for ((name, colour, _), y) in labels.iter().zip(places) {
            let font = Pen::left(&pen.font(18, *colour));
            pen.text(root, (WIDTH as i32 - RIGHT + 14, y), name, &font)?;
        }
        Ok(())
    }
}

/// Words next to the chart: what they say, in which colour, and at which height.
type Label = (String, RGBColor, i32);

impl Chart<'_> {
    /// A dashed line for each card.
    fn draw_cards<DB: DrawingBackend>(
        &self,
        root: &Area<'_, DB>,
        frame: &Frame,
        pen: Pen,
    ) -> Result<Vec<Label>> {
        let mut labels = Vec::new();
        for card in &self.cards {
            let y = frame.y(capacity(card));
            let ends = [(LEFT, y), (WIDTH as i32 - RIGHT, y)].map(|(x, y)| (pen.px(x), pen.px(y)));
            let (dash, gap) = (pen.px(10), pen.px(6));
            let style = pen.line(style::FAINT_INK, 1);
            root.draw(&DashedPathElement::new(ends, dash, gap, style)).map_err(failed)?;
            labels.push((card.name.clone(), style::FAINT_INK, y));
        }
        Ok(labels)
    }
}

/// Draws a curve, with a dot for each value that has a result; returns the height at which it ends.
fn curve<DB: DrawingBackend>(
    root: &Area<'_, DB>,
    frame: &Frame,
    line: &Line,
    style: ShapeStyle,
) -> Result<i32> {
    let scale = root.dim_in_pixel().0 as i32 / WIDTH as i32;
    let found = line.needs.iter().enumerate().filter_map(|(index, need)| Some((index, (*need)?)));
    let points: Vec<(i32, i32)> =
        found.map(|(index, need)| (frame.x(index) * scale, frame.y(need) * scale)).collect();
    root.draw(&PathElement::new(points.clone(), style)).map_err(failed)?;
    for &point in &points {
        root.draw(&Circle::new(point, 4 * scale, style.filled())).map_err(failed)?;
    }
    Ok(points.last().map_or(ABOVE, |&(_, y)| y / scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::data::{Need, Plan, Trial};

    fn job(gib: u64) -> JobPlan {
        let trial = Trial {
            capacity_bytes: gib * GIB,
            reserved_peak_bytes: gib * GIB,
            alloc_retries: 0,
            device_calls: 1,
            shortage: None,
        };
        let need = Need {
            allocator: "lake".to_owned(),
            options: Vec::new(),
            unlimited_bytes: gib * GIB,
            smallest: Some(trial),
            below: None,
            runs: 1,
            verdicts: Vec::new(),
        };
        let card =
            |name: &str, gib: u64| Target { name: name.to_owned(), ..Target::of_size(gib * GIB) };
        let targets = vec![card("large", 90), card("small", 20), card("larger", 900)];
        let plan = Plan { needs: vec![need], targets, ..Plan::default() };
        JobPlan { ranks: vec![plan], ..JobPlan::default() }
    }

    #[test]
    fn a_curve_for_each_allocator_and_a_line_for_each_card_that_decides() {
        let jobs = vec![job(10), job(40)];
        let series = Series { quantity: "batch".to_owned(), values: vec![8.0, 16.0], jobs };
        let mut out = Vec::new();
        write_series(&series, ImageFormat::Svg, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for word in ["batch", "lake", "small", "large"] {
            assert!(text.contains(&format!("\n{word}\n")), "{word}: {text}");
        }
        assert!(!text.contains("larger") && text.matches("<circle").count() == 2, "{text}");
    }

    #[test]
    fn without_a_result_there_is_nothing_to_draw() {
        let error =
            write_series(&Series::default(), ImageFormat::Svg, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no job has a result"), "{error}");
    }
}
