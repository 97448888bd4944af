//! What a process takes of a card besides PyTorch's allocator: the context, kernels, libraries, graphs, communicators.
//!
//! ```text
//!   uses: what the process did, counted          beside.csv: MiB for each, as measured
//!   ┌──────────────────────────┐                 ┌───────────────────────┐
//!   │ context 1                │                 │ context     518       │
//!   │ cublasCreate_v2 2        │ ──────  ×  ──── │ cublasCreate_v2  66   │ ──▶ 650 MiB, and an interval
//!   └──────────────────────────┘                 └───────────────────────┘
//! ```
//!
//! On GPUs the parts add up: a process that used everything took what its parts took alone, to 4 MiB. The virtual GPU
//! counts the uses of a job; for a recording, which does not show them, [`Uses::usual`] has those of a training job.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::cards::{self, Card, Target};
use crate::input_error::InputError;
use crate::units::{Bytes, MIB, Size};

const BUILT_IN: &str = include_str!("beside.csv");

/// In the table: every card that has no line of its own.
const ANY: &str = "*";

/// Ranks of one machine with which a rank exchanges data by itself: beyond them NCCL shares its channels.
const NEAR_PEERS: u64 = 7;

/// The pools from which the driver serves CUDA graphs, 2 MiB at a time: bytes for each graph, bytes for each node,
/// and bytes that the first graph finds free. Of the 247 chunks that 2,650 graphs of vLLM took on an H100, 159 came
/// with the very graph that the first five pools say. The other 88 are the nodes' parameters, whose bytes are a mean
/// (reports/serving.md).
const GRAPH_POOLS: [(u64, u64, u64); 6] = [
    (64 << 10, 0, 8 * (64 << 10)),
    (16 << 10, 0, 35 * (16 << 10)),
    (16 << 10, 0, 78 * (16 << 10)),
    (16 << 10, 0, 121 * (16 << 10)),
    (512, 512, GRAPH_CHUNK),
    (0, 2400, 1900 << 10),
];

const GRAPH_CHUNK: u64 = 2 << 20;

/// What a process did with a GPU, by the names in `beside.csv`, with how often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uses(BTreeMap<String, u64>);

impl Uses {
    /// Of these counts; zeros are no uses.
    pub fn of<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let counts = counts.into_iter().filter(|&(_, count)| count > 0);
        Self(counts.map(|(name, count)| (name.to_owned(), count)).collect())
    }

    /// Counts more of a use.
    pub fn add(&mut self, name: &str, count: u64) {
        if let Some(known) = self.0.get_mut(name) {
            *known += count;
        } else if count > 0 {
            self.0.insert(name.to_owned(), count);
        }
    }

    /// Counts a use whose memory is used again, so that the most there were at a time count.
    pub fn raise(&mut self, name: &str, live: u64) {
        let more = live.saturating_sub(self.count(name));
        self.add(name, more);
    }

    fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Chunks of [`GRAPH_POOLS`] that the driver takes for `graph` graphs of `graph_node` nodes in all.
    fn graph_chunks(&self) -> u64 {
        let [graphs, nodes] = ["graph", "graph_node"].map(|name| self.count(name));
        let more = |&(graph, node, free): &(u64, u64, u64)| {
            (graphs * graph + nodes * node).saturating_sub(free).div_ceil(GRAPH_CHUNK)
        };
        GRAPH_POOLS.iter().map(more).sum()
    }

    /// Counts a use that takes memory only the first time; true if this was it.
    pub fn add_once(&mut self, name: &str) -> bool {
        let is_first = !self.0.contains_key(name);
        if is_first {
            self.add(name, 1);
        }
        is_first
    }

    /// Those of a training job in PyTorch: products in forward and backward pass, cuDNN, a second stream, and with
    /// several ranks one communicator.
    pub fn usual(ranks: usize) -> Self {
        let several = u64::from(ranks > 1);
        Self::of([
            ("context", 1),
            ("driver", 1),
            ("gpu", (ranks as u64).clamp(1, NEAR_PEERS + 1) - 1),
            ("kernel", 1),
            ("stream", 1),
            ("cublasCreate_v2", 2),
            ("cudnnCreate", 1),
            ("nccl", several),
            ("communicator", several),
            ("ring", several),
        ])
    }
}

/// A part of the memory besides PyTorch, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The name of the use.
    pub r#use: String,
    /// How often it was made.
    pub count: u64,
    /// The estimate.
    pub bytes: Bytes,
}

/// The memory besides PyTorch, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Beside {
    /// The estimate.
    pub bytes: Bytes,
    /// The least it may be.
    pub low_bytes: Bytes,
    /// The most it may be.
    pub high_bytes: Bytes,
    /// Whether the card's context was measured.
    pub is_measured: bool,
    /// What it is the sum of, by the names of the uses.
    pub parts: Vec<Part>,
}

impl Beside {
    /// The estimate with its interval, in words.
    pub fn describe(&self) -> String {
        let [bytes, low, high] = [self.bytes, self.low_bytes, self.high_bytes].map(Size);
        let source = if self.is_measured { "" } else { "; not measured on this card" };
        format!("{bytes} ({low} to {high}{source})")
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    r#use: String,
    cards: String,
    mib: f64,
    low: f64,
    high: f64,
    #[allow(dead_code, reason = "for those who read the table")]
    source: String,
}

impl Line {
    /// Whether this line was measured on the card.
    fn names(&self, card: &str) -> bool {
        let names: Vec<&str> = self.cards.split(';').collect();
        self.cards != ANY && cards::named(&names, card).len() == 1
    }
}

fn table() -> &'static [Line] {
    static TABLE: OnceLock<Vec<Line>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut reader =
            csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(BUILT_IN.as_bytes());
        let lines = reader.deserialize().map(|line| line.expect("a test reads what we ship"));
        lines.collect()
    })
}

/// Uses that a formula counts, and no line of the table.
const GRAPHS: [&str; 2] = ["graph", "graph_node"];

/// The uses that take memory, as far as the table knows.
pub fn counted() -> Vec<&'static str> {
    let mut names: Vec<&str> = table().iter().map(|line| line.r#use.as_str()).collect();
    names.extend(GRAPHS);
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether a use of this name takes memory, as far as the table knows.
pub fn is_counted(name: &str) -> bool {
    GRAPHS.contains(&name) || table().iter().any(|line| line.r#use == name)
}

/// What a process with these uses takes of the card besides PyTorch's allocator. A use that is not in the table counts
/// nothing.
pub fn beside_pytorch(card: &str, uses: &Uses) -> Beside {
    let mut found = Beside { is_measured: true, ..Beside::default() };
    let mut sums = [0.0; 3];
    let chunks = ("graph_chunk", uses.graph_chunks());
    let counts = uses.0.iter().map(|(name, &count)| (name.as_str(), count)).chain([chunks]);
    for (name, count) in counts.filter(|&(_, count)| count > 0) {
        let of_use = || table().iter().filter(|line| line.r#use == name);
        let elsewhere = || of_use().find(|line| line.cards == ANY);
        let Some(line) = of_use().find(|line| line.names(card)).or_else(elsewhere) else {
            continue;
        };
        found.is_measured &= name != "context" || line.cards != ANY;
        for (sum, each) in sums.iter_mut().zip([line.mib, line.low, line.high]) {
            *sum += each * count as f64;
        }
        let bytes = of_mib(line.mib * count as f64);
        found.parts.push(Part { r#use: name.to_owned(), count, bytes });
    }
    let [bytes, low_bytes, high_bytes] = sums.map(of_mib);
    Beside { bytes, low_bytes, high_bytes, ..found }
}

/// A card less the most that a job with these uses is expected to take besides PyTorch's allocator.
///
/// # Errors
/// If that leaves nothing.
pub fn target(card: &Card, uses: &Uses) -> Result<Target, InputError> {
    card.target(beside_pytorch(&card.name, uses).high_bytes)
}

fn of_mib(mib: f64) -> Bytes {
    (mib * MIB as f64).round() as Bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_has_its_estimate_inside_its_interval_and_a_source() {
        let lines = table();
        assert!(lines.len() >= 15);
        for line in lines {
            assert!(line.low <= line.mib && line.mib <= line.high, "{line:?}");
            assert!(line.source.len() > 20, "{line:?}");
        }
    }

    #[test]
    fn parts_add_up_to_what_an_h100_took_for_a_training_step() {
        let uses = Uses::of([("context", 1), ("kernel", 1), ("cublasCreate_v2", 2), ("stream", 0)]);
        let beside = beside_pytorch("H100 80GB", &uses);
        // examples/card/measure.py, group training: 742 MiB.
        assert_eq!(beside.bytes, 742 * MIB);
        assert!(beside.low_bytes < beside.bytes && beside.bytes < beside.high_bytes);
        assert_eq!(beside.parts.iter().map(|part| part.bytes).sum::<Bytes>(), beside.bytes);
        assert!(beside.is_measured);
    }

    #[test]
    fn graphs_take_chunks_where_a_server_took_them() {
        let chunks =
            |graphs, nodes| Uses::of([("graph", graphs), ("graph_node", nodes)]).graph_chunks();
        // 15 nodes a graph; on the H100 the 9th, 36th, 41st, 66th, 73rd and 79th graph took a chunk each.
        let takes = |graph| chunks(graph, 15 * graph) - chunks(graph - 1, 15 * (graph - 1));
        assert_eq!([9, 36, 41, 73, 79].map(takes), [1; 5]);
        assert_eq!(chunks(98, 1_466), 6);
        assert_eq!(chunks(8, 8), 0);
        // The group graphs of examples/card/measure.py: 112, 110 and 108 MiB for 1,000 more graphs of one node.
        let thousand = 2 * (chunks(2_000, 2_000) - chunks(1_000, 1_000));
        assert!((108..=114).contains(&thousand), "{thousand} MiB");
        let mut uses = Uses::of([("graph", 3)]);
        uses.raise("graph", 2);
        uses.raise("graph", 5);
        assert_eq!(uses, Uses::of([("graph", 5)]));
    }

    #[test]
    fn a_card_that_was_not_measured_says_so_and_has_a_wider_interval() {
        let [ours, other] = ["h200", "RTX 4090"].map(|card| beside_pytorch(card, &Uses::usual(1)));
        assert!(ours.is_measured && !other.is_measured);
        assert!(other.high_bytes - other.low_bytes > ours.high_bytes - ours.low_bytes + 300 * MIB);
        assert!(other.describe().contains("not measured on this card"), "{}", other.describe());
    }

    #[test]
    fn several_ranks_have_a_communicator_and_what_is_unknown_counts_nothing() {
        let [alone, two] = [1, 2].map(|ranks| beside_pytorch("H200", &Uses::usual(ranks)).bytes);
        assert_eq!(two - alone, (14 + 288 + 198 + 288) * MIB);
        assert_eq!(beside_pytorch("H200", &Uses::of([("nothing of ours", 3)])).bytes, 0);
    }
}
