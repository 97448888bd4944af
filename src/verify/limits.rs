//! The memory limit that a recording ran under: what its refusals show of it, and which limits to try.
//!
//! ```text
//!   held at most          refused: held + segment
//!   ────┤◀──────── limit ────────▶├────
//! ```
//!
//! A share in the settings is a share of a memory that the recording does not name. Where a request was refused, what
//! was held and what the driver had free come to nearly all of it.

use std::ops::Range;

use super::verification::Verification;
use crate::alloc_conf::DEFAULT_TOTAL_MEMORY;
use crate::allocator::{Environment, segment_size};
use crate::trace::{Action, Entry};
use crate::units::{Bytes, Size};

/// Memory of an NVIDIA H200 as its device properties state it, in bytes.
const H200_MEMORY: Bytes = 150_109_880_320;

/// What the entries show of a limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The most that was ever held: a limit is at least that.
    pub least: Bytes,
    /// The least that would have been held if a failed request had been served; all there is, if none failed.
    pub most: Bytes,
    /// The same of requests for which the driver had enough, as far as the recording tells: a limit is below that.
    pub limit_below: Bytes,
    /// The most that was held and free together when a request failed: the device has at least that. 0 if unknown.
    pub seen: Bytes,
}

impl Bounds {
    /// What the entries show; `held` is what was held at the start.
    pub(super) fn new(entries: &[Entry], environment: &Environment, mut held: Bytes) -> Self {
        let most = Bytes::MAX;
        let mut bounds = Self { least: held, most, limit_below: most, seen: 0 };
        for entry in entries {
            match entry.action {
                Action::SegmentAlloc | Action::SegmentMap => held += entry.size,
                Action::SegmentFree | Action::SegmentUnmap => {
                    held = held.saturating_sub(entry.size);
                }
                Action::Oom => bounds.add(entry, held, environment),
                _ => {}
            }
            bounds.least = bounds.least.max(held);
        }
        bounds.most = bounds.most.max(bounds.least + 1);
        bounds.limit_below = bounds.limit_below.max(bounds.least + 1);
        bounds
    }

    fn add(&mut self, oom: &Entry, held: Bytes, environment: &Environment) {
        let (free, needed) = (oom.addr, segment_size(oom.size, &environment.conf));
        self.most = self.most.min(held + needed);
        if free == 0 || free >= needed {
            self.limit_below = self.limit_below.min(held + needed);
        }
        if free > 0 {
            self.seen = self.seen.max(held.saturating_add(free));
        }
    }

    /// Whether a request failed: only then is there a limit from above.
    pub(super) fn has_failed(&self) -> bool {
        self.most < Bytes::MAX
    }

    /// Whether a device with this memory has hardly more than what was seen.
    fn is_nearly(&self, total: Bytes) -> bool {
        (self.seen..self.seen / 10 * 11).contains(&total)
    }

    fn limits(&self) -> Range<Bytes> {
        self.least..self.limit_below
    }
}

/// Limits to try, the most likely first. How many come first that are believed only if they refused something.
pub(super) struct Limits {
    /// The limits; `None` for none.
    pub all: Vec<Option<Bytes>>,
    /// How many of them, from the first on, nothing supports as such.
    pub unsupported: usize,
}

impl Limits {
    fn sure(limit: Option<Bytes>) -> Self {
        Self { all: vec![limit], unsupported: 0 }
    }

    /// Those to try for this recording.
    pub(super) fn new(entries: &[Entry], environment: &Environment, bounds: Bounds) -> Self {
        if is_given(environment) {
            return Self::sure(environment.memory_limit());
        }
        let conf = &environment.conf;
        let collects = conf.garbage_collection_threshold > 0.0;
        if conf.memory_fraction.is_none() && !collects && !bounds.has_failed() {
            return Self::sure(None);
        }
        let named: Vec<_> = named(environment, bounds).into_iter().map(Some).collect();
        let percents = percents(environment, bounds, collects).into_iter().map(Some);
        let (named_again, least) = (named.clone(), Some(bounds.least));
        let all = match refusals(entries, environment) {
            // Nothing tells of a limit but the share in the settings: only what PyTorch gave back may.
            Refusals::None | Refusals::Driver => {
                let unsupported = named.len();
                let rest = [None].into_iter().chain(named_again).chain(percents).chain([least]);
                return Self { all: named.into_iter().chain(rest).collect(), unsupported };
            }
            Refusals::NotDriver if environment.fraction().is_none() => {
                named.into_iter().chain(percents).chain([None, least]).collect()
            }
            Refusals::NotDriver | Refusals::Unknown => {
                named.into_iter().chain(percents).chain([least, None]).collect()
            }
        };
        Self { all, unsupported: 0 }
    }
}

/// Whether a limit is given with the recording, so that there is nothing to find.
fn is_given(environment: &Environment) -> bool {
    environment.memory_fraction.is_some() || environment.limit.is_some()
}

fn share(fraction: f64, total: Bytes) -> Bytes {
    (fraction * total as f64) as Bytes
}

/// What the share in the settings may come to: of devices of which nearly all was seen, of what was seen, of others.
fn named(environment: &Environment, bounds: Bounds) -> Vec<Bytes> {
    let Some(fraction) = environment.fraction() else { return Vec::new() };
    let totals = [environment.total_memory, H200_MEMORY].into_iter();
    let mut totals: Vec<_> = totals.filter(|&total| total >= bounds.seen).collect();
    if bounds.seen > 0 {
        totals.sort_by_key(|&total| !bounds.is_nearly(total));
        totals.insert(totals.partition_point(|&total| bounds.is_nearly(total)), bounds.seen);
    }
    let mut limits: Vec<_> = totals.into_iter().map(|total| share(fraction, total)).collect();
    limits.retain(|limit| bounds.limits().contains(limit));
    limits
}

/// Whole percents of usual devices that are possible. Where several are, none of them is likely, unless garbage
/// collections decide between them: the least limit does as well.
fn percents(environment: &Environment, bounds: Bounds, collects: bool) -> Vec<Bytes> {
    let mut limits = Vec::new();
    for total in [environment.total_memory, H200_MEMORY] {
        let percent = (1..100).map(|percent| share(f64::from(percent) / 100.0, total));
        let possible: Vec<_> = percent.filter(|limit| bounds.limits().contains(limit)).collect();
        match possible.len() {
            0 | 1 => limits.extend(possible),
            _ if collects => limits.extend(possible),
            _ => limits.push(bounds.least),
        }
    }
    limits
}

/// Who refused the requests that ran out.
enum Refusals {
    /// None did.
    None,
    /// The driver had too little for each of them.
    Driver,
    /// The driver had enough for one of them.
    NotDriver,
    /// The recording does not say what the driver had.
    Unknown,
}

fn refusals(entries: &[Entry], environment: &Environment) -> Refusals {
    let is_oom = |entry: &&Entry| entry.action == Action::Oom;
    let mut ooms = entries.iter().filter(is_oom).peekable();
    let needed = |entry: &Entry| segment_size(entry.size, &environment.conf);
    if ooms.peek().is_none() {
        Refusals::None
    } else if ooms.clone().any(|entry| entry.addr == 0) {
        Refusals::Unknown
    } else if ooms.all(|entry| entry.addr < needed(entry)) {
        Refusals::Driver
    } else {
        Refusals::NotDriver
    }
}

/// Where the memory lies that was found, if the recording shows no more than that; it ends nowhere, if nothing was
/// refused for certain.
pub(super) fn range(
    environment: &Environment,
    bounds: Bounds,
    found: &Verification,
) -> Option<Range<Bytes>> {
    let Some(limit) = found.limit else { return range_of_device(found) };
    if is_given(environment) || is_known(environment, bounds, limit) {
        return None;
    }
    let of_seen = environment.fraction().map_or(0, |fraction| share(fraction, bounds.seen));
    let least = if of_seen <= limit { bounds.least.max(of_seen) } else { bounds.least };
    Some(least..bounds.limit_below)
}

/// Whether a limit is the share in the settings of a memory that is known, or of one of which nearly all was seen.
fn is_known(environment: &Environment, bounds: Bounds, limit: Bytes) -> bool {
    let Some(fraction) = environment.fraction() else { return false };
    let total = environment.total_memory;
    let is_known = |total| total != DEFAULT_TOTAL_MEMORY || bounds.is_nearly(total);
    limit == share(fraction, total) && is_known(total)
        || limit == share(fraction, H200_MEMORY) && bounds.is_nearly(H200_MEMORY)
}

/// The same of the device's memory: what it had free is in the recording, or only what it refused.
fn range_of_device(found: &Verification) -> Option<Range<Bytes>> {
    let (capacity, refused) = (found.capacity?, found.least_refused?);
    let is_told = found.refused.is_some_and(|refused| refused.device_free.is_some());
    (!is_told && refused > capacity).then_some(capacity..refused)
}

/// The most that requests may have had of memory that lies there: what is closer to its end is rounding.
pub(crate) fn most_in(range: &Range<Bytes>) -> Bytes {
    range.end - range.end / 1000
}

/// Where memory lies, in words: `between 27.96 GiB and 48.93 GiB`.
pub(crate) fn range_in_words(range: &Range<Bytes>) -> String {
    let [from, to] = [range.start, range.end].map(|bytes| Size(bytes).to_string());
    match range.end {
        Bytes::MAX => format!("at least {from}"),
        _ if from == to => format!("about {from}"),
        _ => format!("between {from} and {to}"),
    }
}
