//! A verification in the shape in which it is exported.

use serde::Serialize;

use super::limits::range_in_words;
use super::verification::{Difference, Verification};
use crate::alloc_conf::TorchVersion;
use crate::trace::{Action, PoolId, Records};
use crate::units::{Bytes, Count};

/// What a verification found, for programs; the field names are the names in the JSON export.
#[derive(Debug, Clone, Serialize)]
pub struct VerificationSummary {
    /// The file, as given.
    pub file: String,
    /// Index of the device in it.
    pub device: u32,
    /// The PyTorch whose decisions were made again.
    pub torch_version: String,
    /// The versions of PyTorch that may have written the file, if its keys tell.
    pub written_by: Option<String>,
    /// Entries in the recording.
    pub entries: u64,
    /// Entries that were compared, by kind.
    pub compared: Vec<Compared>,
    /// Segments at the end that were compared.
    pub final_segments: u64,
    /// Blocks at the end that were compared.
    pub final_blocks: u64,
    /// How many differences there are; from 101 on, at least so many.
    pub differences: u64,
    /// The first of them.
    pub first_differences: Vec<Difference>,
    /// Blocks that were live before the recording began.
    pub start_blocks: u64,
    /// Of these, blocks whose size the recording leaves open.
    pub start_uncertain: u64,
    /// Of these again, blocks whose size followed from later entries; the others were freed undecided.
    pub start_decided: u64,
    /// Memory limit that was assumed.
    pub limit_bytes: Option<Bytes>,
    /// Bytes between which the limit lies, or else the device's memory, if the recording shows no more: from the
    /// first, below the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_range_bytes: Option<(Bytes, Bytes)>,
    /// Memory of the device, as far as refusals of the driver tell.
    pub capacity_bytes: Option<Bytes>,
    /// Segments that must have been private, although the recording does not say so.
    pub inferred_private_segments: u64,
    /// PyTorch's ids of the pools whose segments were handed out whole (`no_split`), as the decisions tell.
    pub no_split_pools: Vec<(u64, u64)>,
    /// Requests that a pool served to which they were not made (`use_on_oom`).
    pub served_elsewhere: u64,
    /// Times that the program emptied its cache, or released a pool.
    pub cache_releases: u64,
    /// Peak of reserved memory.
    pub reserved_peak_bytes: Bytes,
    /// Peak of active memory.
    pub active_peak_bytes: Bytes,
    /// Times that PyTorch gave everything back and tried again.
    pub alloc_retries: u64,
    /// Time that the replay took, in nanoseconds.
    pub elapsed_ns: u64,
}

/// How many entries of one kind were compared.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// PyTorch's name of the kind.
    pub action: &'static str,
    /// How many there were.
    pub count: u64,
}

impl VerificationSummary {
    /// The summary of what was found in `records` of `file`.
    pub fn new(file: &str, records: &Records, found: &Verification) -> Self {
        let compared = |action: Action| Compared {
            action: action.name(),
            count: found.compared[action as usize],
        };
        let id = |pool: &PoolId| records.pools.get(usize::from(pool.0)).copied().unwrap_or((0, 0));
        Self {
            file: file.to_owned(),
            device: records.device,
            torch_version: records.version().to_string(),
            written_by: records.written_by.map(|writer| writer.to_string()),
            entries: records.entries.len() as u64,
            compared: Action::ALL.into_iter().map(compared).collect(),
            final_segments: found.segments,
            final_blocks: found.blocks,
            differences: found.difference_count,
            first_differences: found.differences.clone(),
            start_blocks: found.labels.start.len() as u64,
            start_uncertain: found.start.uncertain as u64,
            start_decided: found.start.decided as u64,
            limit_bytes: found.limit,
            memory_range_bytes: found.memory_range.as_ref().map(|range| (range.start, range.end)),
            capacity_bytes: found.capacity,
            inferred_private_segments: found.inferred_private as u64,
            no_split_pools: found.labels.no_split.iter().map(id).collect(),
            served_elsewhere: found.served_elsewhere as u64,
            cache_releases: found.labels.trims.len() as u64,
            reserved_peak_bytes: found.peak.reserved,
            active_peak_bytes: found.peak.active,
            alloc_retries: found.retries,
            elapsed_ns: found.elapsed_ns,
        }
    }

    /// What had to be assumed or stayed open, in words.
    pub fn assumptions(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.torch_version != TorchVersion::default().to_string() {
            words.push(match &self.written_by {
                Some(writer) => format!("PyTorch {}; its keys: {writer}", self.torch_version),
                None => format!("PyTorch {}", self.torch_version),
            });
        }
        if self.start_blocks > 0 {
            let undecided = self.start_uncertain - self.start_decided;
            let were = if self.start_blocks == 1 { "was" } else { "were" };
            words.push(format!(
                "recording began late: {} {were} live, {undecided} of them of uncertain size",
                Count(self.start_blocks, "block")
            ));
        }
        if let Some(limit) = self.limit_bytes {
            words.push(match self.memory_range_bytes {
                Some((from, to)) => format!(
                    "memory limit {}, replayed with {limit} bytes",
                    range_in_words(&(from..to))
                ),
                None => format!("memory limit of {limit} bytes"),
            });
        }
        if let Some(capacity) = self.capacity_bytes {
            words.push(format!("the driver refused more than {capacity} bytes"));
        }
        if self.inferred_private_segments > 0 {
            words.push(format!(
                "{} segments that are gone at the end were of a private pool",
                self.inferred_private_segments
            ));
        }
        if !self.no_split_pools.is_empty() {
            let pools =
                self.no_split_pools.iter().map(|(graph, user)| format!("({graph}, {user})"));
            let pools = pools.collect::<Vec<_>>().join(", ");
            words.push(format!("MemPools whose segments are not split: {pools}"));
        }
        if self.served_elsewhere > 0 {
            let count = self.served_elsewhere;
            words.push(format!("{count} requests were served by a MemPool with use_on_oom"));
        }
        words
    }
}
