//! Colours, sizes and labels that all plots share.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::printable::printable;
use crate::report::palette::{self, Colour};
use crate::report::{ReportError, Result};
use crate::run::RunSummary;
use crate::units::Size;

/// Text.
pub(crate) const INK: RGBColor = RGBColor(34, 34, 34);
/// Text that may be overlooked.
pub(crate) const FAINT_INK: RGBColor = RGBColor(90, 90, 90);
/// Lines that may be overlooked.
pub(crate) const GRID: RGBColor = RGBColor(226, 226, 226);
/// Memory in use.
pub(crate) const ACTIVE: RGBColor = RGBColor(190, 203, 216);
/// What went wrong.
pub(crate) const ALARM: RGBColor = RGBColor(190, 20, 30);

const FAMILY: &str = "sans-serif";
/// To the left and to the right of titles.
const MARGIN: i32 = 28;

/// Makes the font known to the drawing library, which has none of its own.
pub(crate) fn register_font() -> Result<()> {
    let font = epaint_default_fonts::UBUNTU_LIGHT;
    plotters::style::register_font(FAMILY, FontStyle::Normal, font)
        .map_err(|_| ReportError::Draw("the built-in font is damaged".to_owned()))
}

/// Drawing failed.
pub(crate) fn failed<E: std::fmt::Display>(error: E) -> ReportError {
    ReportError::Draw(error.to_string())
}

/// The colour of an allocator that has one of its own.
pub(crate) fn known(allocator: &str) -> Option<RGBColor> {
    palette::known(allocator).map(on_paper)
}

/// Colours for lines that are of no allocator that we know.
pub(crate) fn more_colours() -> [RGBColor; 3] {
    palette::MORE_COLOURS.map(on_paper)
}

/// The colour of each run.
pub(crate) fn colours(runs: &[RunSummary]) -> Vec<RGBColor> {
    palette::colours(runs).into_iter().map(on_paper).collect()
}

/// A colour as it is drawn: pictures are white.
pub(crate) fn on_paper(colour: Colour) -> RGBColor {
    let (red, green, blue) = colour.light;
    RGBColor(red, green, blue)
}

/// Sizes in the pixels of the finished picture, which may be drawn larger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pen {
    pub(crate) scale: u32,
}

impl Pen {
    /// A length in pixels as it is drawn.
    pub(crate) fn px(self, length: i32) -> i32 {
        length * self.scale as i32
    }

    pub(crate) fn line(self, colour: RGBColor, width: u32) -> ShapeStyle {
        colour.stroke_width(width * self.scale)
    }

    /// Text of this size on white, in this colour, or in a darker one if that could not be read.
    pub(crate) fn font(self, size: i32, colour: RGBColor) -> TextStyle<'static> {
        let RGBColor(red, green, blue) = colour;
        let (red, green, blue) = palette::readable((red, green, blue), (255, 255, 255));
        (FAMILY, self.px(size)).into_font().color(&RGBColor(red, green, blue))
    }

    /// Text of this size on a ground of this colour, white or black.
    pub(crate) fn font_on(self, size: i32, ground: RGBColor) -> TextStyle<'static> {
        let contrast = |ink: RGBColor| {
            palette::contrast((ink.0, ink.1, ink.2), (ground.0, ground.1, ground.2))
        };
        let ink = if contrast(WHITE) > contrast(INK) { WHITE } else { INK };
        (FAMILY, self.px(size)).into_font().color(&ink)
    }

    /// The same text, anchored at its right end and middle.
    pub(crate) fn right(style: &TextStyle<'static>) -> TextStyle<'static> {
        style.pos(Pos::new(HPos::Right, VPos::Center))
    }

    /// The same text, anchored at its left end and middle.
    pub(crate) fn left(style: &TextStyle<'static>) -> TextStyle<'static> {
        style.pos(Pos::new(HPos::Left, VPos::Center))
    }

    /// The same text, anchored at its middle and bottom.
    pub(crate) fn above(style: &TextStyle<'static>) -> TextStyle<'static> {
        style.pos(Pos::new(HPos::Center, VPos::Bottom))
    }

    /// Draws text at a place in finished pixels. It may come from a file.
    pub(crate) fn text<DB: DrawingBackend>(
        self,
        area: &DrawingArea<DB, Shift>,
        at: (i32, i32),
        text: &str,
        style: &TextStyle<'static>,
    ) -> Result<()> {
        let at = (self.px(at.0), self.px(at.1));
        area.draw(&Text::new(printable(text).into_owned(), at, style.clone())).map_err(failed)
    }

    /// Draws the two lines at the head of a picture, each as far as it fits.
    pub(crate) fn title<DB: DrawingBackend>(
        self,
        area: &DrawingArea<DB, Shift>,
        title: &str,
        subtitle: &str,
    ) -> Result<()> {
        for (text, y, size, ink) in [(title, 18, 28, INK), (subtitle, 54, 18, FAINT_INK)] {
            let font = self.font(size, ink);
            let room = area.dim_in_pixel().0.saturating_sub(self.px(2 * MARGIN).unsigned_abs());
            let text = shortened(&printable(text), |text| {
                Ok(area.estimate_text_size(text, &font).map_err(failed)?.0 <= room)
            })?;
            self.text(area, (MARGIN, y), &text, &font)?;
        }
        Ok(())
    }
}

/// As much of the text as fits, with an ellipsis where something is left out.
fn shortened(text: &str, fits: impl Fn(&str) -> Result<bool>) -> Result<String> {
    let mut shown = text.to_owned();
    let mut letters = text.chars().count();
    while !fits(&shown)? && letters > 0 {
        letters -= 1;
        shown = text.chars().take(letters).collect::<String>() + "…";
    }
    Ok(shown)
}

/// Moves labels apart so that none is nearer than `gap` to the next, as little as possible, within `low..=high`.
/// Takes and returns the places in order of the labels, which may be in any order on the axis.
pub(crate) fn spread(places: &[i32], gap: i32, low: i32, high: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&index| places[index]);
    let mut spread = places.to_vec();
    let mut floor = low;
    for &index in &order {
        spread[index] = spread[index].max(floor);
        floor = spread[index] + gap;
    }
    let mut ceiling = high;
    for &index in order.iter().rev() {
        spread[index] = spread[index].min(ceiling);
        ceiling = spread[index] - gap;
    }
    spread
}

/// A thin line.
pub(crate) fn line<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    ends: [(i32, i32); 2],
    colour: RGBColor,
    pen: Pen,
) -> Result<()> {
    let ends = ends.map(|(x, y)| (pen.px(x), pen.px(y)));
    area.draw(&PathElement::new(ends, pen.line(colour, 1))).map_err(failed)
}

/// A size that is round without doubt: "2 MiB", not "2.00 MiB".
pub(crate) fn whole(size: Size) -> String {
    size.to_string().replace(".00", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_distance_and_their_order() {
        assert_eq!(spread(&[10, 100, 50], 20, 0, 200), [10, 100, 50]);
        assert_eq!(spread(&[50, 50, 50], 20, 0, 200), [50, 70, 90]);
        assert_eq!(spread(&[195, 190], 20, 0, 200), [200, 180]);
    }
}
