//! Errors of estimated workspaces: what `gmlake measure` found beside what the library says, as CSV.
//!
//! ```sh
//! cargo run -p gmlake-virtual-gpu --example workspace_errors -- TABLE.csv... > errors.csv
//! ```
//!
//! `tensors` are the bytes of a convolution's tensors, `low` and `high` the ends that an answer takes (`spread.rs`).

use std::error::Error;
use std::io::Write;

#[allow(dead_code, unused_imports, reason = "only convolutions are looked at")]
#[path = "../src/workspace/mod.rs"]
mod workspace;

use rustc_hash::FxHashMap;
use workspace::{Convolution, Direction};

type Row = FxHashMap<String, String>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "direction,kind,channels_last,dimensions,groups,taps,input,weight,output,basis,tensors,bytes,\
         low,high,measured"
    )?;
    for path in std::env::args().skip(1) {
        for row in csv::Reader::from_path(path)?.deserialize::<Row>() {
            let mut row = row?;
            if row["kind"] == "convolution" {
                let arguments = row["arguments"].clone();
                let pairs = arguments.split(' ').filter_map(|pair| pair.split_once('='));
                row.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
                writeln!(out, "{}", line(&row)?)?;
            }
        }
    }
    Ok(())
}

/// The line of a measured convolution.
fn line(row: &Row) -> Result<String, Box<dyn Error>> {
    let it = convolution(row)?;
    let (basis, bytes) = (it.basis(), it.workspace());
    let ((low, high), _) = it.spread(basis, bytes);
    let space: Vec<u64> = it.weight.iter().skip(2).copied().collect();
    let dimensions = if row["output"].split('x').nth(2) == Some("1") && space[0] == 1 {
        space.len() - 1
    } else {
        space.len()
    };
    let tensors: u64 = [&it.input, &it.weight, &it.output]
        .iter()
        .map(|sizes| sizes.iter().product::<u64>() * it.element)
        .sum();
    let groups = it.input[1] / it.weight[1].max(1);
    let taps: u64 = space.iter().product();
    let text = |name: &str| row[name].as_str();
    Ok(format!(
        "{},{},{},{dimensions},{groups},{taps},{},{},{},{basis:?},{tensors},{bytes},{low},\
         {high},{}",
        text("direction"),
        text("type"),
        text("channels_last"),
        text("input"),
        text("weight"),
        text("output"),
        text("bytes")
    ))
}

fn convolution(row: &Row) -> Result<Convolution, Box<dyn Error>> {
    let sizes = |name: &str| -> Result<Vec<u64>, Box<dyn Error>> {
        Ok(row[name].split('x').map(str::parse).collect::<Result<_, _>>()?)
    };
    let all = |name: &str, value: u64| sizes(name).map(|it| it.iter().all(|&size| size == value));
    let direction = match row["direction"].as_str() {
        "forward" => Direction::Forward,
        "data" => Direction::Data,
        _ => Direction::Weight,
    };
    Ok(Convolution {
        direction,
        element: if row["type"] == "float32" { 4 } else { 2 },
        is_float16: row["type"] == "float16",
        channels_last: row["channels_last"] == "1" && sizes("input")?[1] > 1,
        input: sizes("input")?,
        weight: sizes("weight")?,
        output: sizes("output")?,
        plain: all("stride", 1)? && all("padding", 0)?,
        dilation: sizes("dilation")?[0],
    })
}
