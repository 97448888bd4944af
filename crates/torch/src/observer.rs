//! Observers of what happens: PyTorch's own history, where it asks us in full.

use gmlake_core::program::Action;
use gmlake_core::units::Bytes;

/// Something happened on a GPU. For [`Action::Oom`], `at` is how many bytes were free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Index of the GPU.
    pub device: u32,
    /// What.
    pub action: Action,
    /// Where it begins.
    pub at: u64,
    /// Bytes asked for, or of the segment.
    pub size: Bytes,
    /// Handle of the stream.
    pub stream: u64,
}

/// Called while the GPU's lock is held, in the order in which things happen: must not ask for memory.
pub type Observer = fn(&Event);
