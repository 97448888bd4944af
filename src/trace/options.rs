//! Options of reading a trace: what to keep, what to refuse.

use crate::alloc_conf::TorchVersion;
use crate::units::{Bytes, GIB};

/// How to read a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// Keep the call stacks; otherwise they are skipped.
    pub stacks: bool,
    /// A file whose content is larger than this, after decompression, is refused.
    pub max_bytes: Bytes,
    /// The version of PyTorch whose rules the allocator's configuration text follows.
    pub torch_version: TorchVersion,
}

impl Default for LoadOptions {
    /// No stacks, at most 4 GiB (a pickle of some 50 million entries), and the newest version that we know.
    fn default() -> Self {
        Self { stacks: false, max_bytes: 4 * GIB, torch_version: TorchVersion::default() }
    }
}
