//! The paper's Table 1: for each call a dot for the ratio here, a ring for the paper's, and both numbers.

use plotters::prelude::*;

use crate::replay::building::{Building, PAPER_TABLE_1, TABLE_1_CHUNKS, Table1Row};
use crate::report::Result;
use crate::report::picture::style::{self, whole};
use crate::report::picture::{Canvas, font};
use crate::units::Size;

/// Room for the names at the left.
const LEFT: i32 = 150;
/// Where the scale ends, and the right ends of the two columns of numbers.
const END: i32 = 440;
const COLUMNS: [i32; 2] = [508, 590];
const ABOVE: i32 = 52;
const ROW: i32 = 35;
/// Powers of ten at the ends of the scale at least: the paper's numbers are from 0.002 to 115.4.
const POWERS: (i32, i32) = (-3, 3);

/// Draws the panel; what is ours has this colour.
pub(super) fn draw<DB: DrawingBackend>(
    area: &Canvas<DB>,
    building: &Building,
    colour: RGBColor,
) -> Result<()> {
    let title = "2 GiB in units of one cuMemAlloc (the paper's Table 1)";
    area.text((0, 0), title, font(20, style::INK))?;
    let Some(here) = &building.table_1 else {
        let text = "not measured: it needs 8 GiB of free memory";
        return area.text((0, 40), text, font(18, style::FAINT_INK));
    };
    let panel = Panel { powers: powers(here), colour };
    panel.grid(area)?;
    panel.head(area)?;
    let mut y = ABOVE + ROW / 2;
    for (place, chunk) in TABLE_1_CHUNKS.into_iter().enumerate() {
        let text = format!("in chunks of {}", whole(Size(chunk)));
        area.text((0, y), &text, font(17, style::FAINT_INK).left())?;
        for (ours, theirs) in here.iter().zip(&PAPER_TABLE_1) {
            y += ROW;
            panel.row(area, y, ours.call, [ours.ratios[place], theirs.ratios[place]])?;
        }
        y += ROW;
    }
    Ok(())
}

/// The ends of a scale that has room for all numbers.
fn powers(here: &[Table1Row]) -> (i32, i32) {
    let ratios = here.iter().flat_map(|row| row.ratios).filter(|&ratio| ratio > 0.0);
    ratios.fold(POWERS, |(low, high), ratio| {
        let power = ratio.log10();
        (low.min(power.floor() as i32), high.max(power.ceil() as i32))
    })
}

struct Panel {
    powers: (i32, i32),
    colour: RGBColor,
}

impl Panel {
    fn x(&self, ratio: f64) -> i32 {
        let (low, high) = (f64::from(self.powers.0), f64::from(self.powers.1));
        // A call that took no time that could be measured is at the left end.
        let power = if ratio > 0.0 { ratio.log10() } else { low };
        LEFT + (f64::from(END - LEFT) * (power - low) / (high - low)).round() as i32
    }

    fn grid<DB: DrawingBackend>(&self, area: &Canvas<DB>) -> Result<()> {
        let bottom = ABOVE + ROW * (TABLE_1_CHUNKS.len() * (PAPER_TABLE_1.len() + 1)) as i32 + 10;
        for power in self.powers.0..=self.powers.1 {
            let ratio = 10_f64.powi(power);
            let x = self.x(ratio);
            let colour = if power == 0 { style::FAINT_INK } else { style::GRID };
            area.line([(x, ABOVE), (x, bottom)], colour, 1)?;
            area.text((x, bottom + 26), &ratio.to_string(), font(15, style::INK).above())?;
        }
        let middle = ((LEFT + END) / 2, bottom + 58);
        area.text(middle, "cuMemAllocs of 2 GiB", font(16, style::INK).above())
    }

    /// The names of the two columns, each with its mark.
    fn head<DB: DrawingBackend>(&self, area: &Canvas<DB>) -> Result<()> {
        let columns = COLUMNS.into_iter().zip(["here", "paper"]).zip([self.colour, style::INK]);
        for (index, ((right, name), colour)) in columns.enumerate() {
            area.text((right, ABOVE - 8), name, font(17, colour).right())?;
            self.mark(area, (right - 58 + 8 * i32::from(index == 0), ABOVE - 15), index == 0)?;
        }
        Ok(())
    }

    /// One call: here, and in the paper.
    fn row<DB: DrawingBackend>(
        &self,
        area: &Canvas<DB>,
        y: i32,
        call: &str,
        ratios: [f64; 2],
    ) -> Result<()> {
        let ends = ratios.map(|ratio| (self.x(ratio), y));
        area.text((LEFT - 14, y), call, font(16, style::INK).right())?;
        area.line(ends, style::FAINT_INK, 1)?;
        self.mark(area, ends[1], false)?;
        self.mark(area, ends[0], true)?;
        let texts = [digits(ratios[0]), ratios[1].to_string()];
        for ((right, text), colour) in COLUMNS.into_iter().zip(texts).zip([self.colour, style::INK])
        {
            area.text((right, y), &text, font(16, colour).right())?;
        }
        Ok(())
    }

    /// A dot for what is ours, a ring for the paper's.
    fn mark<DB: DrawingBackend>(
        &self,
        area: &Canvas<DB>,
        at: (i32, i32),
        is_ours: bool,
    ) -> Result<()> {
        if is_ours {
            return area.circle(at, 6, self.colour.filled());
        }
        // Filled with the ground, so that the line between the two ends at the ring.
        area.circle(at, 7, WHITE.filled())?;
        area.circle(at, 7, area.stroke(style::INK, 2))
    }
}

/// About three digits, as many as the paper gives.
fn digits(ratio: f64) -> String {
    let places = match ratio {
        ratio if ratio >= 10.0 => 1,
        ratio if ratio >= 1.0 => 2,
        _ => 3,
    };
    format!("{ratio:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_has_room_for_every_number() {
        let row = |ratio| Table1Row { call: "map", ratios: [ratio, 0.0, 1.0] };
        assert_eq!(powers(&[row(0.5), row(30.0)]), POWERS);
        assert_eq!(powers(&[row(0.000_02), row(30_000.0)]), (-5, 5));
    }

    #[test]
    fn numbers_are_as_long_as_the_papers() {
        let texts = [253.061, 62.035, 5.133, 0.0171].map(digits);
        assert_eq!(texts, ["253.1", "62.0", "5.13", "0.017"]);
    }
}
