//! What pictures are drawn on. Places and lengths are in the pixels of the finished picture, which may be drawn larger.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::style::{ALARM, FAINT_INK, INK, failed};
use crate::printable::printable;
use crate::report::palette;
use crate::report::{ReportError, Result};

const FAMILY: &str = "sans-serif";
/// To the left and to the right of titles.
const MARGIN: i32 = 28;
/// Height of the titles of one file.
pub(crate) const HEAD: i32 = 84;

/// How far to the right, and how far down.
pub(crate) type Place = (i32, i32);

/// Makes the font known to the drawing library, which has none of its own.
pub(super) fn register_font() -> Result<()> {
    let font = epaint_default_fonts::UBUNTU_LIGHT;
    plotters::style::register_font(FAMILY, FontStyle::Normal, font)
        .map_err(|_| ReportError::Draw("the built-in font is damaged".to_owned()))
}

/// How text looks, and which part of it is at its place: the left upper corner, if nothing else is said.
#[derive(Clone, Copy)]
pub(crate) struct Font {
    size: i32,
    ink: RGBColor,
    anchor: Pos,
}

/// Text of this size on white, in this colour, or in a darker one if that could not be read.
pub(crate) fn font(size: i32, RGBColor(red, green, blue): RGBColor) -> Font {
    let (red, green, blue) = palette::readable((red, green, blue), (255, 255, 255));
    Font { size, ink: RGBColor(red, green, blue), anchor: Pos::new(HPos::Left, VPos::Top) }
}

/// Text of this size on a ground of this colour, white or black.
pub(crate) fn font_on(size: i32, ground: RGBColor) -> Font {
    let contrast =
        |ink: RGBColor| palette::contrast((ink.0, ink.1, ink.2), (ground.0, ground.1, ground.2));
    let ink = if contrast(WHITE) > contrast(INK) { WHITE } else { INK };
    Font { ink, ..font(size, INK) }
}

impl Font {
    /// The same text, anchored at its right end and middle.
    pub(crate) fn right(self) -> Self {
        Self { anchor: Pos::new(HPos::Right, VPos::Center), ..self }
    }

    /// The same text, anchored at its left end and middle.
    pub(crate) fn left(self) -> Self {
        Self { anchor: Pos::new(HPos::Left, VPos::Center), ..self }
    }

    /// The same text, anchored at its middle and bottom.
    pub(crate) fn above(self) -> Self {
        Self { anchor: Pos::new(HPos::Center, VPos::Bottom), ..self }
    }
}

/// A part of a picture.
pub(crate) struct Canvas<DB: DrawingBackend> {
    /// As the drawing library has it, in pixels as they are drawn.
    pub(crate) area: DrawingArea<DB, Shift>,
    scale: i32,
}

impl<DB: DrawingBackend> Canvas<DB> {
    /// A whole picture, drawn `scale` times as large.
    pub(super) fn new(backend: DB, scale: i32) -> Self {
        Self { area: backend.into_drawing_area(), scale }
    }

    fn part(&self, area: DrawingArea<DB, Shift>) -> Self {
        Self { area, scale: self.scale }
    }

    /// A length in pixels as it is drawn.
    pub(crate) fn px(&self, length: i32) -> i32 {
        length * self.scale
    }

    fn at(&self, (x, y): Place) -> Place {
        (self.px(x), self.px(y))
    }

    /// Width and height.
    pub(crate) fn size(&self) -> (i32, i32) {
        let (width, height) = self.area.dim_in_pixel();
        (width as i32 / self.scale, height as i32 / self.scale)
    }

    /// The parts to the left and to the right of a place.
    pub(crate) fn split_at_x(&self, x: i32) -> (Self, Self) {
        let (left, right) = self.area.split_horizontally(self.px(x));
        (self.part(left), self.part(right))
    }

    /// The parts above and below a place.
    pub(crate) fn split_at_y(&self, y: i32) -> (Self, Self) {
        let (above, below) = self.area.split_vertically(self.px(y));
        (self.part(above), self.part(below))
    }

    /// So many parts of equal height, one at least.
    pub(crate) fn rows(&self, count: usize) -> Vec<Self> {
        let rows = self.area.split_evenly((count.max(1), 1));
        rows.into_iter().map(|row| self.part(row)).collect()
    }

    /// All but a margin at the left.
    pub(crate) fn indented(&self, margin: i32) -> Self {
        self.part(self.area.margin(0, 0, self.px(margin), 0))
    }

    /// How a line is drawn.
    pub(crate) fn stroke(&self, colour: RGBColor, width: i32) -> ShapeStyle {
        colour.stroke_width(self.px(width).unsigned_abs())
    }

    /// How text is drawn.
    pub(crate) fn text_style(&self, font: Font) -> TextStyle<'static> {
        (FAMILY, self.px(font.size)).into_font().color(&font.ink).pos(font.anchor)
    }

    /// A line through places.
    pub(crate) fn line(
        &self,
        places: impl IntoIterator<Item = Place>,
        colour: RGBColor,
        width: i32,
    ) -> Result<()> {
        let places: Vec<Place> = places.into_iter().map(|place| self.at(place)).collect();
        self.area.draw(&PathElement::new(places, self.stroke(colour, width))).map_err(failed)
    }

    /// A dashed line; the lengths are those of a dash and of a gap.
    pub(crate) fn dashed(
        &self,
        ends: [Place; 2],
        lengths: [i32; 2],
        colour: RGBColor,
        width: i32,
    ) -> Result<()> {
        let ([dash, gap], ends) = (lengths.map(|it| self.px(it)), ends.map(|end| self.at(end)));
        let line = DashedPathElement::new(ends, dash, gap, self.stroke(colour, width));
        self.area.draw(&line).map_err(failed)
    }

    /// A filled rectangle between two corners.
    pub(crate) fn rectangle(&self, corners: [Place; 2], colour: &impl Color) -> Result<()> {
        let corners = corners.map(|corner| self.at(corner));
        self.area.draw(&Rectangle::new(corners, colour.filled())).map_err(failed)
    }

    pub(crate) fn circle(
        &self,
        at: Place,
        radius: i32,
        style: impl Into<ShapeStyle>,
    ) -> Result<()> {
        self.area.draw(&Circle::new(self.at(at), self.px(radius), style)).map_err(failed)
    }

    /// A filled triangle.
    pub(crate) fn triangle(&self, at: Place, size: i32, colour: RGBColor) -> Result<()> {
        let triangle = TriangleMarker::new(self.at(at), self.px(size), colour.filled());
        self.area.draw(&triangle).map_err(failed)
    }

    /// A cross, where memory ran out.
    pub(crate) fn cross(&self, at: Place, size: i32) -> Result<()> {
        let cross = Cross::new(self.at(at), self.px(size), self.stroke(ALARM, 3));
        self.area.draw(&cross).map_err(failed)
    }

    /// Text, which may come from a file.
    pub(crate) fn text(&self, at: Place, text: &str, font: Font) -> Result<()> {
        let text = Text::new(printable(text).into_owned(), self.at(at), self.text_style(font));
        self.area.draw(&text).map_err(failed)
    }

    /// The two lines at the head of a picture, each as far as it fits.
    pub(crate) fn title(&self, title: &str, subtitle: &str) -> Result<()> {
        for (text, y, size, ink) in [(title, 18, 28, INK), (subtitle, 54, 18, FAINT_INK)] {
            let font = font(size, ink);
            let style = self.text_style(font);
            let room =
                self.area.dim_in_pixel().0.saturating_sub(self.px(2 * MARGIN).unsigned_abs());
            let text = shortened(&printable(text), |text| {
                Ok(self.area.estimate_text_size(text, &style).map_err(failed)?.0 <= room)
            })?;
            self.text((MARGIN, y), &text, font)?;
        }
        Ok(())
    }

    /// Writes the title of one file, and leaves the room below it.
    pub(crate) fn titled(&self, title: &str, subtitle: &str) -> Result<Self> {
        let (head, body) = self.split_at_y(HEAD);
        head.title(title, subtitle)?;
        Ok(body)
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
