//! Counts of what PyTorch asked for.

use serde::Serialize;

/// What is counted as it happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tallied {
    /// Requests served.
    pub mallocs: u64,
    /// Frees asked for.
    pub frees: u64,
    /// Bytes asked for, in all.
    pub requested_bytes_total: u64,
    /// Bytes freed, in all.
    pub freed_bytes_total: u64,
    /// Requests for which there was no memory.
    pub num_ooms: u64,
    /// Calls of `record_stream` that lent a block to another stream.
    pub recorded_uses: u64,
    /// Frees that had to wait for other streams.
    pub deferred_frees: u64,
    /// Frees of addresses that were not handed out.
    pub unknown_frees: u64,
    /// Pools of CUDA graphs that were begun.
    pub graph_pools: u64,
}
