//! Measured: what cuDNN asked for on an H200, for the convolutions of known models.
//!
//! Each layer has a line in `convolutions.csv` next to this file. Its workspace depends on the pixels of the whole
//! batch: copies grow with them, and how many partial results are added up changes in steps. Between two numbers of
//! pixels that were measured lies a straight line:
//!
//! ```text
//!   bytes ▲            ●──────●
//!         │           ╱
//!         │  ●───────●
//!         └──────────────────────▶ pixels of the batch
//! ```
//!
//! Outside them the rule answers, and where it was found to be right, so that the line has no points.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::convolution::{Convolution, Direction};

const TABLE: &str = include_str!("convolutions.csv");

/// Pixels of a batch, and bytes of workspace.
type Point = (u64, u64);

/// Points for the output, the gradient of the input, and that of the weight.
type Points = [Vec<Point>; 3];

static LAYERS: LazyLock<HashMap<Layer, Points>> = LazyLock::new(|| parsed(TABLE));

/// Bytes for a convolution, if the rule is wrong for its layer and its pixels lie between those that were measured.
pub(super) fn bytes(convolution: &Convolution) -> Option<u64> {
    between(points(convolution)?, pixels_of_batch(convolution))
}

/// Whether a workspace is more than an estimate: its layer is in the table, and the pixels lie within its points.
pub(super) fn knows(convolution: &Convolution) -> bool {
    points(convolution).is_some_and(|points| points.is_empty() || bytes(convolution).is_some())
}

fn points(convolution: &Convolution) -> Option<&'static [Point]> {
    let at = match convolution.direction {
        Direction::Forward => 0,
        Direction::Data => 1,
        Direction::Weight => 2,
    };
    Some(&LAYERS.get(&Layer::of(convolution)?)?[at])
}

/// What two convolutions have in common that differ in their batch at most, or, where that makes no difference, in
/// the size of their images.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Layer {
    /// Bytes of an element.
    pub element: u64,
    /// Whether channels are the innermost dimension in memory.
    pub channels_last: bool,
    /// Sizes of the weight: channels out, channels in of a group, then the taps.
    pub weight: Vec<u64>,
    /// Channels in, over those of a group.
    pub groups: u64,
    /// Pixels that go in for each that comes out.
    pub shrinks: u64,
    /// Pixels of an image, where cuBLAS computes the layer as a product for each image; else 0.
    pub pixels: u64,
}

impl Layer {
    /// The layer of a convolution, if it has sizes.
    #[must_use]
    pub fn of(convolution: &Convolution) -> Option<Self> {
        let (going_in, coming_out) = (pixels(&convolution.input), pixels(&convolution.output));
        if coming_out == 0 || convolution.weight.len() < 3 {
            return None;
        }
        let is_product = convolution.matrix_product() && !convolution.channels_last;
        Some(Self {
            element: convolution.element,
            channels_last: convolution.channels_last,
            weight: convolution.weight.clone(),
            groups: convolution.groups(),
            shrinks: (going_in + coming_out / 2) / coming_out,
            pixels: if is_product { going_in } else { 0 },
        })
    }
}

/// Pixels of an image.
fn pixels(sizes: &[u64]) -> u64 {
    sizes.iter().skip(2).product()
}

/// Pixels of all images that go in.
#[must_use]
pub fn pixels_of_batch(convolution: &Convolution) -> u64 {
    convolution.input.first().unwrap_or(&0) * pixels(&convolution.input)
}

/// The bytes for a number of pixels, on the line through the two points around it.
fn between(points: &[Point], pixels: u64) -> Option<u64> {
    let after = points.partition_point(|point| point.0 < pixels);
    let (x1, y1) = *points.get(after)?;
    if x1 == pixels {
        return Some(y1);
    }
    let (x0, y0) = *points.get(after.checked_sub(1)?)?;
    let share = (pixels - x0) as f64 / (x1 - x0) as f64;
    Some((y0 as f64 + share * (y1 as f64 - y0 as f64)).round() as u64)
}

/// A line of the table. The last three have points as `pixels:bytes`, with blanks between; none where the rule is right.
#[derive(Deserialize)]
struct Row {
    element: u64,
    channels_last: u8,
    weight: String,
    groups: u64,
    shrinks: u64,
    pixels: u64,
    forward: String,
    data: String,
    weights: String,
}

impl Row {
    fn layer(&self) -> Layer {
        Layer {
            element: self.element,
            channels_last: self.channels_last == 1,
            weight: self.weight.split('x').filter_map(|size| size.parse().ok()).collect(),
            groups: self.groups,
            shrinks: self.shrinks,
            pixels: self.pixels,
        }
    }

    fn points(&self) -> Points {
        let of = |cell: &str| cell.split(' ').filter_map(point).collect();
        [of(&self.forward), of(&self.data), of(&self.weights)]
    }
}

/// All layers of a table that is part of the program; the tests read every line of it.
fn parsed(table: &str) -> HashMap<Layer, Points> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(table.as_bytes());
    reader.deserialize::<Row>().flatten().map(|row| (row.layer(), row.points())).collect()
}

fn point(text: &str) -> Option<Point> {
    let (pixels, bytes) = text.split_once(':')?;
    Some((pixels.parse().ok()?, bytes.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_resnet(batch: u64, direction: Direction) -> Convolution {
        Convolution {
            direction,
            element: 2,
            channels_last: false,
            input: vec![batch, 512, 7, 7],
            weight: vec![512, 512, 3, 3],
            output: vec![batch, 512, 7, 7],
            plain: false,
        }
    }

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines: Vec<_> = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1).collect();
        assert!(lines.len() > 1000, "{}", lines.len());
        assert_eq!(LAYERS.len(), lines.len());
        let points: usize = LAYERS.values().flatten().map(Vec::len).sum();
        assert_eq!(points, lines.iter().map(|line| line.matches(':').count()).sum::<usize>());
    }

    #[test]
    fn points_go_upwards_in_pixels() {
        for (layer, points) in &*LAYERS {
            let up = |points: &Vec<Point>| points.windows(2).all(|two| two[0].0 < two[1].0);
            assert!(points.iter().all(up), "{layer:?}");
        }
    }

    #[test]
    fn a_straight_line_lies_between_two_points_and_nothing_outside() {
        let points = [(100, 0), (200, 1000), (400, 1000)];
        let at = |pixels| between(&points, pixels);
        assert_eq!([at(100), at(150), at(200), at(300)], [Some(0), Some(500), Some(1000), Some(1000)]);
        assert_eq!([at(99), at(401), between(&[], 1)], [None; 3]);
    }

    #[test]
    fn a_known_layer_is_looked_up_and_another_follows_the_rule() {
        let known = of_resnet(256, Direction::Weight);
        assert_eq!(bytes(&known), Some(known.workspace()));
        assert!(!known.is_estimate());
        assert_ne!(known.workspace(), known.by_rule());
        let mut other = known.clone();
        other.weight = vec![512, 511, 3, 3];
        assert_eq!(bytes(&other), None);
        assert_eq!(other.workspace(), other.by_rule());
        assert!(other.is_estimate());
    }

    #[test]
    fn a_batch_larger_than_all_that_were_measured_is_an_estimate() {
        let many = of_resnet(1 << 20, Direction::Weight);
        assert_eq!(many.workspace(), many.by_rule());
        assert!(many.is_estimate());
    }

    #[test]
    fn a_convolution_without_sizes_has_no_layer() {
        let mut empty = of_resnet(1, Direction::Forward);
        empty.output = vec![1, 512, 0, 7];
        assert_eq!(Layer::of(&empty), None);
        empty.weight.clear();
        assert_eq!(bytes(&empty), None);
    }
}
