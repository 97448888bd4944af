//! Building costs: a block out of chunks, here and in the paper, whose Table 1 and latency figure are made again out of
//! the samples.

use super::calibrate::{Calibration, Sample};
use crate::device::Call;
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

/// Sizes of the blocks in the paper's latency figure.
pub const LATENCY_TOTALS: [Bytes; 3] = [512 * MIB, GIB, 2 * GIB];

/// Sizes of the chunks in the paper's latency figure.
pub fn latency_chunks() -> Vec<Bytes> {
    (1..=10).map(|power| MIB << power).collect()
}

/// The same table here; `None` if 2 GiB were not measured.
pub fn table_1(samples: &[Sample]) -> Option<Vec<Table1Row>> {
    let unit = native_latency(samples, 2 * GIB)? as f64;
    let mut rows = Vec::new();
    let mut total = [0.0; 3];
    for call in [Call::AddressReserve, Call::Create, Call::Map, Call::SetAccess] {
        let mut ratios = [0.0; 3];
        for (place, chunk) in TABLE_1_CHUNKS.into_iter().enumerate() {
            ratios[place] = part(samples, call, 2 * GIB, chunk)? as f64 / unit;
            total[place] += ratios[place];
        }
        rows.push(Table1Row { call: call.name(), ratios });
    }
    rows.push(Table1Row { call: "total", ratios: total });
    Some(rows)
}

/// Both, as a picture needs them.
pub fn building(found: &Calibration) -> Building {
    let samples = &found.samples;
    let block = |size: Bytes| {
        let native_ns = native_latency(samples, size)?;
        let of = |chunk| Some((chunk, latency(samples, size, chunk)?));
        Some(BlockTimes {
            size,
            native_ns,
            chunks: latency_chunks().into_iter().filter_map(of).collect(),
        })
    };
    Building {
        device: found.profile.device.clone(),
        rounds: found.rounds,
        blocks: LATENCY_TOTALS.into_iter().filter_map(block).collect(),
        table_1: table_1(samples),
    }
}

/// Nanoseconds that it takes to build a block of `size` out of chunks of `chunk`; `None` if that was not measured.
pub fn latency(samples: &[Sample], size: Bytes, chunk: Bytes) -> Option<u64> {
    let calls = [Call::AddressReserve, Call::Create, Call::Map, Call::SetAccess];
    calls.into_iter().map(|call| part(samples, call, size, chunk)).sum()
}

/// Nanoseconds of one `cuMemAlloc`; `None` if that was not measured.
pub fn native_latency(samples: &[Sample], size: Bytes) -> Option<u64> {
    part(samples, Call::MemAlloc, size, size)
}

/// One call's share in building a block. `cuMemCreate` is measured chunk by chunk, the others over the block.
fn part(samples: &[Sample], call: Call, size: Bytes, chunk: Bytes) -> Option<u64> {
    let measured = if call == Call::Create { chunk } else { size };
    let times = if call == Call::Create { size / chunk } else { 1 };
    let wanted = |sample: &&Sample| {
        let is_call = sample.call == call.name() && !sample.busy;
        is_call && sample.size == measured && sample.chunk == chunk
    };
    samples.iter().find(wanted).map(|sample| sample.p50_ns * times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(call: Call, size: Bytes, chunk: Bytes, p50_ns: u64) -> Sample {
        let (call, handles) = (call.name(), 1);
        let (p10_ns, p90_ns) = (p50_ns, p50_ns);
        Sample { call, handles, size, chunk, busy: false, count: 1, p10_ns, p50_ns, p90_ns }
    }

    #[test]
    fn the_paper_adds_up() {
        for place in 0..3 {
            let sum: f64 = PAPER_TABLE_1[..4].iter().map(|row| row.ratios[place]).sum();
            assert!((sum / PAPER_TABLE_1[4].ratios[place] - 1.0).abs() < 0.02, "{sum}");
        }
    }

    #[test]
    fn the_table_is_normalised_by_one_malloc() {
        let mut samples = vec![sample(Call::MemAlloc, 2 * GIB, 2 * GIB, 100)];
        for chunk in TABLE_1_CHUNKS {
            samples.push(sample(Call::Create, chunk, chunk, 5));
            for call in [Call::AddressReserve, Call::Map, Call::SetAccess] {
                samples.push(sample(call, 2 * GIB, chunk, 10));
            }
        }
        let rows = table_1(&samples).unwrap();
        assert_eq!(rows[1].ratios, [51.2, 0.8, 0.1]);
        assert!((rows[4].ratios[0] - 51.5).abs() < 1e-9);
        assert_eq!(latency(&samples, 2 * GIB, GIB), Some(40));
        assert_eq!(latency(&samples, GIB, GIB), None);
        assert_eq!(table_1(&samples[1..]), None);
    }
}
