//! Table of convolutions: what `convolutions.py` measured on a GPU, as far as the rule for workspaces gets it wrong.
//!
//! ```sh
//! cargo run --release -p gmlake-virtual-gpu --example convolution_table -- MEASURED.csv... \
//!     > crates/virtual-gpu/src/workspace/convolutions.csv
//! ```
//!
//! Each layer has a line; a cell is empty where the rule is nowhere off by more than 64 KiB. Points are left out that
//! the look-up finds from the others, and lines of float16 that say what those of bfloat16 say.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;

#[allow(dead_code, unused_imports, reason = "the table needs the rule alone")]
#[path = "../src/workspace/mod.rs"]
mod workspace;

use serde::Deserialize;
use workspace::{Convolution, Direction, Kind, Layer, Point, UNIT, difference};

const DIRECTIONS: [Direction; 3] = [Direction::Forward, Direction::Data, Direction::Weight];
/// Units that the rule may be off without points in the table: 64 KiB.
const TOLERATED: u64 = 128;

/// A line of `convolutions.py`.
#[derive(Deserialize)]
struct Row {
    input: String,
    weight: String,
    stride: String,
    padding: String,
    dilation: String,
    kind: Kind,
    channels_last: u8,
    forward: Option<u64>,
    data: Option<u64>,
    weights: Option<u64>,
}

/// The batch, and the units by which the rule is wrong.
type Points = BTreeMap<u64, i64>;

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
        let units = bytes.div_ceil(UNIT) as i64 - convolution.by_rule().div_ceil(UNIT) as i64;
        points.entry(convolution.input[0]).or_insert(units);
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
    let (element, is_float16) = match row.kind {
        Kind::Float32 => (4, false),
        kind => (2, kind == Kind::Float16),
    };
    let channels_last = row.channels_last == 1;
    Convolution {
        direction,
        element,
        is_float16,
        channels_last,
        input,
        weight,
        output,
        plain,
        dilation: dilation[0],
    }
}

/// `64x64x3x3` as numbers.
fn sizes(text: &str) -> Vec<u64> {
    text.split('x').filter_map(|size| size.parse().ok()).collect()
}

/// The points that all others are found from; none where the rule is right.
fn needed(points: &Points) -> Vec<Point> {
    let mut needed = Vec::new();
    if points.values().any(|units| units.unsigned_abs() > TOLERATED) {
        needed.extend(points.first_key_value().map(copied));
        needed.extend(points.last_key_value().map(copied));
        needed.dedup();
    }
    while let Some(worst) = points.iter().map(copied).max_by_key(|it| error(&needed, *it))
        && !needed.is_empty()
        && error(&needed, worst) > 1
    {
        needed.push(worst);
        needed.sort_unstable();
    }
    needed
}

fn copied((batch, units): (&u64, &i64)) -> Point {
    (*batch, *units)
}

/// Units by which a look-up would be wrong at a point.
fn error(points: &[Point], (batch, units): Point) -> u64 {
    difference(points, batch).unwrap_or(0).abs_diff(units)
}

/// Whether a line of bfloat16 finds all points of float16's.
fn says_the_same(line: &[Vec<Point>; 3], points: &[Points; 3]) -> bool {
    let finds = |(line, points): (&Vec<Point>, &Points)| {
        let most = if line.is_empty() { TOLERATED } else { 1 };
        points.iter().map(copied).all(|point| error(line, point) <= most)
    };
    line.iter().zip(points).all(finds)
}

fn text(points: &[Point]) -> String {
    let words: Vec<_> = points.iter().map(|(batch, units)| format!("{batch}:{units}")).collect();
    words.join(" ")
}

fn write(layers: &BTreeMap<Layer, [Points; 3]>) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "# Workspaces of cuDNN 9.19 on an H200, as differences from the rule in convolution.rs: `batch:units`, a unit has 512"
    )?;
    writeln!(
        out,
        "# bytes. Measured by examples/predict/convolutions.py, written by examples/predict/convolution_table.rs."
    )?;
    writeln!(out, "kind,channels_last,weight,groups,dilation,shrinks,pixels,forward,data,weights")?;
    for (layer, points) in layers {
        let other = Layer { kind: Kind::Bfloat16, ..layer.clone() };
        let line = layers.get(&other).map(|points| points.each_ref().map(needed));
        let is_known = line.is_some_and(|line| says_the_same(&line, points));
        if layer.kind == Kind::Float16 && is_known {
            continue;
        }
        let kind = format!("{:?}", layer.kind).to_lowercase();
        let weight: Vec<_> = layer.weight.iter().map(u64::to_string).collect();
        let (last, weight) = (u8::from(layer.channels_last), weight.join("x"));
        write!(out, "{kind},{last},{weight},{},{}", layer.groups, layer.dilation)?;
        let cells = points.each_ref().map(|points| text(&needed(points)));
        writeln!(out, ",{},{},{}", layer.shrinks, layer.pixels, cells.join(","))?;
    }
    Ok(())
}
