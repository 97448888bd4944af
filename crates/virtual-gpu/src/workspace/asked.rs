//! Asked: a convolution as a program asks for it, as a line of text; and tables of what such lines took on a GPU.
//!
//! ```text
//!   predict --unknown layers.csv      the lines whose workspace is only estimated
//!   gmlake measure layers.csv         on a GPU: the same lines, with bytes
//!   predict --workspaces table.csv    those bytes, in place of estimates
//! ```

use std::fmt;
use std::path::Path;

use gmlake_core::reader_error;
use gmlake_core::units::Bytes;
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::convolution::{Convolution, Direction};

/// A convolution, with all that decides what cuDNN takes for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Asked {
    /// Its tensors, and what is computed.
    pub convolution: Convolution,
    /// Pixels from one output to the next, in each dimension.
    pub stride: Vec<u64>,
    /// Zeros around the input, in each dimension.
    pub padding: Vec<u64>,
    /// Pixels from one tap to the next, in each dimension.
    pub dilation: Vec<u64>,
}

/// Names of what identifies a convolution, in the order of its line.
pub const COLUMNS: [&str; 9] = [
    "direction",
    "kind",
    "channels_last",
    "input",
    "weight",
    "output",
    "stride",
    "padding",
    "dilation",
];

impl fmt::Display for Asked {
    /// The line: the values of [`COLUMNS`], with commas between; sizes are joined by `x`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Convolution { direction, element, is_float16, channels_last, .. } = self.convolution;
        let direction = match direction {
            Direction::Forward => "forward",
            Direction::Data => "data",
            Direction::Weight => "weight",
        };
        let kind = match (element, is_float16) {
            (2, true) => "float16",
            (2, false) => "bfloat16",
            (8, _) => "float64",
            _ => "float32",
        };
        write!(f, "{direction},{kind},{}", u8::from(channels_last))?;
        let Convolution { input, weight, output, .. } = &self.convolution;
        let lists = [input, weight, output, &self.stride, &self.padding, &self.dilation];
        lists.iter().try_for_each(|list| write!(f, ",{}", joined(list)))
    }
}

fn joined(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

/// What was measured on the card that is virtual here: bytes of each line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workspaces {
    bytes: FxHashMap<String, Bytes>,
    /// Lines of the tables that are of another card or of another version of cuDNN.
    pub of_others: usize,
}

/// A row of a table.
#[derive(Deserialize)]
struct Row {
    card: String,
    cudnn: i32,
    direction: String,
    kind: String,
    channels_last: String,
    input: String,
    weight: String,
    output: String,
    stride: String,
    padding: String,
    dilation: String,
    bytes: Bytes,
}

impl Row {
    fn line(&self) -> String {
        let Self { direction, kind, channels_last, input, weight, output, .. } = self;
        let Self { stride, padding, dilation, .. } = self;
        [direction, kind, channels_last, input, weight, output, stride, padding, dilation]
            .map(String::as_str)
            .join(",")
    }
}

impl Workspaces {
    /// Reads tables; of the same line, the last one counts. `card` is the name that the driver reports, and the version
    /// of cuDNN counts without its patch level.
    ///
    /// # Errors
    /// A sentence about a file that cannot be read, or is no such table.
    pub fn read<'a>(
        tables: impl IntoIterator<Item = &'a Path>,
        card: &str,
        cudnn: i32,
    ) -> Result<Self, String> {
        let mut all = Self::default();
        for path in tables {
            let wrong = |error| format!("{}: {}", path.display(), reader_error::table(&error));
            let mut reader = csv::Reader::from_path(path).map_err(wrong)?;
            for row in reader.deserialize() {
                all.add(&row.map_err(wrong)?, card, cudnn);
            }
        }
        Ok(all)
    }

    fn add(&mut self, row: &Row, card: &str, cudnn: i32) {
        if row.card == card && row.cudnn / 100 == cudnn / 100 {
            self.bytes.insert(row.line(), row.bytes);
        } else {
            self.of_others += 1;
        }
    }

    /// Bytes for a line, if it was measured.
    #[must_use]
    pub fn get(&self, line: &str) -> Option<Bytes> {
        self.bytes.get(line).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: &str = "NVIDIA H100 80GB HBM3";

    fn asked() -> Asked {
        let convolution = Convolution {
            direction: Direction::Data,
            element: 2,
            is_float16: true,
            channels_last: false,
            input: vec![16, 64, 1, 24000],
            weight: vec![128, 64, 1, 7],
            output: vec![16, 128, 1, 24000],
            plain: false,
            dilation: 1,
        };
        Asked { convolution, stride: vec![1, 1], padding: vec![0, 3], dilation: vec![1, 1] }
    }

    fn table(rows: &str) -> Result<Workspaces, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let head = format!("card,cudnn,{},bytes\n", COLUMNS.join(","));
        std::fs::write(file.path(), head + rows).unwrap();
        Workspaces::read([file.path()], CARD, 91_900)
    }

    #[test]
    fn a_measured_line_is_found_for_its_card_and_version_alone() {
        let line = asked().to_string();
        let expected = "data,float16,0,16x64x1x24000,128x64x1x7,16x128x1x24000,1x1,0x3,1x1";
        assert_eq!(line, expected);
        let found = |card: &str, cudnn: i32| {
            table(&format!("{card},{cudnn},{line},4096\n")).unwrap().get(&line)
        };
        assert_eq!([found(CARD, 91_900), found(CARD, 91_902)], [Some(4096); 2]);
        assert_eq!([found(CARD, 92_000), found("NVIDIA A100", 91_900)], [None; 2]);
    }

    #[test]
    fn lines_of_other_cards_are_counted_and_the_last_of_the_same_counts() {
        let line = asked().to_string();
        let of = |card: &str, bytes: u64| format!("{card},91900,{line},{bytes}\n");
        let all = [of(CARD, 1), of("other", 5), of(CARD, 2)].concat();
        let found = table(&all).unwrap();
        assert_eq!((found.get(&line), found.of_others), (Some(2), 1));
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_line() {
        let error = table("x,91900\n").unwrap_err();
        assert!(error.contains("line 2") && error.contains("columns"), "{error}");
        let error = Workspaces::read([Path::new("/no/such/table")], CARD, 1).unwrap_err();
        assert!(error.starts_with("/no/such/table: "), "{error}");
    }
}
