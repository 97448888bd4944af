//! Pictures: SVG and PNG of whatever can be drawn.
//!
//! The font is part of the program, so that a picture is the same on every machine. A PNG is drawn at twice its size
//! and averaged down, which smooths what the drawing library leaves jagged.

mod canvas;
pub(crate) mod style;

use std::io::Write;
use std::path::Path;

use plotters::prelude::*;
use png::{ColorType, Compression, Encoder, EncodingError, Filter};

use super::{ReportError, Result};
pub(crate) use canvas::{Canvas, HEAD, font, font_on};
pub(crate) use style::failed;

/// Kinds of picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// Scalable, for pages and papers.
    Svg,
    /// Pixels.
    Png,
}

impl ImageFormat {
    /// The kind that the file's ending asks for.
    ///
    /// # Errors
    /// If it is neither `.svg` nor `.png`.
    pub fn of(path: &Path) -> Result<Self> {
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        match ending.as_deref().and_then(std::ffi::OsStr::to_str) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(ReportError::ImageFormat(path.display().to_string())),
        }
    }
}

/// Something that can be drawn in any format.
pub(crate) trait Picture {
    /// Draws it on white ground.
    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()>;
}

/// Width of every picture in pixels.
pub(crate) const WIDTH: u32 = 1600;
/// How many times larger a PNG is drawn than it is written.
const SUPERSAMPLING: u32 = 2;

/// Draws a picture of the usual width.
pub(crate) fn write_picture(
    format: ImageFormat,
    height: u32,
    out: &mut dyn Write,
    picture: &impl Picture,
) -> Result<()> {
    canvas::register_font()?;
    match format {
        ImageFormat::Svg => out.write_all(svg(picture, height)?.as_bytes())?,
        ImageFormat::Png => png(picture, height, out)?,
    }
    Ok(())
}

fn svg(picture: &impl Picture, height: u32) -> Result<String> {
    let mut text = String::new();
    drawn(Canvas::new(SVGBackend::with_string(&mut text, (WIDTH, height)), 1), picture)?;
    Ok(scaling(&text, "max-width:100%;height:auto"))
}

/// A page narrower than the picture gets a smaller picture, not a part of it: the style of the outermost element.
pub(crate) fn scaling(svg: &str, style: &str) -> String {
    svg.replacen("<svg ", &format!("<svg style=\"{style}\" "), 1)
}

fn png(picture: &impl Picture, height: u32, out: &mut dyn Write) -> Result<()> {
    let large = (WIDTH * SUPERSAMPLING, height * SUPERSAMPLING);
    let mut pixels = vec![0; 3 * large.0 as usize * large.1 as usize];
    let backend = BitMapBackend::with_buffer(&mut pixels, large);
    drawn(Canvas::new(backend, SUPERSAMPLING as i32), picture)?;
    write_png(&average(&pixels, large.0 as usize), height, out).map_err(unwritten)
}

/// Writes pixels of three bytes as a PNG.
fn write_png(pixels: &[u8], height: u32, out: &mut dyn Write) -> Result<(), EncodingError> {
    let mut encoder = Encoder::new(out, WIDTH, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_compression(Compression::High);
    encoder.set_filter(Filter::NoFilter);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()
}

/// The error of whoever takes what is written.
fn unwritten(error: EncodingError) -> ReportError {
    match error {
        EncodingError::IoError(error) => error.into(),
        other => failed(other),
    }
}

/// Each pixel of the smaller picture is the mean of a square of the larger one.
fn average(pixels: &[u8], width: usize) -> Vec<u8> {
    const N: usize = SUPERSAMPLING as usize;
    let height = pixels.len() / 3 / width;
    let mut small = Vec::with_capacity(pixels.len() / N / N);
    for y in (0..height).step_by(N) {
        for x in (0..width).step_by(N) {
            for channel in 0..3 {
                let at = |dx: usize, dy: usize| 3 * ((y + dy) * width + x + dx) + channel;
                let square = (0..N * N).map(|i| u32::from(pixels[at(i % N, i / N)]));
                small.push((square.sum::<u32>() / (N * N) as u32) as u8);
            }
        }
    }
    small
}

/// A picture on white ground.
fn drawn<DB: DrawingBackend>(canvas: Canvas<DB>, picture: &impl Picture) -> Result<()> {
    canvas.area.fill(&WHITE).map_err(failed)?;
    picture.draw(&canvas)?;
    canvas.area.present().map_err(failed)
}
