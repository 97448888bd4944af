//! Table of convolutions: what `convolutions.py` measured on a GPU, as far as the rule for workspaces gets it wrong.
//!
//! `cargo run --release --example convolution_table -- MEASURED.csv... > src/virtual_gpu/workspace/convolutions.csv`
//!
//! Each layer has a line; a cell is empty where the rule is nowhere off by more than 64 KiB. Points that lie on a
//! straight line between others are left out.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;

use gmlake::virtual_gpu::workspace::{Convolution, Direction, Layer, pixels_of_batch};
use serde::Deserialize;

const DIRECTIONS: [Direction; 3] = [Direction::Forward, Direction::Data, Direction::Weight];
/// Bytes that the rule may be off without points in the table.
const TOLERATED: u64 = 64 << 10;
/// Bytes that a point may lie off the line between its neighbours: PyTorch rounds to as much.
const ROUNDING: u64 = 512;

/// A line of `convolutions.py`.
#[derive(Deserialize)]
struct Row {
    input: String,
    weight: String,
    stride: String,
    padding: String,
    dilation: String,
    kind: String,
    channels_last: u8,
    forward: Option<u64>,
    data: Option<u64>,
    weights: Option<u64>,
}

/// Pixels of the batch; what was measured and what the rule says, in bytes.
type Points = BTreeMap<u64, (u64, u64)>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut layers: BTreeMap<Layer, [Points; 3]> = BTreeMap::new();
    for path in std::env::args().skip(1) {
        for row in csv::Reader::from_path(path)?.deserialize() {
            add(&mut layers, &row?);
        }
    }
    write(&layers)
}

fn add(layers: &mut BTreeMap<Layer, [Points; 3]>, row: &Row) {
    let measured = [row.forward, row.data, row.weights];
    for (at, (direction, bytes)) in DIRECTIONS.into_iter().zip(measured).enumerate() {
        let convolution = convolution(row, direction);
        let (Some(bytes), Some(layer)) = (bytes, Layer::of(&convolution)) else { continue };
        let points = &mut layers.entry(layer).or_default()[at];
        let rule = convolution.by_rule().next_multiple_of(ROUNDING);
        points.entry(pixels_of_batch(&convolution)).or_insert((bytes, rule));
    }
}

fn convolution(row: &Row, direction: Direction) -> Convolution {
    let [input, weight, stride, padding, dilation] =
        [&row.input, &row.weight, &row.stride, &row.padding, &row.dilation].map(|text| sizes(text));
    let mut output = vec![input[0], weight[0]];
    output.extend((0..weight.len() - 2).map(|at| {
        let reach = dilation[at] * (weight[at + 2] - 1);
        (input[at + 2] + 2 * padding[at] - reach - 1) / stride[at] + 1
    }));
    let plain = stride.iter().all(|&stride| stride == 1) && padding.iter().all(|&it| it == 0);
    let element = if row.kind == "float32" { 4 } else { 2 };
    let channels_last = row.channels_last == 1;
    Convolution { direction, element, channels_last, input, weight, output, plain }
}

/// `64x64x3x3` as numbers.
fn sizes(text: &str) -> Vec<u64> {
    text.split('x').filter_map(|size| size.parse().ok()).collect()
}

/// Points as `pixels:bytes`, without those that a straight line reaches; none where the rule is right.
fn text(points: &Points) -> String {
    if points.values().all(|(measured, rule)| measured.abs_diff(*rule) <= TOLERATED) {
        return String::new();
    }
    let points: Vec<_> = points.iter().map(|(pixels, (bytes, _))| (*pixels, *bytes)).collect();
    let mut kept = vec![0];
    while let Some(&from) = kept.last()
        && from + 1 < points.len()
    {
        let reached = (from + 1..points.len()).rev().find(|&to| is_straight(&points[from..=to]));
        kept.push(reached.unwrap_or(from + 1));
    }
    let words: Vec<_> = kept.iter().map(|&at| format!("{}:{}", points[at].0, points[at].1)).collect();
    words.join(" ")
}

/// Whether all points lie on the line from the first to the last.
fn is_straight(points: &[(u64, u64)]) -> bool {
    let (first, last) = (points[0], points[points.len() - 1]);
    let rise = (last.1 as f64 - first.1 as f64) / (last.0 - first.0) as f64;
    let line = |pixels: u64| first.1 as f64 + rise * (pixels - first.0) as f64;
    points.iter().all(|&(pixels, bytes)| (line(pixels) - bytes as f64).abs() <= ROUNDING as f64)
}

fn write(layers: &BTreeMap<Layer, [Points; 3]>) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "# Workspaces of cuDNN 9.19 on an H200: bytes by the pixels of the batch that go in; none where the rule")?;
    writeln!(out, "# in convolution.rs is right. Measured by examples/predict/convolutions.py, written by")?;
    writeln!(out, "# examples/predict/convolution_table.rs.")?;
    writeln!(out, "element,channels_last,weight,groups,shrinks,pixels,forward,data,weights")?;
    for (layer, points) in layers {
        let weight: Vec<_> = layer.weight.iter().map(u64::to_string).collect();
        let (last, weight) = (u8::from(layer.channels_last), weight.join("x"));
        write!(out, "{},{last},{weight},{},{}", layer.element, layer.groups, layer.shrinks)?;
        writeln!(out, ",{},{}", layer.pixels, points.each_ref().map(text).join(","))?;
    }
    Ok(())
}
