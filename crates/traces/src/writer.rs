//! The writer: which versions of PyTorch may have written a snapshot, as its keys say.
//!
//! Versions added keys, and none was taken away. But a file that another program made, or changed, has fewer; so only
//! one whose settings have every key of PyTorch's tells anything. That is so from 2.3 on.

use gmlake_core::alloc_conf::TorchVersion;

/// Keys of `allocator_settings` in every version that has it.
const SETTINGS: [&str; 8] = [
    "PYTORCH_CUDA_ALLOC_CONF",
    "expandable_segments",
    "garbage_collection_threshold",
    "max_split_size",
    "pinned_num_register_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "roundup_power2_divisions",
];

/// A key that later versions added to the settings.
const STREAM_REUSE: &str = "graph_capture_record_stream_reuse";
/// Another one, of pinned memory.
const PINNED: &str = "max_round_threshold";

/// What this library says of its own files, and how it came about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// It was made on the virtual GPU. Its times are then those of a host that computed nothing.
    pub is_virtual: bool,
    /// It was exported from a recording that is not the whole job.
    pub is_partial: bool,
    /// The simulation of another allocator than PyTorch's: what it holds of the device is nothing that happened.
    pub is_simulated: bool,
}

impl Marks {
    fn each(&mut self) -> [(&'static str, &mut bool); 3] {
        [
            ("gmlake_virtual_gpu", &mut self.is_virtual),
            ("gmlake_partial", &mut self.is_partial),
            ("gmlake_simulated", &mut self.is_simulated),
        ]
    }

    /// The keys under which a file has them.
    pub(super) fn keys(mut self) -> impl Iterator<Item = &'static str> {
        self.each().map(|(key, is_set)| is_set.then_some(key)).into_iter().flatten()
    }

    /// Whether this is the key of a mark, which is then set.
    pub(super) fn set(&mut self, key: &str) -> bool {
        let mark = self.each().into_iter().find(|(name, _)| *name == key);
        mark.map(|(_, is_set)| *is_set = true).is_some()
    }
}

/// Other keys, of a snapshot and of its settings.
const OTHERS: [&str; 12] = [
    "segments",
    "device_traces",
    "external_annotations",
    "allocator_settings",
    "host_segments",
    "host_traces",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "max_cached_size",
    "pinned_use_hip_host_register",
    "release_lock_on_hipmalloc",
    "torch_version",
];

/// Whether a version of PyTorch, or this library, writes such a key.
pub(super) fn is_known_key(key: &str) -> bool {
    let is_pytorchs = SETTINGS.contains(&key) || [STREAM_REUSE, PINNED].contains(&key);
    is_pytorchs || OTHERS.contains(&key) || Marks::default().set(key)
}

/// The keys that tell versions apart, as far as a file has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    /// Keys of the settings that every version has.
    settings: u8,
    has_stream_reuse: bool,
    has_pinned: bool,
    /// `external_annotations`.
    pub(super) has_annotations: bool,
    /// `host_traces`.
    pub(super) has_host: bool,
    /// Whether there are entries, which tell more.
    pub(super) has_entries: bool,
    /// `compile_context` and `user_metadata` of an entry.
    pub(super) has_labels: [bool; 2],
    /// `pool_id` of an entry.
    pub(super) has_pools: bool,
    /// What the file says by itself: those of this library do.
    pub(super) version: Option<TorchVersion>,
}

/// Versions of PyTorch that may have written a file, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writer {
    /// The earliest.
    pub first: TorchVersion,
    /// The latest; `None`: there is no end to it.
    pub last: Option<TorchVersion>,
}

impl Evidence {
    /// Notes a key of `allocator_settings`.
    pub(super) fn setting(&mut self, key: &str) {
        if let Some(place) = SETTINGS.iter().position(|&known| known == key) {
            self.settings |= 1 << place;
        }
        self.has_stream_reuse |= key == STREAM_REUSE;
        self.has_pinned |= key == PINNED;
    }

    /// Who may have written the file, if the keys tell.
    pub(super) fn writer(&self) -> Option<Writer> {
        if let Some(version) = self.version {
            return Some(Writer::exactly(version));
        }
        let all = (1_u32 << SETTINGS.len()) - 1;
        if u32::from(self.settings) != all {
            return None;
        }
        let [has_context, has_metadata] = self.has_labels;
        let of = |first, last| {
            let last: Option<u16> = last;
            let version = |minor| TorchVersion { major: 2, minor };
            Some(Writer { first: version(first), last: last.map(version) })
        };
        match self {
            _ if self.has_host => of(14, None),
            _ if self.has_pinned => of(13, Some(13)),
            _ if !self.has_entries && self.has_stream_reuse => of(9, Some(12)),
            _ if !self.has_entries && self.has_annotations => of(5, Some(8)),
            _ if self.has_pools => of(12, Some(12)),
            _ if has_metadata => of(10, Some(11)),
            _ if self.has_stream_reuse => of(9, Some(9)),
            _ if has_context => of(8, Some(8)),
            _ if self.has_annotations => of(5, Some(7)),
            _ => of(3, Some(4)),
        }
    }
}

impl Writer {
    /// This version, and no other.
    pub fn exactly(version: TorchVersion) -> Self {
        Self { first: version, last: Some(version) }
    }

    /// The version to take for the writer: our default if it may be, else the latest that we know.
    pub fn taken(&self) -> TorchVersion {
        let default = TorchVersion::default();
        let last = self.last.unwrap_or(TorchVersion::NEWEST);
        if (self.first..=last).contains(&default) { default } else { last }
    }
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.last {
            Some(last) if last == self.first => write!(f, "PyTorch {last}"),
            Some(last) => write!(f, "PyTorch {} to {last}", self.first),
            None => write!(f, "PyTorch {} or later", self.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(more: &[&str]) -> Evidence {
        let mut found = Evidence { has_entries: true, ..Evidence::default() };
        SETTINGS.iter().chain(more).for_each(|key| found.setting(key));
        found
    }

    fn words(found: Evidence) -> String {
        found.writer().map_or_else(String::new, |writer| writer.to_string())
    }

    /// The keys of the wheels, from one more to the next.
    #[test]
    fn every_key_tells_of_a_version() {
        let mut found = evidence(&[]);
        assert_eq!(words(found), "PyTorch 2.3 to 2.4");
        found.has_annotations = true;
        assert_eq!(words(found), "PyTorch 2.5 to 2.7");
        found.has_labels[0] = true;
        assert_eq!(words(found), "PyTorch 2.8");
        found.setting(STREAM_REUSE);
        assert_eq!(words(found), "PyTorch 2.9");
        found.has_labels[1] = true;
        assert_eq!(words(found), "PyTorch 2.10 to 2.11");
        assert_eq!(found.writer().unwrap().taken(), TorchVersion::V2_11);
        found.has_pools = true;
        assert_eq!(words(found), "PyTorch 2.12");
        found.setting(PINNED);
        assert_eq!(words(found), "PyTorch 2.13");
        found.has_host = true;
        assert_eq!(words(found), "PyTorch 2.14 or later");
    }

    #[test]
    fn a_file_that_lacks_keys_tells_nothing() {
        let mut found = evidence(&[STREAM_REUSE]);
        found.settings &= !1;
        assert_eq!(found.writer(), None);
        found.version = "2.8".parse().ok();
        assert_eq!(words(found), "PyTorch 2.8");
        assert_eq!(evidence(&[]).writer().unwrap().taken(), TorchVersion { major: 2, minor: 4 });
    }
}
