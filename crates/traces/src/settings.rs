//! `allocator_settings`: what the snapshot says about the allocator's options.
//!
//! The dict has the values in force, but not all of them: the size of large segments, the rounding of unsplit blocks
//! and the memory fraction are only in the configuration text. So the text is read first, and the dict's values win.

use super::{Warning, WarningKind};
use gmlake_core::alloc_conf::{AllocConf, TorchVersion};

/// The settings as the file has them; `None` where it says nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RawSettings {
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    pub(super) text: Option<String>,
    /// Negative, or beyond 63 bits: no limit.
    pub(super) max_split_size: Option<i64>,
    pub(super) garbage_collection_threshold: Option<f64>,
    pub(super) expandable_segments: Option<bool>,
    /// `max_round_threshold` and `max_cached_size`; without a limit they are none, or beyond 63 bits.
    pub(super) pinned: [Option<u64>; 2],
    /// Power of two in MiB, and divisions.
    pub(super) roundup_power2_divisions: Vec<(u64, u64)>,
}

/// The names of the configuration text, in the order in which PyTorch looks for them.
pub(super) const TEXT_KEYS: [&str; 3] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

impl RawSettings {
    /// The settings, and a warning if the text is not understood. Nothing if the file has neither text nor values.
    pub(super) fn resolve(self, version: TorchVersion) -> (Option<AllocConf>, Option<Warning>) {
        if self == Self::default() {
            return (None, None);
        }
        let text = self.text.unwrap_or_default();
        let (mut conf, error) = AllocConf::parse_known(&text, version);
        let kind = WarningKind::Settings;
        let warning = error.map(|error| Warning { kind, count: 1, first: error.to_string() });
        if let Some(limit) = self.max_split_size {
            conf.max_split_size = u64::try_from(limit).ok();
        }
        if let Some(threshold) = self.garbage_collection_threshold {
            conf.garbage_collection_threshold = threshold;
        }
        if let Some(expandable) = self.expandable_segments {
            conf.expandable_segments = expandable;
        }
        let [max_rounded, max_cached] = self.pinned;
        conf.pinned.max_rounded = max_rounded.unwrap_or(conf.pinned.max_rounded);
        conf.pinned.max_cached = max_cached.unwrap_or(conf.pinned.max_cached);
        for (mib, divisions) in self.roundup_power2_divisions {
            let slot = mib.checked_ilog2().map_or(usize::MAX, |log2| log2 as usize);
            if let Some(entry) = conf.roundup_power2_divisions.get_mut(slot) {
                *entry = u32::try_from(divisions).unwrap_or(0);
            }
        }
        (Some(conf), warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_core::units::MIB;

    fn resolve(raw: RawSettings) -> (Option<AllocConf>, Option<Warning>) {
        raw.resolve(TorchVersion::V2_11)
    }

    #[test]
    fn the_dict_wins_over_the_text_and_the_text_fills_in() {
        let text = "large_segment_size_mb:64,expandable_segments:True,max_split_size_mb:128";
        let raw = RawSettings {
            text: Some(text.to_owned()),
            max_split_size: Some(-1),
            garbage_collection_threshold: Some(0.6),
            expandable_segments: Some(false),
            pinned: [Some(MIB), None],
            roundup_power2_divisions: vec![(1, 4), (32768, 8), (1 << 40, 2), (0, 2)],
        };
        let (conf, warning) = resolve(raw);
        let conf = conf.unwrap();
        assert_eq!((conf.large_segment_size, conf.max_split_size), (64 * MIB, None));
        assert_eq!((conf.pinned.max_rounded, conf.pinned.max_cached), (MIB, u64::MAX));
        assert!(!conf.expandable_segments && conf.garbage_collection_threshold == 0.6);
        assert_eq!(conf.roundup_power2_divisions[0], 4);
        assert_eq!(conf.roundup_power2_divisions[15], 8);
        assert_eq!(warning, None);
    }

    #[test]
    fn a_text_that_is_not_understood_is_a_warning() {
        let raw = RawSettings {
            text: Some("no_such:1".to_owned()),
            max_split_size: Some(5),
            ..RawSettings::default()
        };
        let (conf, warning) = resolve(raw);
        assert_eq!(conf.unwrap().max_split_size, Some(5));
        assert!(warning.unwrap().first.contains("no_such"));
        assert_eq!(resolve(RawSettings::default()), (None, None));
    }
}
