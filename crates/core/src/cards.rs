//! The catalogue of cards: what a program may use of each, and where that figure comes from.
//!
//! The size in a card's name is no size: a "141 GB" H200 shows a program 139.80 GiB, and of that the CUDA context and
//! NCCL take their part before the first tensor. The catalogue is `cards.csv` next to this file; `--cards FILE` reads
//! another one in the same form.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::input_error::InputError;
use crate::reader_error;
use crate::units::{Bytes, Size, parse_size};

const BUILT_IN: &str = include_str!("cards.csv");

/// What an error is about.
const CATALOGUE: &str = "catalogue of cards";

/// A card.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// The size that it is sold under, in GB.
    pub marketing_gb: u32,
    /// Bytes that the driver reports to a program.
    pub usable_bytes: Bytes,
    /// Where that figure comes from.
    pub source: String,
    /// What the virtual GPU must know of it; `None` for a card that it cannot be.
    pub chip: Option<Chip>,
}

/// What a program learns about a card, as far as it chooses kernels and workspaces by it.
#[derive(Debug, Clone, PartialEq)]
pub struct Chip {
    /// The card's name as the driver reports it.
    pub reported: String,
    /// Compute capability, before and behind the point.
    pub capability: (i32, i32),
    /// Number of multiprocessors.
    pub multiprocessors: i32,
    /// L2 cache in MiB.
    pub l2_mib: u64,
    /// Memory bandwidth in GB/s.
    pub bandwidth_gbs: f64,
    /// Dense bf16 matrix products, in TFLOP/s.
    pub tflops: f64,
    /// Matrix products in fp32 without tensor cores, in TFLOP/s.
    pub single_tflops: f64,
    /// Where these figures come from.
    pub source: String,
}

/// A device that a plan is made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    /// The card, or the size that was asked for.
    pub name: String,
    /// Bytes that the program's allocator may hold there: what the driver reports, less the reserve.
    pub capacity_bytes: Bytes,
    /// Bytes of a card that are left to the CUDA context and to NCCL; 0 where a size was asked for.
    pub reserve_bytes: Bytes,
}

impl Target {
    /// A size, all of which the job may hold.
    pub fn of_size(bytes: Bytes) -> Self {
        Self { name: Size(bytes).to_string(), capacity_bytes: bytes, reserve_bytes: 0 }
    }

    /// The device in words, with the reserve that was taken off a card.
    pub fn describe(&self) -> String {
        match self.reserve_bytes {
            0 => self.name.clone(),
            reserve => {
                let (left, reserve) = (Size(self.capacity_bytes), Size(reserve));
                format!("{} ({left} for the job, after a reserve of {reserve})", self.name)
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    marketing_gb: u32,
    usable: String,
    source: String,
    reported: Option<String>,
    capability: Option<String>,
    multiprocessors: Option<i32>,
    l2_mib: Option<u64>,
    bandwidth_gbs: Option<f64>,
    tflops: Option<f64>,
    single_tflops: Option<f64>,
    chip_source: Option<String>,
}

impl Line {
    /// The chip, if the line has all of its columns.
    fn chip(&self) -> Option<Chip> {
        let (major, minor) = self.capability.as_ref()?.split_once('.')?;
        Some(Chip {
            reported: self.reported.clone()?,
            capability: (major.parse().ok()?, minor.parse().ok()?),
            multiprocessors: self.multiprocessors?,
            l2_mib: self.l2_mib?,
            bandwidth_gbs: self.bandwidth_gbs?,
            tflops: self.tflops?,
            single_tflops: self.single_tflops?,
            source: self.chip_source.clone()?,
        })
    }
}

impl Card {
    /// The cards that come with this program.
    pub fn built_in() -> Vec<Self> {
        Self::read(BUILT_IN.as_bytes()).expect("a test reads the catalogue that we ship")
    }

    /// Reads a catalogue: CSV with the columns `name`, `marketing_gb`, `usable` and `source`, and those of a [`Chip`]
    /// where it is known; `#` begins a comment.
    ///
    /// # Errors
    /// If a line is not understood.
    pub fn read(text: impl std::io::Read) -> Result<Vec<Self>, InputError> {
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text);
        let lines = reader.deserialize().map(|line| match line {
            Ok(line) => Self::from_line(line),
            Err(error) => Err(InputError::at(CATALOGUE, reader_error::table(&error))),
        });
        lines.collect()
    }

    /// The card of this name as people write it: `h100-80gb`, `A6000`, `NVIDIA GeForce RTX 3090`.
    ///
    /// # Errors
    /// If there is none, or several; the message says which there are.
    pub fn find<'a>(cards: &'a [Self], name: &str) -> Result<&'a Self, InputError> {
        let names: Vec<&str> = cards.iter().map(|card| card.name.as_str()).collect();
        let problem = match *named(&names, name) {
            [place] => return Ok(&cards[place]),
            [] => format!("there is no card {name:?}; there are: {}", names.join(", ")),
            ref several => {
                let known: Vec<&str> = several.iter().map(|&place| names[place]).collect();
                format!("card {name:?} may be one of several: {}", known.join(", "))
            }
        };
        Err(InputError(problem))
    }

    /// What a job may hold on this card, less a reserve.
    ///
    /// # Errors
    /// If the reserve leaves nothing.
    pub fn target(&self, reserve: Bytes) -> Result<Target, InputError> {
        let capacity_bytes = self.usable_bytes.checked_sub(reserve).filter(|&left| left > 0);
        let capacity_bytes = capacity_bytes.ok_or_else(|| {
            let (usable, reserve) = (Size(self.usable_bytes), Size(reserve));
            self.wrong(format_args!("a reserve of {reserve} leaves nothing of {usable}"))
        })?;
        Ok(Target { name: self.name.clone(), capacity_bytes, reserve_bytes: reserve })
    }

    fn from_line(line: Line) -> Result<Self, InputError> {
        let chip = line.chip();
        let Line { name, marketing_gb, usable, source, .. } = line;
        let card = Self { name, marketing_gb, usable_bytes: 0, source, chip };
        if line.reported.is_some() && card.chip.is_none() {
            return Err(card.wrong("a column behind `reported` is empty or no number"));
        }
        match parse_size(&usable) {
            Ok(usable_bytes @ 1..) => Ok(Self { usable_bytes, ..card }),
            Ok(0) => Err(card.wrong("a card without memory")),
            Err(error) => Err(card.wrong(error)),
        }
    }

    fn wrong(&self, problem: impl Display) -> InputError {
        InputError(format!("{CATALOGUE}: {}: {problem}", self.name))
    }
}

/// Places of the cards that a name can mean: the one that is called so, else those that a part of the name is of.
pub fn named(cards: &[&str], name: &str) -> Vec<usize> {
    let wanted = plain(name);
    let of = |is_it: &dyn Fn(&str) -> bool| -> Vec<usize> {
        (0..cards.len()).filter(|&place| is_it(cards[place])).collect()
    };
    let exact = of(&|card| plain(card) == wanted);
    if exact.is_empty() { of(&|card| parts(card).any(|part| part == wanted)) } else { exact }
}

/// A name without its maker, its series, blanks, hyphens and the unit of its size.
fn plain(name: &str) -> String {
    let name = name.to_lowercase().replace(['-', '_'], " ");
    let words =
        name.split(' ').filter(|word| !["nvidia", "amd", "geforce", "tesla"].contains(word));
    let name: String = words.collect();
    let size = name.strip_suffix("gb").or_else(|| name.strip_suffix('g'));
    let ends_in_size = |name: &&str| name.ends_with(|end: char| end.is_ascii_digit());
    size.filter(ends_in_size).map_or(name.clone(), str::to_owned)
}

/// Every run of words of a name: `RTX A6000` is `RTX`, `RTX A6000` and `A6000`.
fn parts(name: &str) -> impl Iterator<Item = String> {
    let words: Vec<&str> = name.split(' ').collect();
    let ends = (0..words.len()).flat_map(|from| (from + 1..=words.len()).map(move |to| (from, to)));
    ends.map(|(from, to)| plain(&words[from..to].join(" "))).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GIB;

    #[test]
    fn the_catalogue_has_every_size_below_its_marketing_one_and_with_a_source() {
        let cards = Card::built_in();
        for size in [16, 24, 32, 40, 48, 80, 94, 96, 128, 141, 180, 192, 288] {
            assert!(cards.iter().any(|card| card.marketing_gb == size), "{size} GB");
        }
        for card in &cards {
            let gib = u64::from(card.marketing_gb) * GIB;
            // Every card gives less than its name says, and none keeps a tenth to itself.
            assert!(card.usable_bytes < gib && card.usable_bytes > gib * 9 / 10, "{card:?}");
            assert!(card.source.len() > 10, "{card:?}");
            assert_eq!(cards.iter().filter(|other| other.name == card.name).count(), 1, "{card:?}");
        }
    }

    #[test]
    fn every_card_that_cuda_knows_has_a_chip() {
        let cards = Card::built_in();
        let without = cards.iter().filter(|card| card.chip.is_none());
        let without: Vec<&str> = without.map(|card| &*card.name).collect();
        assert_eq!(without, ["MI300X", "MI355X"]);
    }

    #[test]
    fn a_card_is_found_by_its_name_however_it_is_written() {
        let cards = Card::built_in();
        for name in ["H100 80GB", "h100-80gb", "H10080GB"] {
            assert_eq!(Card::find(&cards, name).unwrap().marketing_gb, 80);
        }
        for (name, card) in [
            ("3090", "RTX 3090"),
            ("NVIDIA GeForce RTX 3090", "RTX 3090"),
            ("a6000", "RTX A6000"),
            ("Tesla T4", "T4"),
            ("V100-32G", "V100 32GB"),
            ("v100_16gb", "V100 16GB"),
            ("nvidia-l4", "L4"),
            ("A10", "A10"),
            ("gb10", "GB10"),
        ] {
            assert_eq!(Card::find(&cards, name).unwrap().name, card, "{name}");
        }
        // A part of a word is another card: an L40 is no L40S, and an H20 no H200.
        for name in ["H900", "L40", "H20", "10", ""] {
            let error = Card::find(&cards, name).unwrap_err().to_string();
            assert!(error.contains("RTX 4090, RTX 5090"), "{name}: {error}");
        }
        let error = Card::find(&cards, "V100").unwrap_err().to_string();
        assert_eq!(error, "card \"V100\" may be one of several: V100 16GB, V100 32GB");
    }

    #[test]
    fn what_is_no_catalogue_is_refused_in_one_line() {
        for (text, words) in [
            ("name,usable\nA,1GiB\n", "marketing_gb"),
            ("name,marketing_gb,usable,source\nA,80,much,x\n", "A: \"much\" is not a size"),
            ("name,marketing_gb,usable,source\nA,80,0,x\n", "without memory"),
            ("name,marketing_gb,usable,source,reported\nA,80,1GiB,x,A\n", "A: a column behind"),
        ] {
            let error = Card::read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
        let card = &Card::built_in()[0];
        assert!(card.target(100 * GIB).unwrap_err().to_string().contains("leaves nothing"));
        assert_eq!(card.target(0).unwrap().capacity_bytes, card.usable_bytes);
    }
}
