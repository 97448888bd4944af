//! Statistics of one GPU.

use std::collections::BTreeMap;

use serde::Serialize;

use super::debug::Findings;
use super::sums::Tallied;
use gmlake_allocators::allocator::Usage;
use gmlake_core::units::Bytes;

/// What PyTorch's users know as `memory_stats`, of one GPU, and more.
#[derive(Debug, Clone, Serialize)]
pub struct Stats {
    /// Index of the GPU.
    pub device: u32,
    /// Name of the allocator.
    pub allocator: &'static str,
    /// Bytes now.
    pub current: Usage,
    /// The most bytes at any time since the last reset.
    pub peak: Usage,
    /// Bytes of GPU memory that the driver calls have obtained and not given back.
    pub held_bytes: Bytes,
    /// Blocks in the program's hands.
    pub live_blocks: usize,
    /// Frees that wait for a stream.
    pub pending_blocks: usize,
    /// Counts.
    #[serde(flatten)]
    pub tallied: Tallied,
    /// Times that everything was given back to try again.
    pub num_alloc_retries: u64,
    /// Driver calls by name.
    pub driver_calls: BTreeMap<&'static str, u64>,
    /// Nanoseconds in them by name.
    pub driver_ns: BTreeMap<&'static str, u64>,
    /// What the allocator counts of its own doings, hits per state among them.
    pub counters: BTreeMap<&'static str, u64>,
    /// What the poison found out; nothing without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) poison: Option<Findings>,
}

impl super::GpuAllocator {
    /// Everything that is counted.
    pub fn stats(&self) -> Stats {
        let times = &self.device.device.device.watch.1.times;
        Stats {
            device: self.gpu.index,
            allocator: self.conf.spec.name,
            current: self.usage(),
            peak: self.peak,
            held_bytes: self.held(),
            live_blocks: self.live.len(),
            pending_blocks: self.pending.len(),
            tallied: self.tallied,
            num_alloc_retries: self.main.retries(),
            driver_calls: times.rows().map(|(call, t)| (call.name(), t.count)).collect(),
            driver_ns: times.rows().map(|(call, t)| (call.name(), t.total_ns)).collect(),
            counters: self.main.counters().into_iter().collect(),
            poison: self.debug.as_ref().map(|debug| debug.findings.clone()),
        }
    }
}
