//! The map: all memory at the peak, in the order of its addresses, line after line as in a book.
//!
//! ```text
//!   caching      ████████████████░░░░░░░░░░░░░░░░░░     each line is the same amount of memory for every allocator,
//!    62.74 GiB   ░░░░░░░░░░░░░░░░░░░░░░████░░░░░░░░     so that the area is what it cost
//!                ██░░█
//!   expandable   ████████████████████░░███████████░
//!    30.96 GiB   ████████░░
//! ```
//!
//! Each pixel has the colour of what most of its bytes are.

use std::io::Write;

use plotters::prelude::*;

use crate::allocator::{BlockKind, BlockUse};
use crate::compare::comparison::Comparison;
use crate::report::Result;
use crate::report::picture::{Canvas, ImageFormat, Picture, WIDTH, font, style, write_picture};
use crate::run::{Moment, Peak, PeakBlock, RunSummary};
use crate::trace::Bounded;
use crate::units::{Bytes, Size};

/// Lines that the largest run takes.
const LINES: u64 = 18;
const LINE: i32 = 16;
const PITCH: i32 = 20;
/// Title and legend, and the gap between two allocators.
const HEAD: i32 = 108;
const GAP: i32 = 16;
const LEFT: i32 = 230;
const RIGHT: i32 = 1572;

/// What a pixel shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Oldest,
    Older,
    Newer,
    Newest,
    Pending,
    Held,
    Free,
}

impl Kind {
    /// Every kind with its colour and its name, in their order.
    const ALL: [(Self, RGBColor, &'static str); 7] = [
        (Self::Oldest, RGBColor(31, 78, 121), "in use, oldest"),
        (Self::Older, RGBColor(64, 121, 171), "older"),
        (Self::Newer, RGBColor(123, 173, 214), "newer"),
        (Self::Newest, RGBColor(188, 214, 236), "newest"),
        (Self::Pending, RGBColor(156, 111, 174), "waits for a stream"),
        (Self::Held, RGBColor(42, 157, 143), "in use, stitched"),
        (Self::Free, RGBColor(240, 178, 122), "free"),
    ];

    /// The kind of a block, where `oldest` is the greatest age at this peak.
    fn of(block: &PeakBlock, peak: &Peak, oldest: u64) -> Self {
        match block.view.state {
            BlockUse::Free => Self::Free,
            BlockUse::Pending => Self::Pending,
            BlockUse::Alias => Self::Held,
            BlockUse::Allocated => match age(block, peak) as f64 / oldest.max(1) as f64 {
                share if share > 0.5 => Self::Oldest,
                share if share > 0.1 => Self::Older,
                share if share > 0.01 => Self::Newer,
                _ => Self::Newest,
            },
        }
    }
}

/// Writes the picture, one part for each file below the other.
pub(super) fn write(
    comparisons: &[Comparison],
    format: ImageFormat,
    out: &mut dyn Write,
) -> Result<()> {
    let maps: Vec<Map<'_>> = comparisons.iter().map(Map::new).collect();
    let height: i32 = maps.iter().map(Map::height).sum();
    write_picture(format, height.max(HEAD).unsigned_abs(), out, &Maps { maps })
}

struct Maps<'a> {
    maps: Vec<Map<'a>>,
}

impl Picture for Maps<'_> {
    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()> {
        let mut top = 0;
        for map in &self.maps {
            map.draw(root, top)?;
            top += map.height();
        }
        Ok(())
    }
}

/// One file: the runs that held anything, at one scale.
struct Map<'a> {
    comparison: &'a Comparison,
    runs: Vec<(&'a RunSummary, &'a Peak)>,
    per_line: Bytes,
}

impl<'a> Map<'a> {
    fn new(comparison: &'a Comparison) -> Self {
        let runs = comparison.peaks.iter().map(|(&place, peak)| (&comparison.runs[place], &**peak));
        let runs: Vec<_> = runs.filter(|(run, _)| !run.is_bound()).collect();
        let most = runs.iter().map(|(_, peak)| peak.usage.reserved).max().unwrap_or(0);
        Self { comparison, runs, per_line: most.div_ceil(LINES).max(1) }
    }

    fn lines(&self, peak: &Peak) -> i32 {
        peak.usage.reserved.div_ceil(self.per_line).max(2) as i32
    }

    fn height(&self) -> i32 {
        let lines = self.runs.iter().map(|(_, peak)| self.lines(peak) * PITCH + GAP);
        HEAD + lines.sum::<i32>() + GAP
    }

    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>, top: i32) -> Result<()> {
        let title = format!("{}: all memory at the peak", self.comparison.title());
        let limits = self.comparison.coverage.limits();
        let title = [title].into_iter().chain(limits).collect::<Vec<_>>().join("; ");
        root.split_at_y(top).1.title(&title, "")?;
        self.legend(root, top + 66)?;
        let mut top = top + HEAD;
        for &(run, peak) in &self.runs {
            root.text((28, top - 2), &run.label(), font(18, style::INK))?;
            let reserved = Bounded { bytes: peak.usage.reserved, certainty: run.certainty };
            root.text((28, top + 18), &reserved.to_string(), font(16, style::FAINT_INK))?;
            self.ribbon(root, peak, top)?;
            top += self.lines(peak) * PITCH + GAP;
        }
        Ok(())
    }

    fn legend<DB: DrawingBackend>(&self, root: &Canvas<DB>, top: i32) -> Result<()> {
        let mut left = LEFT;
        let present: Vec<Kind> = self.runs.iter().flat_map(|(_, peak)| kinds(peak)).collect();
        for (_, colour, name) in Kind::ALL.iter().filter(|(kind, ..)| present.contains(kind)) {
            root.rectangle([(left, top), (left + 14, top + 14)], colour)?;
            root.text((left + 22, top + 7), name, font(16, style::INK).left())?;
            left += 56 + 8 * name.len() as i32;
        }
        let line = format!("each line: {}", Size(self.per_line));
        root.text((28, top - 1), &line, font(16, style::FAINT_INK))
    }

    fn ribbon<DB: DrawingBackend>(&self, root: &Canvas<DB>, peak: &Peak, top: i32) -> Result<()> {
        let cells = self.cells(peak);
        let width = (RIGHT - LEFT) as usize;
        for (line, row) in cells.chunks(width).enumerate() {
            let (y, mut x) = (top + line as i32 * PITCH, LEFT);
            for run in row.chunk_by(|a, b| a == b) {
                let end = x + run.len() as i32;
                if let Some(kind) = run[0] {
                    root.rectangle([(x, y), (end, y + LINE)], &Kind::ALL[kind as usize].1)?;
                }
                x = end;
            }
        }
        Ok(())
    }

    /// What each pixel shows, line after line: the kind that most of its bytes are of.
    fn cells(&self, peak: &Peak) -> Vec<Option<Kind>> {
        let per_cell = self.per_line as f64 / f64::from(RIGHT - LEFT);
        let cells = (peak.usage.reserved as f64 / per_cell).ceil() as usize;
        let mut bytes = vec![[0.0_f64; Kind::ALL.len()]; cells];
        let mut start = 0.0;
        for (block, kind) in own(peak).zip(kinds(peak)) {
            let (end, kind) = (start + block.view.size as f64, kind as usize);
            let last = ((end / per_cell).ceil() as usize).min(cells);
            for (cell, all) in
                bytes[..last].iter_mut().enumerate().skip((start / per_cell) as usize)
            {
                let from = start.max(cell as f64 * per_cell);
                all[kind] += (end.min((cell + 1) as f64 * per_cell) - from).max(0.0);
            }
            start = end;
        }
        let most = |all: &[f64; Kind::ALL.len()]| {
            let kinds = Kind::ALL.map(|(kind, ..)| kind).into_iter();
            let kinds = kinds.filter(|&kind| all[kind as usize] > 0.0);
            kinds.max_by(|&a, &b| all[a as usize].total_cmp(&all[b as usize]))
        };
        bytes.iter().map(most).collect()
    }
}

/// Blocks of memory; stitched ranges have none of their own.
fn own(peak: &Peak) -> impl Iterator<Item = &PeakBlock> {
    peak.blocks.iter().filter(|block| block.view.kind != BlockKind::Stitched)
}

/// Their kinds.
fn kinds(peak: &Peak) -> Vec<Kind> {
    let oldest = own(peak).map(|block| age(block, peak)).max().unwrap_or(0);
    own(peak).map(|block| Kind::of(block, peak, oldest)).collect()
}

/// How long before the peak a block was asked for: microseconds, or events where there are no times.
fn age(block: &PeakBlock, peak: &Peak) -> u64 {
    let (Some(since), Some(now)) = (block.since, peak.moment) else { return 0 };
    let difference = |place: fn(&Moment) -> u64| place(&now).saturating_sub(place(&since));
    match difference(|moment| moment.time_us) {
        0 => difference(|moment| moment.event),
        time => time,
    }
}

const _: () = assert!(RIGHT < WIDTH as i32);
