//! Options of reading a trace: what to keep, what to refuse.

use std::num::NonZeroUsize;

use gmlake_core::alloc_conf::TorchVersion;
use gmlake_core::units::{Bytes, GIB};

/// What a file may hold unless something else is asked for: a pickle of some 800 million entries.
pub const MAX_INPUT: Bytes = 64 * GIB;

/// How to read a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// Keep the call stacks; otherwise they are skipped, unless memory ran out in the recording.
    pub stacks: bool,
    /// Keep them also where memory was given back: they tell whether the program emptied the cache.
    pub stacks_of_flushes: bool,
    /// A file whose content is larger than this, after decompression, is refused. Compressed files and pipes may also
    /// be no more than half of the machine's memory.
    pub max_bytes: Bytes,
    /// The version of PyTorch whose rules the allocator's configuration text follows; `None`: the one that wrote the
    /// file, as far as its keys tell.
    pub torch_version: Option<TorchVersion>,
    /// Which snapshot of a file that holds several, from 1 on; `None`: the last of dumps one behind the other, and none
    /// of a list or a dict.
    pub snapshot: Option<NonZeroUsize>,
    /// The device that is meant; `None`: the only one with entries. Every device is read; see
    /// [`choose_device`](super::choose_device).
    pub device: Option<u32>,
    /// Read what a snapshot says of pinned host memory, as device 0, in place of GPU memory.
    pub host: bool,
}

impl Default for LoadOptions {
    /// No stacks, at most [`MAX_INPUT`], and the version that the file tells.
    fn default() -> Self {
        Self {
            stacks: false,
            stacks_of_flushes: false,
            max_bytes: MAX_INPUT,
            torch_version: None,
            snapshot: None,
            device: None,
            host: false,
        }
    }
}
