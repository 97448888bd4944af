//! Options of PyTorch's allocator for pinned memory of the host. They change nothing on a GPU.

use super::values::{boolean, whole};
use crate::units::{Bytes, MIB};

/// How PyTorch pins memory of the host. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedConf {
    /// `pinned_max_round_threshold_mb` (2.13 and later): larger requests are not rounded to a power of two.
    pub max_rounded: Bytes,
    /// `pinned_max_cached_size_mb` (2.13 and later): larger blocks are not kept, and larger requests not rounded.
    pub max_cached: Bytes,
    /// `pinned_reserve_segment_size_mb` (2.10 and later): pinned at once, for the first requests; 0 is off.
    pub reserve: Bytes,
    /// `pinned_use_background_threads`: a thread finds out which blocks the GPU no longer uses.
    pub in_background: bool,
}

impl Default for PinnedConf {
    fn default() -> Self {
        let (max_rounded, max_cached) = (Bytes::MAX, Bytes::MAX);
        Self { max_rounded, max_cached, reserve: 0, in_background: false }
    }
}

impl PinnedConf {
    /// Takes an option, if it is one of these.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let size = || whole(key, value).map(|mib| mib.saturating_mul(MIB));
        match key {
            "pinned_max_round_threshold_mb" => self.max_rounded = size()?,
            "pinned_max_cached_size_mb" => self.max_cached = size()?,
            "pinned_reserve_segment_size_mb" => self.reserve = size()?,
            "pinned_use_background_threads" => self.in_background = boolean(key, value)?,
            _ => {}
        }
        Ok(())
    }
}
