//! Building costs: the paper's latency figure, with its Table 1 next to it.
//!
//! ```text
//!   20 ms │ 2 GiB ▲•            ── out of chunks       2 MiB     ─────────────●──○
//!         │ 1 GiB ▲•╲•          -- one cuMemAlloc      128 MiB   ─────●──○
//!   100 us│ - - - - -╲-╲-•                             1 GiB     ─○●
//!         └─────────────────                                     ────────┴───────
//!           2    4   ...  1 GiB                              0.1    1   10   100
//! ```
//!
//! Both scales are logarithmic: half the chunk is twice the calls, which is a straight line.

mod table_1;

use std::io::Write;

use plotters::prelude::*;

use super::building::{BlockTimes, Building, PAPER_LEAST_ALLOCS};
use crate::report::Result;
use crate::report::picture::style::{self, whole};
use crate::report::picture::{Canvas, HEAD, ImageFormat, Picture, font, write_picture};
use crate::units::{Bytes, Nanos, Size};

const HEIGHT: u32 = 860;
/// Where the latency figure ends and Table 1 begins.
const SPLIT: i32 = 980;
/// Room for the scale, and for the names between it and the curves.
const LEFT: i32 = 100;
const NAMES: i32 = 226;
/// Room for what one `cuMemAlloc` costs, and for the chunks' sizes.
const RIGHT: i32 = 140;
const BELOW: i32 = 84;
const ABOVE: i32 = 52;
/// Marks of the scale at most; if there are more, only powers of ten are written.
const MOST_MARKS: usize = 14;

/// Draws how long blocks take in chunks of every size, and next to it Table 1, ours and the paper's.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_building(building: &Building, format: ImageFormat, out: &mut dyn Write) -> Result<()> {
    write_picture(format, HEIGHT, out, building)
}

impl Picture for Building {
    fn draw<DB: DrawingBackend>(&self, root: &Canvas<DB>) -> Result<()> {
        let title = "What a block costs when it is built out of chunks";
        let (device, rounds) = (&self.device, self.rounds);
        let rounds = if rounds == 1 { "one round".to_owned() } else { format!("{rounds} rounds") };
        let subtitle = format!(
            "{device}: medians of {rounds} with an empty queue; the paper: A100, CUDA 11.4"
        );
        let (left, right) = root.titled(title, &subtitle)?.split_at_x(SPLIT);
        let colours = style::more_colours().into_iter().cycle();
        let colours: Vec<RGBColor> = colours.take(self.blocks.len()).collect();
        draw(&left, &self.blocks, &colours)?;
        table_1::draw(&right, self, colours.last().copied().unwrap_or(style::INK))
    }
}

/// The latency figure.
fn draw<DB: DrawingBackend>(
    area: &Canvas<DB>,
    blocks: &[BlockTimes],
    colours: &[RGBColor],
) -> Result<()> {
    let title = "Time to build a block (both scales are logarithmic)";
    area.text((28, 0), title, font(20, style::INK))?;
    let Some(scale) = Scale::new(blocks) else {
        let text = "not measured: it needs 2 GiB of free memory and more";
        return area.text((28, 40), text, font(18, style::FAINT_INK));
    };
    scale.grid(area)?;
    for (block, &colour) in blocks.iter().zip(colours) {
        scale.block(area, block, colour)?;
    }
    scale.names(area, blocks, colours)?;
    legend(area)
}

/// Where things are, in finished pixels.
struct Scale {
    chunks: Vec<Bytes>,
    /// Nanoseconds at which there are lines; the first is at the bottom and the last at the top.
    marks: Vec<f64>,
}

impl Scale {
    /// `None` if there is nothing to draw.
    fn new(blocks: &[BlockTimes]) -> Option<Self> {
        let mut chunks: Vec<Bytes> =
            blocks.iter().flat_map(|block| &block.chunks).map(|&(chunk, _)| chunk).collect();
        chunks.sort_unstable();
        chunks.dedup();
        let built = |block: &BlockTimes| block.chunks.iter().map(|&(_, ns)| ns).max();
        let times = blocks.iter().flat_map(|block| {
            let paper = PAPER_LEAST_ALLOCS * block.native_ns;
            [Some(block.native_ns), Some(paper), built(block), block.chunks.last().map(|c| c.1)]
        });
        let times: Vec<u64> = times.flatten().map(|ns| ns.max(1)).collect();
        let (least, most) = (times.iter().min()?, times.iter().max()?);
        chunks.first()?;
        Some(Self { chunks, marks: marks(*least as f64, *most as f64) })
    }

    fn x(&self, chunk: Bytes) -> i32 {
        let power = |chunk: Bytes| (chunk.max(1) as f64).log2();
        let (first, last) = (power(self.chunks[0]), power(self.chunks[self.chunks.len() - 1]));
        let share = if last > first { (power(chunk) - first) / (last - first) } else { 0.5 };
        let (from, to) = (LEFT + NAMES, SPLIT - RIGHT - 16);
        from + (f64::from(to - from) * share).round() as i32
    }

    fn y(&self, nanos: f64) -> i32 {
        let (low, high) = (self.marks[0].log10(), self.marks[self.marks.len() - 1].log10());
        let share = (nanos.max(1.0).log10() - low) / (high - low);
        let bottom = HEIGHT as i32 - HEAD - BELOW;
        bottom - (f64::from(bottom - ABOVE) * share).round() as i32
    }

    fn grid<DB: DrawingBackend>(&self, area: &Canvas<DB>) -> Result<()> {
        let (ink, end) = (font(16, style::INK), SPLIT - RIGHT);
        let is_power = |mark: f64| (mark.log10() - mark.log10().round()).abs() < 1e-9;
        for &mark in &self.marks {
            area.line([(LEFT, self.y(mark)), (end, self.y(mark))], style::GRID, 1)?;
            if self.marks.len() <= MOST_MARKS || is_power(mark) {
                // The unit is enough to tell such a number: "100 µs", not "100.0 µs".
                let text = Nanos(mark).to_string().replace(".00", "").replace(".0", "");
                area.text((LEFT - 10, self.y(mark)), &text, ink.right())?;
            }
        }
        let bottom = self.y(self.marks[0]);
        for &chunk in &self.chunks {
            let (x, below) = (self.x(chunk), font(14, style::INK).above());
            area.line([(x, ABOVE), (x, bottom)], style::GRID, 1)?;
            area.text((x, bottom + 26), &whole(Size(chunk)), below)?;
        }
        let middle = (LEFT + NAMES + end) / 2;
        area.text((middle, bottom + 58), "size of the chunks", ink.above())
    }

    /// One block: in chunks, as one `cuMemAlloc`, and what the paper says.
    fn block<DB: DrawingBackend>(
        &self,
        area: &Canvas<DB>,
        block: &BlockTimes,
        colour: RGBColor,
    ) -> Result<()> {
        let native = [LEFT, SPLIT - RIGHT].map(|x| (x, self.y(block.native_ns as f64)));
        area.dashed(native, [9, 6], colour, 2)?;
        let point = |&(chunk, ns): &(Bytes, u64)| (self.x(chunk), self.y(ns as f64));
        let points: Vec<_> = block.chunks.iter().map(point).collect();
        for &point in &points {
            area.circle(point, 5, colour.filled())?;
        }
        area.line(points, colour, 2)?;
        // Next to the points, which it would cover.
        let paper = self.y((PAPER_LEAST_ALLOCS * block.native_ns) as f64);
        area.triangle((self.x(self.chunks[0]) - 18, paper), 7, colour)
    }

    /// What the lines are, each at the end where it is away from the others.
    fn names<DB: DrawingBackend>(
        &self,
        area: &Canvas<DB>,
        blocks: &[BlockTimes],
        colours: &[RGBColor],
    ) -> Result<()> {
        let bottom = self.y(self.marks[0]);
        let first = |block: &BlockTimes| self.y(block.chunks.first().map_or(0, |c| c.1) as f64);
        let begins: Vec<i32> = blocks.iter().map(first).collect();
        let ends: Vec<i32> = blocks.iter().map(|block| self.y(block.native_ns as f64)).collect();
        let begins = style::spread(&begins, 22, ABOVE, bottom);
        let ends = style::spread(&ends, 22, ABOVE, bottom);
        let places = begins.into_iter().zip(ends);
        for ((block, &colour), (begin, end)) in blocks.iter().zip(colours).zip(places) {
            let (size, font) = (whole(Size(block.size)), font(17, colour));
            if let Some(times) = block.most_allocs() {
                let text = format!("{size} = {times:.0} cuMemAllocs");
                area.text((self.x(self.chunks[0]) - 34, begin), &text, font.right())?;
            }
            let text = format!("{size}: {}", Nanos(block.native_ns as f64));
            area.text((SPLIT - RIGHT + 12, end), &text, font.left())?;
        }
        Ok(())
    }
}

/// 1, 2 and 5 times powers of ten, of which the first is at most `least` and the last at least `most`.
fn marks(least: f64, most: f64) -> Vec<f64> {
    let powers = least.log10().floor() as i32..=most.log10().ceil() as i32;
    let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(power)));
    let all: Vec<f64> = all.collect();
    let first = all.iter().rposition(|&mark| mark <= least).unwrap_or(0);
    let last = all.iter().position(|&mark| mark >= most && mark > all[first]);
    all[first..=last.unwrap_or(all.len() - 1)].to_vec()
}

/// What the kinds of line are, in the upper right corner, which the falling lines leave empty.
fn legend<DB: DrawingBackend>(area: &Canvas<DB>) -> Result<()> {
    let paper = format!("the paper: over {PAPER_LEAST_ALLOCS} cuMemAllocs in chunks of 2 MiB");
    let texts = ["built out of chunks", "one cuMemAlloc of the same size", &paper];
    let (left, top) = (SPLIT - RIGHT - 414, ABOVE + 14);
    area.rectangle([(left - 16, top - 12), (SPLIT - RIGHT, top + 74)], &WHITE)?;
    for (index, text) in texts.into_iter().enumerate() {
        let y = top + 6 + 26 * index as i32;
        let (ends, middle) = ([left, left + 36].map(|x| (x, y)), (left + 18, y));
        match index {
            0 => {
                area.line(ends, style::INK, 2)?;
                area.circle(middle, 5, style::INK.filled())?;
            }
            1 => area.dashed(ends, [9, 6], style::INK, 2)?,
            _ => area.triangle(middle, 7, style::INK)?,
        }
        area.text((left + 48, y), text, font(17, style::INK).left())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_enclose_everything() {
        assert_eq!(marks(60.0, 900.0), [50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(marks(100.0, 100.0), [100.0, 200.0]);
        assert_eq!(marks(1.0, 9.0), [1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let mut out = Vec::new();
        write_building(&Building::default(), ImageFormat::Svg, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("it needs 2 GiB") && text.contains("it needs 8 GiB"), "{text}");
    }
}
