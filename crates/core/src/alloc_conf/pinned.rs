//! Options of PyTorch's allocator for pinned memory of the host. They change nothing on a GPU.

use super::values::{boolean, whole};
use super::{AllocConf, split_pairs};
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

impl AllocConf {
    /// Its options for pinned memory.
    #[must_use]
    pub fn pinned(&self) -> PinnedConf {
        let compact: String = self.text.chars().filter(|c| !c.is_whitespace()).collect();
        let mut pinned = PinnedConf::default();
        for (key, value) in split_pairs(&compact).unwrap_or_default() {
            let size = || whole(key, value).map(|mib| mib.saturating_mul(MIB)).ok();
            match key {
                _ if !self.without_effect.iter().any(|known| known == key) => {}
                "pinned_max_round_threshold_mb" => {
                    pinned.max_rounded = size().unwrap_or(Bytes::MAX)
                }
                "pinned_max_cached_size_mb" => pinned.max_cached = size().unwrap_or(Bytes::MAX),
                "pinned_reserve_segment_size_mb" => pinned.reserve = size().unwrap_or(0),
                "pinned_use_background_threads" => {
                    pinned.in_background = boolean(key, value).unwrap_or(false);
                }
                _ => {}
            }
        }
        pinned
    }
}
