//! Building costs: a block out of chunks, here and in the paper.

use crate::units::{Bytes, GIB, MIB};

/// A row of the paper's Table 1: what one call costs in all, in units of one `cuMemAlloc` of the same size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Table1Row {
    /// The call.
    pub call: &'static str,
    /// In chunks of each of [`TABLE_1_CHUNKS`].
    pub ratios: [f64; 3],
}

/// Sizes of the chunks in the paper's Table 1, whose block is of 2 GiB.
pub const TABLE_1_CHUNKS: [Bytes; 3] = [2 * MIB, 128 * MIB, GIB];

/// Table 1 of the paper: 2 GiB on an A100 under CUDA 11.4.
pub const PAPER_TABLE_1: [Table1Row; 5] = [
    Table1Row { call: "address_reserve", ratios: [0.003, 0.003, 0.002] },
    Table1Row { call: "create", ratios: [18.1, 0.89, 0.79] },
    Table1Row { call: "map", ratios: [0.70, 0.01, 0.002] },
    Table1Row { call: "set_access", ratios: [96.8, 8.2, 0.7] },
    Table1Row { call: "total", ratios: [115.4, 9.1, 1.5] },
];

/// What the paper's text says of its latency figure: a block in chunks of 2 MiB costs over 100 `cuMemAlloc`s.
pub const PAPER_LEAST_ALLOCS: u64 = 100;

/// Times to build blocks, as one GPU was measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Building {
    /// The GPU and its driver.
    pub device: String,
    /// How often everything was measured; the times are medians.
    pub rounds: u64,
    /// Block by block, from the smallest; those that the device had no room for are not there.
    pub blocks: Vec<BlockTimes>,
    /// Table 1 as it is here, in the order of [`PAPER_TABLE_1`]; `None` if 2 GiB were not measured.
    pub table_1: Option<Vec<Table1Row>>,
}

/// How long it takes to build one block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockTimes {
    /// Bytes of the block.
    pub size: Bytes,
    /// Nanoseconds of one `cuMemAlloc`.
    pub native_ns: u64,
    /// Bytes of the chunks, ascending, and nanoseconds to reserve, create, map and set access.
    pub chunks: Vec<(Bytes, u64)>,
}

impl BlockTimes {
    /// How many `cuMemAlloc`s the block costs in the smallest chunks that were measured; `None` if there are none.
    pub fn most_allocs(&self) -> Option<f64> {
        let (_, ns) = self.chunks.first().filter(|_| self.native_ns > 0)?;
        Some(*ns as f64 / self.native_ns as f64)
    }
}
