//! Plots: memory over time and the part of it that was used, as SVG or PNG.
//!
//! ```text
//!   ┌─────────────────────────────────────────────┬───────────────────┐
//!   │ GiB  ┌───────────────── caching             │ caching     39.6 %│   up to three files: a row for each;
//!   │    ┌─┘  ┌────────────── expandable          │ ██████░░░░░░░░░░░ │   more: bars alone
//!   │ ▁▂▄█▇▂▄▆█▇▂▄▆█▇▂▄▆█▇▂▄                      │ expandable  80.3 %│
//!   └─────────────────────────────────────────────┴───────────────────┘
//! ```
//!
//! The font is part of the program, so that a picture is the same on every machine. A PNG is drawn at twice its size
//! and averaged down, which smooths what the drawing library leaves jagged.

mod bars;
mod building;
mod latency;
mod map;
mod overview;
mod series;
mod single;
mod style;
mod sweep;
mod table_1;
mod timeline;

use std::io::Write;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::svg::scaling;
use super::{Report, ReportError, table};
use crate::metrics::Comparison;
pub use building::write_building;
pub use series::write_series;
use style::{Pen, failed};
pub use sweep::write_sweep;

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
    pub fn of(path: &Path) -> Result<Self, ReportError> {
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        match ending.as_deref().and_then(std::ffi::OsStr::to_str) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(ReportError::ImageFormat(path.display().to_string())),
        }
    }
}

/// A chart that can be drawn by itself.
#[derive(Debug, Clone, Copy)]
pub struct Chart {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub summary: &'static str,
    draw: fn(ImageFormat, &[Comparison], &mut dyn Write) -> Result<(), ReportError>,
}

/// The charts. To add one, write its file and its line here.
pub const CHARTS: &[Chart] = &[
    Chart { name: "timeline", summary: "memory over time", draw: single::timelines },
    Chart { name: "utilization", summary: "peaks, and what was in use", draw: single::utilization },
    Chart { name: "latency", summary: "time in driver calls, step by step", draw: latency::write },
    Chart { name: "map", summary: "the memory at the peak, block by block", draw: map::write },
];

impl Chart {
    /// The report that is this chart as a picture.
    #[must_use]
    pub fn report(&self, format: ImageFormat) -> Box<dyn Report> {
        Box::new(Drawn { chart: *self, format })
    }
}

struct Drawn {
    chart: Chart,
    format: ImageFormat,
}

impl Report for Drawn {
    fn write(&self, comparisons: &[Comparison], out: &mut dyn Write) -> Result<(), ReportError> {
        (self.chart.draw)(self.format, comparisons, out)
    }
}

/// Memory over time and utilization, as a picture.
pub(super) struct Plot {
    pub(super) format: ImageFormat,
}

/// Something that can be drawn in any format.
trait Picture {
    /// Draws it on white ground.
    fn draw<DB: DrawingBackend>(&self, root: &Area<'_, DB>, pen: Pen) -> Result<(), ReportError>;
}

/// An area that is drawn on.
type Area<'a, DB> = DrawingArea<DB, Shift>;

/// Width of every picture in pixels.
const WIDTH: u32 = 1600;
/// Height of the panels of one file among others, and of a file that is alone.
const ROW: u32 = 640;
const ALONE: u32 = 900;
/// With more files than this, there is no memory over time.
const MOST_TIMELINES: usize = 3;

/// How many times larger a PNG is drawn than it is written.
const SUPERSAMPLING: u32 = 2;

impl Report for Plot {
    fn write(&self, comparisons: &[Comparison], out: &mut dyn Write) -> Result<(), ReportError> {
        write_picture(self.format, height(comparisons), out, &Overview { comparisons })
    }
}

/// Comparisons, as this picture shows them.
struct Overview<'a> {
    comparisons: &'a [Comparison],
}

impl Picture for Overview<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Area<'_, DB>, pen: Pen) -> Result<(), ReportError> {
        if self.comparisons.len() > MOST_TIMELINES {
            return overview::draw(root, self.comparisons, pen);
        }
        let rows = root.split_evenly((self.comparisons.len().max(1), 1));
        for (row, comparison) in rows.iter().zip(self.comparisons) {
            panels(row, comparison, pen)?;
        }
        Ok(())
    }
}

/// Draws a picture of the usual width.
fn write_picture(
    format: ImageFormat,
    height: u32,
    out: &mut dyn Write,
    picture: &impl Picture,
) -> Result<(), ReportError> {
    style::register_font()?;
    match format {
        ImageFormat::Svg => out.write_all(svg(picture, height)?.as_bytes())?,
        ImageFormat::Png => png(picture, height, out)?,
    }
    Ok(())
}

fn height(comparisons: &[Comparison]) -> u32 {
    match comparisons.len() {
        0 | 1 => ALONE,
        few @ 2..=MOST_TIMELINES => ROW * few as u32,
        _ => overview::height(comparisons),
    }
}

fn svg(picture: &impl Picture, height: u32) -> Result<String, ReportError> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    drawn(&root, picture, Pen { scale: 1 })?;
    drop(root);
    Ok(scaling(&text, "max-width:100%;height:auto"))
}

fn png(picture: &impl Picture, height: u32, out: &mut dyn Write) -> Result<(), ReportError> {
    let large = (WIDTH * SUPERSAMPLING, height * SUPERSAMPLING);
    let mut pixels = vec![0; 3 * large.0 as usize * large.1 as usize];
    let root = BitMapBackend::with_buffer(&mut pixels, large).into_drawing_area();
    drawn(&root, picture, Pen { scale: SUPERSAMPLING })?;
    drop(root);
    let mut encoder = png::Encoder::new(out, WIDTH, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&average(&pixels, large.0 as usize)).map_err(failed)?;
    writer.finish().map_err(failed)
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
fn drawn<DB: DrawingBackend>(
    root: &Area<'_, DB>,
    picture: &impl Picture,
    pen: Pen,
) -> Result<(), ReportError> {
    root.fill(&WHITE).map_err(failed)?;
    picture.draw(root, pen)?;
    root.present().map_err(failed)
}

/// The two panels of one file, under their title.
fn panels<DB: DrawingBackend>(
    row: &Area<'_, DB>,
    comparison: &Comparison,
    pen: Pen,
) -> Result<(), ReportError> {
    let subtitle = about(comparison) + first_oom(comparison);
    let body = titled(row, comparison.title(), &subtitle, pen)?;
    let (left, right) = body.split_horizontally(pen.px(WIDTH as i32 - 430));
    timeline::draw(&left, comparison, pen)?;
    bars::draw(&right, comparison, pen)
}

/// Writes the title of one file, and leaves the room below it.
fn titled<'a, DB: DrawingBackend>(
    row: &Area<'a, DB>,
    title: &str,
    subtitle: &str,
    pen: Pen,
) -> Result<Area<'a, DB>, ReportError> {
    let (head, body) = row.split_vertically(pen.px(84));
    pen.title(&head, title, subtitle)?;
    Ok(body)
}

/// What there is to know of one file, without its name, which is the title.
fn about(comparison: &Comparison) -> String {
    let about = table::about(comparison);
    about.split_once(": ").map_or(String::new(), |(_, rest)| rest.to_owned())
}

/// The legend of memory over time.
fn first_oom(comparison: &Comparison) -> &'static str {
    let has_oom = comparison.runs.iter().any(|run| run.oom_count > 0);
    if has_oom { "; a cross marks the first OOM" } else { "" }
}
