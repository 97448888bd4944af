//! `PYTORCH_CUDA_ALLOC_CONF`: the options of PyTorch's caching allocator, parsed as PyTorch parses them.
//!
//! The grammar is a comma-separated list of `key:value` with white space ignored, lists in brackets, and booleans that
//! are exactly `True` or `False`. An unknown key is an error, as it is in PyTorch. Where PyTorch's versions read the
//! same text differently, [`TorchVersion`] decides.

mod idle;
mod pasted;
mod pinned;
#[cfg(test)]
mod tests;
mod typed;
mod values;
mod version;

pub use pasted::pasted;
pub use pinned::PinnedConf;
pub use typed::TypedConf;
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

/// Who gives PyTorch its memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// PyTorch's own caching allocator.
    #[default]
    Native,
    /// CUDA's stream-ordered pool, which ignores the options of PyTorch's own.
    CudaMallocAsync,
}

/// The options that change what the allocator decides. Sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocConf {
    /// The text that this was read from.
    pub text: String,
    /// `backend`.
    pub backend: Backend,
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
    /// Options for pinned memory of the host.
    pub pinned: PinnedConf,
    /// Options that were given, but change nothing on a GPU, in the order of the text.
    pub without_effect: Vec<String>,
}

const DEFAULT_LARGE_SEGMENT: Bytes = 20 * MIB;

impl Default for AllocConf {
    fn default() -> Self {
        Self {
            text: String::new(),
            backend: Backend::Native,
            max_split_size: None,
            max_non_split_rounding: DEFAULT_LARGE_SEGMENT,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; 16],
            expandable_segments: false,
            large_segment_size: DEFAULT_LARGE_SEGMENT,
            memory_fraction: None,
            throw_on_oom: false,
            expandable_reserve: None,
            pinned: PinnedConf::default(),
            without_effect: Vec::new(),
        }
    }
}

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
        for (key, value) in pairs.iter().filter(|(key, _)| *key == "large_segment_size_mb") {
            if !version.is_at_least(11) {
                return Err(fail(idle::unknown(key, version)));
            }
            conf.large_segment_size = large_segment(value).map_err(fail)?;
            conf.max_non_split_rounding = conf.large_segment_size;
        }
        for (key, value) in pairs {
            conf.apply(key, value, version).map_err(fail)?;
        }
        Ok(conf)
    }

    /// As [`AllocConf::parse`], for a text that PyTorch has accepted: what we do not understand is left out, and the
    /// first of it is named.
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
                let least = self.least_size(version);
                self.max_split_size = Some(at_least_segment(key, value, least)?);
            }
            "max_non_split_rounding_mb" if version.is_at_least(6) => {
                self.max_non_split_rounding =
                    at_least_segment(key, value, self.least_size(version))?;
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
            "backend" => self.backend = backend(value)?,
            "throw_on_cudamalloc_oom" if version.is_at_least(12) => {
                self.throw_on_oom = boolean(key, value)?;
            }
            // PyTorch ignores a value that is none, and says so.
            "expandable_segments_reserve" if version.is_at_least(15) => {
                self.expandable_reserve = reserve(value).or(self.expandable_reserve);
            }
            _ => {
                idle::check(key, value, version)?;
                self.pinned.set(key, value)?;
                self.note(key);
            }
        }
        Ok(())
    }

    /// Notes an option that changes nothing.
    fn note(&mut self, key: &str) {
        if !self.without_effect.iter().any(|noted| noted == key) {
            self.without_effect.push(key.to_owned());
        }
    }

    /// The least of the sizes that must not be below a segment's; up to 2.9 they had to be above it.
    fn least_size(&self, version: TorchVersion) -> Bytes {
        self.large_segment_size + if version.is_at_least(10) { 0 } else { MIB }
    }

    /// Divisions of the power of two for a request of `size` bytes: slot floor(log2 size) - 20, clamped to the table.
    #[inline]
    pub fn divisions_for(&self, size: Bytes) -> u32 {
        let log2 = size.max(1).ilog2();
        self.roundup_power2_divisions[log2.saturating_sub(20).min(15) as usize]
    }
}

fn backend(value: &str) -> Result<Backend, String> {
    match value {
        "native" => Ok(Backend::Native),
        "cudaMallocAsync" | "hipMallocAsync" => Ok(Backend::CudaMallocAsync),
        _ => Err(format!("backend is {value:?}, but must be native or cudaMallocAsync")),
    }
}

/// Cuts a list of settings or of values; what stands in brackets stays together.
pub fn split_outside_brackets(text: &str, separator: char) -> Vec<&str> {
    let mut depth = 0;
    let ends_item = |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == separator && depth == 0
    };
    text.split(ends_item).collect()
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
        if !after.starts_with('[') && after[..end].contains([':', '[', ']']) {
            return Err(format!("{:?} is no value of {key:?}: a comma is missing", &after[..end]));
        }
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
