//! The same requests under several settings.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::PinnedRecording;
use crate::alloc_conf::{AllocConf, ConfError, PinnedConf, TorchVersion};
use crate::run::RECORDED;
use crate::trace::{Action, Coverage, Entry, PoolId};
use crate::units::Bytes;
use gmlake_allocators::pinned::{ExactPinned, Pinned, in_pages};

/// MiB up to which `tune` has requests rounded.
const ROUNDED: [u32; 5] = [1, 4, 16, 64, 256];
/// And up to which it has blocks kept.
const KEPT: [u32; 6] = [1, 4, 16, 64, 256, 1024];

/// The row of our own allocator for pinned memory, and the first minor version of PyTorch 2 in which it works.
const ENABLED: (&str, u16) = ("gmlake.enable(host=True)", 9);

/// What a job needed and what was or would be pinned for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PinnedComparison {
    /// The file as given.
    pub file: String,
    /// How much of the job it shows.
    pub coverage: Coverage,
    /// The version of PyTorch that is simulated.
    pub torch_version: TorchVersion,
    /// Requests.
    pub requests: u64,
    /// Most bytes in use at once, by the program or by the GPU; of whole blocks, where only those are recorded.
    pub needed_peak_bytes: Bytes,
    /// The least that this may have been before it was rounded; null if the requests are recorded.
    pub needed_peak_least_bytes: Option<Bytes>,
    /// Bytes that were pinned before the recording began, as far as it shows, which are left out.
    pub unseen_bytes: Bytes,
    /// Most bytes that the program pinned by itself.
    pub foreign_peak_bytes: Bytes,
    /// What each setting pins.
    pub rows: Vec<PinnedRow>,
}

/// What was pinned, under a setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PinnedRow {
    /// `recorded`, `default`, `gmlake.enable(host=True)` or the setting.
    pub settings: String,
    /// The first version of PyTorch that has the setting, without the error of 2.13; null if the row is none.
    pub since: Option<TorchVersion>,
    /// Most bytes pinned, in whole pages.
    pub pinned_peak_bytes: Bytes,
    /// Calls that pinned memory.
    pub pins: u64,
    /// Calls that gave it back.
    pub unpins: u64,
}

impl PinnedComparison {
    /// The row of PyTorch's defaults, unless they would round what is rounded already.
    #[must_use]
    pub fn default_row(&self) -> Option<&PinnedRow> {
        self.rows.iter().find(|row| row.settings == "default")
    }

    /// The setting that pins least in this version of PyTorch: of those within 1 % the one with the fewest calls. None,
    /// if the defaults pin no more.
    #[must_use]
    pub fn best(&self) -> Option<&PinnedRow> {
        self.best_in(self.torch_version)
    }

    /// The same in another version.
    pub(super) fn best_in(&self, version: TorchVersion) -> Option<&PinnedRow> {
        let is_there = |row: &&PinnedRow| row.since.is_some_and(|since| since <= version);
        let settings = || self.rows.iter().filter(is_there);
        let least = settings().map(|row| row.pinned_peak_bytes).min()?;
        settings()
            .filter(|row| row.pinned_peak_bytes <= least + least / 100)
            .min_by_key(|row| (row.pins + row.unpins, row.settings.len(), row.pinned_peak_bytes))
            .filter(|row| {
                row.pinned_peak_bytes < self.default_row().map_or(0, |d| d.pinned_peak_bytes)
            })
    }
}

/// The setting, and the first version of PyTorch that has it without the error of 2.13.
fn setting(rounded: u32, kept: Option<u32>) -> (String, u16) {
    let text = format!("pinned_max_round_threshold_mb:{rounded}");
    match kept {
        Some(kept) => {
            (format!("{text},pinned_max_cached_size_mb:{kept}"), 14 - u16::from(kept == rounded))
        }
        None => (text, 14),
    }
}

impl PinnedRecording {
    /// Replays the requests under the usual settings, and under others if some are given. Where the recording has
    /// rounded sizes, the usual ones are left out: they would round what is rounded.
    ///
    /// # Errors
    /// If the version of PyTorch does not take these settings.
    pub fn compare(&self, more: Option<&str>) -> Result<PinnedComparison, ConfError> {
        self.try_all(&[setting(1, None), setting(1, Some(1))], more)
    }

    /// Replays the requests under many settings.
    ///
    /// # Errors
    /// If the version of PyTorch does not take these settings.
    pub fn tune(&self) -> Result<PinnedComparison, ConfError> {
        let kept = |rounded| KEPT.into_iter().filter(move |&kept| kept >= rounded).map(Some);
        let settings = ROUNDED.into_iter().flat_map(|rounded| {
            std::iter::once(None).chain(kept(rounded)).map(move |kept| setting(rounded, kept))
        });
        self.try_all(&settings.collect::<Vec<_>>(), None)
    }

    fn try_all(
        &self,
        settings: &[(String, u16)],
        more: Option<&str>,
    ) -> Result<PinnedComparison, ConfError> {
        let has_rounded = self.own().any(|entry| self.rounds(entry.size));
        let mut rows = Vec::new();
        rows.extend(self.has_blocks.then(|| self.recorded()));
        if !has_rounded {
            rows.push(self.run("default", PinnedConf::default(), self.version));
        }
        if let Some(text) = more {
            rows.push(self.run(text, AllocConf::parse(text, self.version)?.pinned, self.version));
        }
        for (text, since) in settings.iter().filter(|_| !has_rounded) {
            let since = TorchVersion { major: 2, minor: *since };
            let version = self.version.max(since);
            let run = self.run(text, AllocConf::parse(text, version)?.pinned, version);
            rows.push(PinnedRow { since: Some(since), ..run });
        }
        if !has_rounded && self.version.is_at_least(ENABLED.1) {
            rows.push(self.run_exact());
        }
        let requests = self.own().filter(|entry| entry.action == Action::Alloc).count() as u64;
        let least = |size| if self.rounds(size) { size / 2 + 1 } else { size };
        let foreign = self.records.entries.iter().filter(|entry| self.is_foreign(entry));
        Ok(PinnedComparison {
            file: self.file.clone(),
            coverage: self.coverage(),
            torch_version: self.version,
            requests,
            needed_peak_bytes: most_in_use(self.own(), |size| size),
            needed_peak_least_bytes: has_rounded.then(|| most_in_use(self.own(), least)),
            unseen_bytes: self.before().held,
            foreign_peak_bytes: most_in_use(foreign, |size| size),
            rows,
        })
    }

    /// What the recorded allocator pinned. What it gives back without having pinned it in the recording does not count.
    fn recorded(&self) -> PinnedRow {
        let mut level = Level::default();
        let mut pinned = FxHashSet::default();
        for entry in self.own() {
            match entry.action {
                Action::SegmentAlloc => {
                    pinned.insert(entry.addr);
                    level.pins += 1;
                    level.set(level.now + in_pages(entry.size));
                }
                Action::SegmentFree if pinned.remove(&entry.addr) => {
                    level.unpins += 1;
                    level.set(level.now - in_pages(entry.size));
                }
                _ => {}
            }
        }
        level.row(RECORDED)
    }

    fn run(&self, settings: &str, conf: PinnedConf, version: TorchVersion) -> PinnedRow {
        let mut pools: FxHashMap<PoolId, Pinned> = FxHashMap::default();
        let (mut live, mut level) = (FxHashMap::default(), Level::default());
        for entry in self.own() {
            let id = self.pool(entry);
            let pool = pools.entry(id).or_insert_with(|| Pinned::new(conf, version));
            let before = pool.driver();
            match entry.action {
                Action::Alloc => drop(live.insert((id, entry.addr), pool.alloc(entry.size))),
                Action::FreeCompleted => {
                    live.remove(&(id, entry.addr)).into_iter().for_each(|block| pool.free(block));
                }
                Action::SegmentFree if self.is_emptied(entry) => pool.empty_cache(),
                _ => continue,
            }
            let ((old_calls, old_bytes), (calls, bytes)) = (before, pool.driver());
            level.pins += (calls.allocated - old_calls.allocated) as u64;
            level.unpins += (calls.freed - old_calls.freed) as u64;
            level.set(level.now + bytes.current - old_bytes.current);
        }
        level.row(settings)
    }

    /// The same with our own allocator for pinned memory.
    fn run_exact(&self) -> PinnedRow {
        let (mut host, mut live) = (ExactPinned::default(), FxHashMap::default());
        let mut level = Level::default();
        for entry in self.own() {
            match entry.action {
                Action::Alloc => {
                    let at = host.take(entry.size).unwrap_or_else(|| {
                        level.unpins +=
                            std::iter::from_fn(|| host.evict_for(entry.size)).count() as u64;
                        level.pins += 1;
                        host.pin(level.pins, entry.size);
                        level.pins
                    });
                    live.insert(entry.addr, at);
                }
                Action::FreeCompleted => {
                    live.remove(&entry.addr).map(|at| host.put(at));
                }
                Action::SegmentFree if self.is_emptied(entry) => {
                    level.unpins += std::iter::from_fn(|| host.evict()).count() as u64;
                }
                _ => continue,
            }
            level.set(host.pinned() as i64);
        }
        level.row(ENABLED.0)
    }
}

/// Most bytes between requests and the completion of their frees.
fn most_in_use<'e>(
    entries: impl Iterator<Item = &'e Entry>,
    bytes: impl Fn(Bytes) -> Bytes,
) -> Bytes {
    let (mut live, mut now, mut peak) = (FxHashMap::default(), 0, 0);
    for entry in entries {
        match entry.action {
            Action::Alloc => {
                now += bytes(entry.size);
                now -= live.insert(entry.addr, bytes(entry.size)).unwrap_or(0);
            }
            Action::FreeCompleted => now -= live.remove(&entry.addr).unwrap_or(0),
            _ => {}
        }
        peak = peak.max(now);
    }
    peak
}

/// How much is pinned.
#[derive(Default)]
struct Level {
    now: i64,
    peak: i64,
    pins: u64,
    unpins: u64,
}

impl Level {
    fn set(&mut self, now: i64) {
        (self.now, self.peak) = (now, self.peak.max(now));
    }

    fn row(self, settings: &str) -> PinnedRow {
        PinnedRow {
            settings: settings.to_owned(),
            since: None,
            pinned_peak_bytes: self.peak as Bytes,
            pins: self.pins,
            unpins: self.unpins,
        }
    }
}
