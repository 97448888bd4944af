//! Idle options: those that PyTorch reads and that change nothing in a simulation.
//!
//! Memory of the host is simulated apart ([`super::PinnedConf`]); when frees complete is taken from the recording;
//! classes of streams are given in C++. Their values are checked all the same, as PyTorch checks them.

use super::values::{boolean, whole};
use super::version::TorchVersion;

/// What an option's value is.
#[derive(Debug, Clone, Copy)]
enum Value {
    Switch,
    Count,
    /// A power of two up to 128.
    Threads,
    /// A list, which is not looked into.
    List,
}

/// Each option, the first minor version that has it, and its value.
const OPTIONS: [(&str, u16, Value); 13] = [
    ("release_lock_on_cudamalloc", 1, Value::Switch),
    ("release_lock_on_hipmalloc", 1, Value::Switch),
    ("pinned_use_cuda_host_register", 1, Value::Switch),
    ("pinned_use_hip_host_register", 1, Value::Switch),
    ("pinned_num_register_threads", 1, Value::Threads),
    ("pinned_use_background_threads", 1, Value::Switch),
    ("graph_capture_record_stream_reuse", 9, Value::Switch),
    ("pinned_reserve_segment_size_mb", 10, Value::Count),
    ("pinned_free_catch_all", 12, Value::Switch),
    ("pinned_max_cached_size_mb", 13, Value::Count),
    ("pinned_max_round_threshold_mb", 13, Value::Count),
    ("pinned_max_register_threads", 14, Value::Count),
    ("expandable_segments_reserve_by_class", 15, Value::List),
];

/// Options that change something, and that earlier versions refuse.
const LATER: [(&str, u16); 5] = [
    ("max_non_split_rounding_mb", 6),
    ("per_process_memory_fraction", 10),
    ("large_segment_size_mb", 11),
    ("throw_on_cudamalloc_oom", 12),
    ("expandable_segments_reserve", 15),
];

/// Whether this version has such an option without effect, and takes this value for it.
pub(super) fn check(key: &str, value: &str, version: TorchVersion) -> Result<(), String> {
    let found = OPTIONS.iter().find(|(name, since, _)| *name == key && version.is_at_least(*since));
    let Some((.., kind)) = found else { return Err(unknown(key, version)) };
    match kind {
        Value::Switch => boolean(key, value).map(drop),
        Value::Count => whole(key, value).map(drop),
        Value::List => Ok(()),
        Value::Threads => match whole(key, value)? {
            threads @ 1..=128 if threads.is_power_of_two() => Ok(()),
            _ => Err(format!("{key} is {value}, but must be a power of two up to 128")),
        },
    }
}

/// That a version has no such option, and which has.
pub(super) fn unknown(key: &str, version: TorchVersion) -> String {
    let idle = OPTIONS.iter().map(|&(name, since, _)| (name, since));
    let later = LATER.into_iter().chain(idle).find(|&(name, _)| name == key);
    let since = later.map_or(String::new(), |(_, since)| format!(": it came with 2.{since}"));
    format!("PyTorch {version} has no option {key:?}{since}")
}
