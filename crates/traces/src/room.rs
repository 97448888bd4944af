//! Room: how much memory a content may take when it is read, and how much this machine has.
//!
//! A recording takes about as much memory as it is long. A content that takes far more was made for that, and is
//! refused before it does: a small file may take 256 MiB, a large one sixteen times its length, one that was
//! decompressed no more than what a recording shrinks to at best, and none more than the machine has.

use std::fs;

use super::{Position, TraceError};
use gmlake_core::units::{Bytes, GIB, MIB, Size};

/// Any content may take this much.
const ALWAYS: Bytes = 256 * MIB;
/// Bytes of memory for each byte of content. Lists of small numbers need the most: 16 for each of two bytes.
const PER_BYTE: Bytes = 16;
/// Our recordings shrink to a 30th; JSON, which repeats every stack, to a 1000th at best.
pub(super) const MAX_RATIO: Bytes = 4000;

/// How much memory may be taken to read `content` bytes, which lay in a file or stream of `packed` bytes.
pub(super) fn to_read(content: Bytes, packed: Bytes) -> Bytes {
    let by_length = content.saturating_mul(PER_BYTE).min(packed.saturating_mul(MAX_RATIO));
    ALWAYS.saturating_add(by_length).min(of_machine())
}

/// What may be kept of a content that must be held in memory: half of what the machine has.
pub(super) fn to_hold() -> Bytes {
    of_machine() / 2
}

/// The error for a content that takes more.
pub(super) fn no_room(limit: Bytes) -> TraceError {
    let problem =
        format!("takes more than {} of memory to read, far more than its length", Size(limit));
    TraceError::new(Position::File, problem, "this is no recording of PyTorch")
}

/// The memory that this process may use: the machine's, or what its container is given of it.
fn of_machine() -> Bytes {
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let given = limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    // Where nothing says it, as on other systems: what a small machine has.
    given.chain(total).min().unwrap_or(16 * GIB)
}

/// `MemTotal` of `/proc/meminfo`, which is in KiB.
fn total(text: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<Bytes>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_may_take_little_and_a_large_one_in_proportion() {
        assert_eq!(to_read(0, 0), ALWAYS);
        assert_eq!(to_read(MIB, MIB), ALWAYS + 16 * MIB);
        // 17 KiB that decompress to much.
        assert!(to_read(GIB, 17 << 10) < 400 * MIB);
        assert!(to_read(u64::MAX, u64::MAX) <= of_machine());
    }

    #[test]
    fn the_machine_says_what_it_has() {
        assert_eq!(total("MemTotal:       24576000 kB\nMemFree: 1 kB\n"), Some(24_576_000 << 10));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(to_hold() > 0);
    }
}
