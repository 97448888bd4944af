//! Measured: what cuDNN asked for on an H200, for the convolutions of known models.
//!
//! Each layer has a line in `convolutions.csv` next to this file: by how much the rule is wrong, at the numbers of
//! pixels that were measured. How many partial results are added up changes in steps, and copies grow with the pixels:
//!
//! ```text
//!   difference ▲                ●         grows with the pixels: on the line between two points
//!              │            ●
//!              │        ┌───●───●         in steps: that of the nearer point
//!              │  ●─────┘
//!              └──────────────────▶ pixels of the batch
//! ```
//!
//! A layer whose images have another size than the measured ones is looked up by the pixels of its batch alone.
//!
//! How well that does: "A table of convolutions" in `reports/predict.md`.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::convolution::Convolution;

const TABLE: &str = include_str!("convolutions.csv");

/// PyTorch rounds what it allocates to as many bytes; the table counts in them.
pub const UNIT: u64 = 512;

/// Batches of which each layer of the table was measured; of float16 only these.
const BATCHES: [u64; 10] = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256];
const BATCHES_OF_FLOAT16: [u64; 6] = [8, 16, 32, 64, 128, 256];

/// What a convolution's bytes rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Basis {
    /// This very convolution was measured.
    Measured,
    /// The layer was, at other sizes.
    Between,
    /// No such layer was measured: the tree chooses.
    Chosen,
}

/// Pixels of a batch, and how many units a workspace there is larger than the rule says, or smaller.
pub type Point = (u64, i64);

/// Points in the order of [`Direction`](super::Direction); none where the rule is right.
type Points = [Vec<Point>; 3];

/// All lines of the table; and again, with those of all sizes of images together, as layers of no pixels.
static LAYERS: LazyLock<FxHashMap<Layer, Points>> = LazyLock::new(|| parsed(TABLE));

impl Convolution {
    /// Bytes of workspace: what was measured, or else what the tree chooses.
    pub fn workspace(&self) -> u64 {
        self.measured().unwrap_or_else(|| self.chosen().0)
    }

    /// What the bytes rest on.
    pub fn basis(&self) -> Basis {
        let batch = self.input.first().unwrap_or(&0);
        let all = if self.is_float16 { &BATCHES_OF_FLOAT16[..] } else { &BATCHES };
        match self.found() {
            None => Basis::Chosen,
            Some((layer, _)) if layer.pixels > 0 && all.contains(batch) => Basis::Measured,
            Some(_) => Basis::Between,
        }
    }

    /// Bytes, if the layer was measured and the pixels lie between those that were.
    fn measured(&self) -> Option<u64> {
        let (_, units) = self.found()?;
        Some(UNIT * self.by_rule().div_ceil(UNIT).saturating_add_signed(units))
    }

    /// The line of the table, and the units that it says.
    fn found(&self) -> Option<(Layer, i64)> {
        let layer = Layer::of(self)?;
        let is_product = self.matrix_product() && !self.channels_last;
        layer.and_similar(is_product).find_map(|layer| {
            let points = &LAYERS.get(&layer)?[self.direction as usize];
            let is_right = points.is_empty();
            let units = if is_right { Some(0) } else { difference(points, pixels_of_batch(self)) }?;
            Some((layer, units))
        })
    }
}

/// The units between two points: on a line where they grow with the pixels, within a fifth; else the nearer's.
pub fn difference(points: &[Point], pixels: u64) -> Option<i64> {
    let after = points.partition_point(|point| point.0 < pixels);
    let (x1, y1) = *points.get(after)?;
    if x1 == pixels {
        return Some(y1);
    }
    let (x0, y0) = *points.get(after.checked_sub(1)?)?;
    let grows = x1 as f64 / x0 as f64 * y0 as f64 / y1 as f64;
    Some(if (0.8..1.25).contains(&grows) {
        let share = (pixels - x0) as f64 / (x1 - x0) as f64;
        (y0 as f64 + share * (y1 - y0) as f64).round() as i64
    } else if pixels * pixels < x0 * x1 {
        y0
    } else {
        y1
    })
}

/// What the numbers of a tensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// 32 bits; cuDNN may round them to 19 for the tensor cores.
    Float32,
    /// 16 bits, eight of them for the exponent.
    Bfloat16,
    /// 16 bits, five of them for the exponent.
    Float16,
}

/// What two convolutions have in common that differ in their batch at most.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Layer {
    /// What the numbers are.
    pub kind: Kind,
    /// Whether channels are the innermost dimension in memory.
    pub channels_last: bool,
    /// Sizes of the weight: channels out, channels in of a group, then the taps.
    pub weight: Vec<u64>,
    /// Channels in, over those of a group.
    pub groups: u64,
    /// Pixels from one tap to the next.
    pub dilation: u64,
    /// Pixels that go in for each that comes out.
    pub shrinks: u64,
    /// Pixels of an image that goes in.
    pub pixels: u64,
}

impl Layer {
    /// The layer of a convolution, if it has sizes and one of the kinds.
    pub fn of(convolution: &Convolution) -> Option<Self> {
        let (going_in, coming_out) = (pixels(&convolution.input), pixels(&convolution.output));
        if coming_out == 0 || convolution.weight.len().min(convolution.input.len()) < 3 {
            return None;
        }
        let kind = match convolution.element {
            4 => Kind::Float32,
            2 if convolution.is_float16 => Kind::Float16,
            2 => Kind::Bfloat16,
            _ => return None,
        };
        Some(Self {
            kind,
            channels_last: convolution.channels_last,
            weight: convolution.weight.clone(),
            groups: convolution.groups(),
            dilation: convolution.dilation,
            shrinks: (going_in + coming_out / 2) / coming_out,
            pixels: going_in,
        })
    }

    /// Itself, and layers that need as much where it has no line: float16 as bfloat16, and images of any size, unless
    /// it is computed as a product for each image.
    fn and_similar(self, is_product: bool) -> impl Iterator<Item = Self> {
        let other =
            (self.kind == Kind::Float16).then(|| Self { kind: Kind::Bfloat16, ..self.clone() });
        let these = [Some(self), other].into_iter().flatten();
        let of_any_size = these.clone().map(|it| Self { pixels: 0, ..it });
        these.chain(of_any_size.filter(move |_| !is_product))
    }
}

/// Pixels of an image.
fn pixels(sizes: &[u64]) -> u64 {
    sizes.iter().skip(2).product()
}

/// Pixels of all images that go in.
fn pixels_of_batch(convolution: &Convolution) -> u64 {
    convolution.input.first().unwrap_or(&0) * pixels(&convolution.input)
}

/// A line of the table. The last three have points as `batch:units`, with blanks between.
#[derive(Deserialize)]
struct Row {
    kind: Kind,
    channels_last: u8,
    weight: String,
    groups: u64,
    dilation: u64,
    shrinks: u64,
    pixels: u64,
    forward: String,
    data: String,
    weights: String,
}

impl Row {
    fn layer(&self) -> Layer {
        Layer {
            kind: self.kind,
            channels_last: self.channels_last == 1,
            weight: self.weight.split('x').filter_map(|size| size.parse().ok()).collect(),
            groups: self.groups,
            dilation: self.dilation,
            shrinks: self.shrinks,
            pixels: self.pixels,
        }
    }

    fn points(&self) -> Points {
        [&self.forward, &self.data, &self.weights].map(|cell| {
            cell.split(' ')
                .filter_map(|text| text.split_once(':'))
                .filter_map(|(batch, units)| Some((batch.parse().ok()?, units.parse().ok()?)))
                .map(|(batch, units): Point| (batch * self.pixels, units))
                .collect()
        })
    }
}

/// All layers of a table that is part of the program; the tests read every line of it.
fn parsed(table: &str) -> FxHashMap<Layer, Points> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(table.as_bytes());
    let mut layers: FxHashMap<Layer, Points> = FxHashMap::default();
    for row in reader.deserialize::<Row>().flatten() {
        let (layer, points) = (row.layer(), row.points());
        let of_any_size = layers.entry(Layer { pixels: 0, ..layer.clone() }).or_default();
        for (all, own) in of_any_size.iter_mut().zip(&points) {
            all.extend(own);
            all.sort_unstable();
            all.dedup_by_key(|point| point.0);
        }
        layers.insert(layer, points);
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Direction;

    fn of_resnet(batch: u64, direction: Direction) -> Convolution {
        Convolution {
            direction,
            element: 2,
            is_float16: false,
            channels_last: false,
            input: vec![batch, 512, 7, 7],
            weight: vec![512, 512, 3, 3],
            output: vec![batch, 512, 7, 7],
            plain: false,
            dilation: 1,
        }
    }

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines: Vec<_> = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1).collect();
        assert!(lines.len() > 1000, "{}", lines.len());
        let of_a_size = || LAYERS.iter().filter(|(layer, _)| layer.pixels > 0);
        assert_eq!(of_a_size().count(), lines.len());
        let points: usize = of_a_size().flat_map(|(_, points)| points).map(Vec::len).sum();
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
    fn between_two_points_lies_a_line_or_a_step_and_nothing_outside() {
        let at = |points: &[Point], pixels| difference(points, pixels);
        let growing = [(100, 1000), (200, 2000), (400, 4100)];
        let of = [100, 150, 300].map(|pixels| at(&growing, pixels));
        assert_eq!(of, [Some(1000), Some(1500), Some(3050)]);
        let steps = [(100, 0), (200, -70), (400, 90)];
        let of = [140, 142, 200, 282, 283].map(|pixels| at(&steps, pixels));
        assert_eq!(of, [Some(0), Some(-70), Some(-70), Some(-70), Some(90)]);
        assert_eq!([at(&steps, 99), at(&steps, 401), at(&[], 1)], [None; 3]);
    }

    #[test]
    fn a_known_layer_is_looked_up_and_another_follows_the_rule() {
        let known = of_resnet(256, Direction::Weight);
        assert_eq!(known.workspace(), 38_274_048);
        assert_ne!(known.workspace(), known.by_rule());
        assert_eq!(known.basis(), Basis::Measured);
        let mut other = known.clone();
        other.weight = vec![512, 511, 3, 3];
        assert_eq!(other.measured(), None);
        assert_eq!(other.workspace(), other.chosen().0);
        assert_eq!(other.basis(), Basis::Chosen);
    }

    #[test]
    fn another_size_of_images_is_looked_up_by_the_pixels_of_the_batch() {
        let mut other = of_resnet(2, Direction::Weight);
        (other.input, other.output) = (vec![2, 512, 60, 61], vec![2, 512, 60, 61]);
        assert_eq!(other.basis(), Basis::Between);
        other.dilation = 7;
        assert_eq!(other.basis(), Basis::Chosen);
    }

    #[test]
    fn float16_is_as_bfloat16_where_it_has_no_line() {
        let half =
            Layer { kind: Kind::Float16, ..Layer::of(&of_resnet(1, Direction::Data)).unwrap() };
        let kinds = |is_product| {
            half.clone().and_similar(is_product).map(|it| (it.kind, it.pixels)).collect::<Vec<_>>()
        };
        let of_a_size = [(Kind::Float16, 49), (Kind::Bfloat16, 49)];
        assert_eq!(kinds(true), of_a_size);
        assert_eq!(kinds(false)[..2], of_a_size);
        assert_eq!(kinds(false)[2..], [(Kind::Float16, 0), (Kind::Bfloat16, 0)]);
    }

    #[test]
    fn a_batch_larger_than_all_that_were_measured_is_an_estimate() {
        let many = of_resnet(1 << 20, Direction::Weight);
        assert_eq!(many.workspace(), many.chosen().0);
        assert_eq!(many.basis(), Basis::Chosen);
        assert_eq!(of_resnet(31, Direction::Weight).basis(), Basis::Between);
    }

    #[test]
    fn a_convolution_without_sizes_has_no_layer() {
        let mut empty = of_resnet(1, Direction::Forward);
        empty.output = vec![1, 512, 0, 7];
        assert_eq!(Layer::of(&empty), None);
        empty.weight.clear();
        assert_eq!(empty.measured(), None);
        let mut flat = of_resnet(1, Direction::Forward);
        flat.input = vec![1];
        assert_eq!((flat.measured(), flat.workspace()), (None, 0));
    }
}
