//! Colours and labels that all pictures share.

use plotters::prelude::*;

use crate::report::ReportError;
use crate::report::palette::{self, Colour};
use crate::run::RunSummary;
use crate::units::{Bytes, GIB, Size};

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

/// Drawing failed.
pub(crate) fn failed<E: std::fmt::Display>(error: E) -> ReportError {
    ReportError::Draw(error.to_string())
}

/// Colours for lines that are of no allocator that we know.
pub(crate) fn more_colours() -> [RGBColor; 3] {
    palette::MORE_COLOURS.map(on_paper)
}

/// The colour of each run.
pub(crate) fn colours(runs: &[RunSummary]) -> Vec<RGBColor> {
    palette::colours(runs).into_iter().map(on_paper).collect()
}

/// The colour of each allocator.
pub(crate) fn colours_of<'a>(allocators: impl Iterator<Item = &'a str>) -> Vec<RGBColor> {
    palette::colours_of(allocators).into_iter().map(on_paper).collect()
}

/// A colour as it is drawn: pictures are white.
fn on_paper(colour: Colour) -> RGBColor {
    let (red, green, blue) = colour.light;
    RGBColor(red, green, blue)
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

/// Bytes in GiB, as scales have them.
pub(crate) fn gib(bytes: Bytes) -> f64 {
    bytes as f64 / GIB as f64
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
