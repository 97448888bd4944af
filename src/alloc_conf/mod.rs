//! `PYTORCH_CUDA_ALLOC_CONF`: the options of PyTorch's caching allocator, parsed as PyTorch parses them.
//!
//! The grammar is a comma-separated list of `key:value` with white space ignored, lists in brackets, and booleans that
//! are exactly `True` or `False`. An unknown key is an error, as it is in PyTorch. Where PyTorch's versions read the
//! same text differently, [`TorchVersion`] decides.

mod values;
mod version;

pub use values::Reserve;
pub use version::TorchVersion;

use crate::units::{Bytes, GIB, MIB};
use values::{at_least_segment, boolean, divisions, fraction, large_segment, reserve};

/// Why a configuration text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("allocator configuration {text:?}: {reason}")]
pub struct ConfError {
    text: String,
    reason: String,
}

/// The options that change what the allocator decides. Sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocConf {
    /// The text that this was read from.
    pub text: String,
    /// `max_split_size_mb`: larger blocks are not split, nor used for smaller requests. `None`: no limit.
    pub max_split_size: Option<Bytes>,
    /// `max_non_split_rounding_mb`: how much larger than an oversize request a cached block may be.
    pub max_non_split_rounding: Bytes,
    /// `garbage_collection_threshold`: share of the memory limit from which cached blocks are given back; 0 is off.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions`, one for each power of two from 1 MiB to 32 GiB; 0 and 1 are off.
    pub roundup_power2_divisions: [u32; 16],
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// `large_segment_size_mb` (2.11 and later): the segment for requests from 1 MiB up to 10 MiB.
    pub large_segment_size: Bytes,
    /// `per_process_memory_fraction` (2.10 and later): share of the device's memory that may be held.
    pub memory_fraction: Option<f64>,
    /// `throw_on_cudamalloc_oom` (2.12 and later): what would go beyond that share fails at once.
    pub throw_on_oom: bool,
    /// `expandable_segments_reserve` (2.15 and later): addresses that an expandable segment gets; `None`: nine eighths
    /// of the device's memory, which is also the most.
    pub expandable_reserve: Option<Reserve>,
    /// Options that were given, but change nothing in a simulation, in the order of the text.
    pub without_effect: Vec<String>,
}

const DEFAULT_LARGE_SEGMENT: Bytes = 20 * MIB;

impl Default for AllocConf {
    fn default() -> Self {
        Self {
            text: String::new(),
            max_split_size: None,
            max_non_split_rounding: DEFAULT_LARGE_SEGMENT,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; 16],
            expandable_segments: false,
            large_segment_size: DEFAULT_LARGE_SEGMENT,
            memory_fraction: None,
            throw_on_oom: false,
            expandable_reserve: None,
            without_effect: Vec::new(),
        }
    }
}

/// Options of PyTorch that change nothing in a simulation; accepted with any value. Memory of the host is not
/// simulated; when frees complete is taken from the recording; classes of streams are given in C++.
const WITHOUT_EFFECT: [&str; 13] = [
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_max_register_threads",
    "graph_capture_record_stream_reuse",
    "expandable_segments_reserve_by_class",
];

impl AllocConf {
    /// Reads a configuration text as the given version of PyTorch does.
    ///
    /// # Errors
    /// Says which key or value is wrong, and what would be right.
    pub fn parse(text: &str, version: TorchVersion) -> Result<Self, ConfError> {
        Self { text: text.to_owned(), ..Self::default() }.with(text, version)
    }

    /// These options, but for those that the text names.
    ///
    /// # Errors
    /// As [`AllocConf::parse`].
    pub fn with(&self, text: &str, version: TorchVersion) -> Result<Self, ConfError> {
        let fail = |reason: String| ConfError { text: text.to_owned(), reason };
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let pairs = split_pairs(&compact).map_err(fail)?;
        let mut conf = self.clone();
        // PyTorch reads this one first, whatever its place, since two others depend on it.
        for (_, value) in pairs.iter().filter(|(key, _)| *key == "large_segment_size_mb") {
            conf.large_segment_size = large_segment(value, version).map_err(fail)?;
            conf.max_non_split_rounding = conf.large_segment_size;
        }
        for (key, value) in pairs {
            conf.apply(key, value, version).map_err(fail)?;
        }
        Ok(conf)
    }

    /// As [`AllocConf::parse`], for a text that PyTorch has accepted: what we do not understand is left out, and the
    /// first of it is named.
    #[must_use]
    pub fn parse_known(text: &str, version: TorchVersion) -> (Self, Option<ConfError>) {
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let all = Self::parse(text, version);
        let (Err(error), Ok(pairs)) = (&all, split_pairs(&compact)) else {
            let error = all.as_ref().err().cloned();
            let unread = Self { text: text.to_owned(), ..Self::default() };
            return (all.unwrap_or(unread), error);
        };
        let is_known =
            |(key, value): &(&str, &str)| Self::parse(&format!("{key}:{value}"), version).is_ok();
        let known = pairs.into_iter().filter(is_known).map(|(key, value)| format!("{key}:{value}"));
        let known: Vec<String> = known.collect();
        let conf = Self::parse(&known.join(","), version).unwrap_or_default();
        (Self { text: text.to_owned(), ..conf }, Some(error.clone()))
    }

    fn apply(&mut self, key: &str, value: &str, version: TorchVersion) -> Result<(), String> {
        match key {
            "large_segment_size_mb" => {}
            "max_split_size_mb" => {
                self.max_split_size = Some(at_least_segment(key, value, self.large_segment_size)?);
            }
            "max_non_split_rounding_mb" if version.is_at_least(6) => {
                self.max_non_split_rounding =
                    at_least_segment(key, value, self.large_segment_size)?;
            }
            "garbage_collection_threshold" => {
                self.garbage_collection_threshold = fraction(key, value, false)?;
            }
            "per_process_memory_fraction" if version.is_at_least(10) => {
                self.memory_fraction = Some(fraction(key, value, true)?);
            }
            "roundup_power2_divisions" => {
                self.roundup_power2_divisions = divisions(value, version)?;
            }
            "expandable_segments" => self.expandable_segments = boolean(key, value)?,
            "backend" if value == "native" => {}
            "backend" => {
                return Err(format!(
                    "backend:{value} is another allocator, which is not simulated"
                ));
            }
            "throw_on_cudamalloc_oom" if version.is_at_least(12) => {
                self.throw_on_oom = boolean(key, value)?;
            }
            // PyTorch ignores a value that is none, and says so.
            "expandable_segments_reserve" if version.is_at_least(15) => {
                self.expandable_reserve = reserve(value).or(self.expandable_reserve);
            }
            // Options of later versions; earlier ones refuse them, but are not known to run where nothing is said.
            "throw_on_cudamalloc_oom" | "expandable_segments_reserve" => self.note(key),
            _ if WITHOUT_EFFECT.contains(&key) => self.note(key),
            _ => return Err(format!("PyTorch {version} has no option {key:?}")),
        }
        Ok(())
    }

    /// Notes an option that changes nothing.
    fn note(&mut self, key: &str) {
        if !self.without_effect.iter().any(|noted| noted == key) {
            self.without_effect.push(key.to_owned());
        }
    }

    /// Divisions of the power of two for a request of `size` bytes: slot floor(log2 size) - 20, clamped to the table.
    #[inline]
    #[must_use]
    pub fn divisions_for(&self, size: Bytes) -> u32 {
        let log2 = size.max(1).ilog2();
        self.roundup_power2_divisions[log2.saturating_sub(20).min(15) as usize]
    }
}

/// Cuts `a:1,b:[x:1,y:2]` into its pairs; commas inside brackets do not separate.
fn split_pairs(compact: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut pairs = Vec::new();
    let mut rest = compact;
    while !rest.is_empty() {
        let (key, after) = rest
            .split_once(':')
            .ok_or_else(|| format!("{rest:?} has no value: write key:value"))?;
        let end = if after.starts_with('[') {
            after.find(']').ok_or_else(|| format!("the list of {key:?} has no closing bracket"))?
                + 1
        } else {
            after.find(',').unwrap_or(after.len())
        };
        pairs.push((key, &after[..end]));
        rest = &after[end..];
        rest = match rest.strip_prefix(',') {
            Some(more) => more,
            None if rest.is_empty() => rest,
            None => {
                return Err(format!("{rest:?} follows the list of {key:?}: a comma is missing"));
            }
        };
    }
    Ok(pairs)
}

/// Memory of the device that is assumed where nothing is known: that of the largest card of today, 288 GB.
pub const DEFAULT_TOTAL_MEMORY: Bytes = 288 * GIB;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AllocConf, ConfError> {
        AllocConf::parse(text, TorchVersion::V2_11)
    }

    #[test]
    fn every_option_is_understood() {
        let conf = parse(
            "max_split_size_mb:128, garbage_collection_threshold:0.6,expandable_segments:True,\
             roundup_power2_divisions:4,large_segment_size_mb:64,per_process_memory_fraction:0.5",
        )
        .unwrap();
        assert_eq!(conf.max_split_size, Some(128 * MIB));
        assert_eq!(conf.garbage_collection_threshold, 0.6);
        assert!(conf.expandable_segments);
        assert_eq!(conf.roundup_power2_divisions, [4; 16]);
        assert_eq!((conf.large_segment_size, conf.max_non_split_rounding), (64 * MIB, 64 * MIB));
        assert_eq!(conf.memory_fraction, Some(0.5));
        assert_eq!(parse("").unwrap(), AllocConf::default());
    }

    #[test]
    fn division_lists_fill_as_in_2_11_and_as_before() {
        let text = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]";
        let expected = [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8];
        assert_eq!(parse(text).unwrap().roundup_power2_divisions, expected);
        let older = AllocConf::parse(text, TorchVersion { major: 2, minor: 8 }).unwrap();
        assert_eq!(older.roundup_power2_divisions[10], 8);
    }

    #[test]
    fn what_pytorch_refuses_is_refused() {
        for text in [
            "max_split_size_mb:10",
            "max_split_size_mb:x",
            "expandable_segments:true",
            "garbage_collection_threshold:1.5",
            "roundup_power2_divisions:3",
            "roundup_power2_divisions:[256:1",
            "large_segment_size_mb:10",
            "backend:cudaMallocAsync",
            "no_such_option:1",
            "max_split_size_mb",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn of_an_accepted_text_what_is_known_is_kept() {
        let text = "max_split_size_mb:64, option_of_tomorrow:[1:2,3:4],expandable_segments:True";
        let (conf, error) = AllocConf::parse_known(text, TorchVersion::V2_11);
        assert_eq!((conf.max_split_size, conf.expandable_segments), (Some(64 * MIB), true));
        assert_eq!(conf.text, text);
        assert!(error.unwrap().to_string().contains("option_of_tomorrow"));
        assert_eq!(AllocConf::parse_known("", TorchVersion::V2_11), (AllocConf::default(), None));
        let (conf, error) = AllocConf::parse_known("no pairs", TorchVersion::V2_11);
        assert!(conf.max_split_size.is_none() && error.is_some());
    }

    #[test]
    fn options_without_effect_are_kept_and_named() {
        let text = "graph_capture_record_stream_reuse:True,pinned_free_catch_all:True,\
                    expandable_segments_reserve_by_class:[serving:0.25,ads:8G],\
                    release_lock_on_hipmalloc:True,throw_on_cudamalloc_oom:True";
        let conf = parse(text).unwrap();
        assert_eq!(conf.text, text);
        let named: Vec<_> = conf.without_effect.iter().map(String::as_str).collect();
        assert_eq!(named.len(), 5, "{named:?}");
        assert!(text.split(&[':', ','][..]).filter(|word| named.contains(word)).count() == 5);
        let newest = TorchVersion { major: 2, minor: 15 };
        let conf = AllocConf::parse("throw_on_cudamalloc_oom:True", newest).unwrap();
        assert!(conf.throw_on_oom && conf.without_effect.is_empty());
    }

    #[test]
    fn a_reserve_is_a_share_or_gib_and_anything_else_is_ignored() {
        let newest = TorchVersion { major: 2, minor: 15 };
        let reserve = |value| {
            let text = format!("expandable_segments_reserve:{value}");
            AllocConf::parse(&text, newest).unwrap().expandable_reserve
        };
        assert_eq!(reserve("0.5").unwrap().bytes(8 * GIB), 4 * GIB);
        assert_eq!(reserve("40G").unwrap().bytes(8 * GIB), 40 * GIB);
        assert_eq!([reserve("abc"), reserve("-1"), reserve("0"), reserve("G")], [None; 4]);
        let none = parse("per_process_memory_fraction:0.0").unwrap();
        assert_eq!(none.memory_fraction, Some(0.0));
    }

    #[test]
    fn options_of_later_versions_are_unknown_to_earlier_ones() {
        let old = TorchVersion { major: 2, minor: 5 };
        assert!(AllocConf::parse("max_non_split_rounding_mb:64", old).is_err());
        assert!(AllocConf::parse("large_segment_size_mb:64", old).is_err());
        assert_eq!("2.11".parse(), Ok(TorchVersion::V2_11));
        assert_eq!("2.11.0+cu130".parse(), Ok(TorchVersion::V2_11));
        assert!("1.13".parse::<TorchVersion>().is_err());
    }
}
