//! Pinned memory of the host: what a job needed, what PyTorch pinned for it, and what it would pin with other settings.
//!
//! ```text
//!   host_traces of a snapshot ──▶ Records ──┬──▶ compare: each setting's model replays the requests
//!   or the requests in a CSV                └──▶ verify:  the model makes PyTorch's decisions again
//! ```
//!
//! A snapshot has the sizes of blocks, which are rounded, and not what was requested. So what was needed lies between
//! two bounds, unless the settings of the recording round nothing.

mod compare;
mod coverage;
mod show;
mod verify;

use std::path::Path;

use crate::alloc_conf::{PinnedConf, TorchVersion};
use crate::remote;
use crate::trace::{
    Action, Entry, LoadOptions, PoolId, RECORD_HOST, Records, TraceError, choose_device, load,
};
use crate::units::Bytes;

pub use compare::{PinnedComparison, PinnedRow};
pub use show::{comparisons, tunings, verifications};
pub use verify::PinnedVerification;

/// More bytes than this in all entries together are a damaged file.
const MOST: Bytes = 1 << 60;

/// Why a file says nothing of pinned memory.
#[derive(Debug, thiserror::Error)]
pub enum PinnedError {
    /// It cannot be read or understood.
    #[error(transparent)]
    Read(#[from] TraceError),
    /// It has no entries of pinned memory.
    #[error("{0}: no pinned memory: {RECORD_HOST}")]
    Nothing(String),
    /// It was cut off before that.
    #[error("{0}: no pinned memory: {1}; copy the file again, or wait for the dump to finish")]
    CutOff(String, String),
    /// It has the requests alone.
    #[error("{0}: has requests, but no decisions of PyTorch: {RECORD_HOST}")]
    NoDecisions(String),
    /// It is damaged.
    #[error("{0}: requests of {1} bytes in all; expected at most {MOST}")]
    TooLarge(String, Bytes),
}

/// What a file says of pinned memory.
#[derive(Debug)]
pub struct PinnedRecording {
    file: String,
    records: Records,
    version: TorchVersion,
    conf: PinnedConf,
    /// Whether PyTorch wrote it, and sizes are those of blocks.
    has_blocks: bool,
}

impl PinnedRecording {
    /// Opens a snapshot with pinned memory, or a file of requests in any other format.
    ///
    /// # Errors
    /// If the file cannot be read or understood, or says nothing of pinned memory.
    pub fn open(path: &Path, options: &LoadOptions) -> Result<Self, PinnedError> {
        let options = LoadOptions { host: true, ..options.clone() };
        let mut all = load(path, &options)?;
        let file = remote::shown(path);
        let cut_off = all.iter().find_map(|records| records.cut_off.clone());
        all.retain(|records| !records.entries.is_empty());
        if all.is_empty() {
            return Err(match cut_off {
                Some(what) => PinnedError::CutOff(file, what),
                None => PinnedError::Nothing(file),
            });
        }
        let records = choose_device(all, None, path)?;
        let sizes = records.entries.iter().map(|entry| entry.size);
        let total = sizes.fold(0, Bytes::saturating_add);
        if total > MOST {
            return Err(PinnedError::TooLarge(file, total));
        }
        let is_block =
            |entry: &Entry| matches!(entry.action, Action::SegmentAlloc | Action::SegmentFree);
        let has_blocks = records.entries.iter().any(is_block);
        let version = options.torch_version.unwrap_or_else(|| match records.written_by {
            Some(writer) => writer.taken(),
            None => TorchVersion::NEWEST,
        });
        let conf = records.settings.as_ref().map_or_else(PinnedConf::default, |conf| conf.pinned);
        Ok(Self { file, records, version, conf, has_blocks })
    }

    /// Whether the allocator of the recording rounded requests of blocks that are as large as this.
    fn rounds(&self, size: Bytes) -> bool {
        self.has_blocks && size <= self.conf.max_rounded.min(self.conf.max_cached)
    }

    /// Whether the program itself pinned this block: it has a size that PyTorch gives to none.
    fn is_foreign(&self, entry: &Entry) -> bool {
        self.rounds(entry.size) && !entry.size.is_power_of_two()
    }

    /// The entries of PyTorch's allocator.
    fn own(&self) -> impl Iterator<Item = &Entry> {
        self.records.entries.iter().filter(|entry| entry.size > 0 && !self.is_foreign(entry))
    }

    /// The pool of an entry: graphs have their own in PyTorch.
    fn pool(&self, entry: &Entry) -> PoolId {
        if self.has_blocks { entry.pool } else { PoolId(0) }
    }

    /// Whether the program gave this block back, if it is given back here, and not a limit of the allocator.
    fn is_emptied(&self, entry: &Entry) -> bool {
        entry.size <= self.conf.max_cached
    }
}
