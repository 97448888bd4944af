//! PyTorch's decisions about pinned memory, made again.
//!
//! The requests and the moments at which blocks become free are the recording's. Which block a request gets, whether
//! one is pinned for it, and what is given back at once is the model's.

use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::{PinnedError, PinnedRecording};
use crate::alloc_conf::TorchVersion;
use crate::trace::{Action, Coverage, Entry, PoolId};
use crate::verify::Difference;
use gmlake_allocators::pinned::{Pinned, PinnedBlock};

/// Differences that are kept.
const KEPT: usize = 20;

/// How the model's decisions compare with a recording's.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PinnedVerification {
    /// The file as given.
    pub file: String,
    /// How much of the job it shows.
    pub coverage: Coverage,
    /// The version of PyTorch that is simulated.
    pub torch_version: TorchVersion,
    /// Entries of the recording.
    pub entries: u64,
    /// Requests.
    pub requests: u64,
    /// Blocks that were pinned for them.
    pub pins: u64,
    /// Blocks that the program pinned itself, which are left out.
    pub foreign: u64,
    /// Requests that got a block from before the recording, which are left out.
    pub unseen: u64,
    /// Requests that the model serves otherwise, and moments at which it holds other memory.
    pub differences: u64,
    /// The first of them.
    pub first_differences: Vec<Difference>,
    /// Time that it took, in nanoseconds.
    pub elapsed_ns: u64,
}

/// PyTorch's pool and ours.
#[derive(Debug)]
struct Pool {
    model: Pinned,
    /// Where each of the model's blocks is.
    places: FxHashMap<PinnedBlock, u64>,
    /// Where PyTorch pinned blocks since the recording began.
    known: FxHashSet<u64>,
    /// The blocks in use.
    live: FxHashMap<u64, PinnedBlock>,
    /// Where the last new block was pinned, until it is handed out.
    fresh: Option<u64>,
    /// Bytes that PyTorch holds.
    held: i64,
}

impl PinnedRecording {
    /// Makes every decision again.
    ///
    /// # Errors
    /// If the file has requests, but no decisions.
    pub fn verify(&self) -> Result<PinnedVerification, PinnedError> {
        if !self.has_blocks {
            return Err(PinnedError::NoDecisions(self.file.clone()));
        }
        let start = Instant::now();
        let mut pools: FxHashMap<PoolId, Pool> = FxHashMap::default();
        let entries = &self.records.entries;
        let mut found = PinnedVerification {
            file: self.file.clone(),
            coverage: self.coverage(),
            torch_version: self.version,
            entries: entries.len() as u64,
            ..PinnedVerification::default()
        };
        for (number, entry) in entries.iter().enumerate() {
            if self.is_foreign(entry) {
                found.foreign += u64::from(entry.action == Action::Alloc);
                continue;
            }
            let new = || Pool {
                model: Pinned::new(self.conf, self.version),
                places: FxHashMap::default(),
                known: FxHashSet::default(),
                live: FxHashMap::default(),
                fresh: None,
                held: 0,
            };
            let pool = pools.entry(entry.pool).or_insert_with(new);
            if entry.action != Action::SegmentAlloc && !pool.known.contains(&entry.addr) {
                found.unseen += u64::from(entry.action == Action::Alloc);
                continue;
            }
            self.step(pool, entry, &mut |recorded, model| {
                found.differences += 1;
                if found.first_differences.len() < KEPT {
                    found.first_differences.push(Difference { entry: number, recorded, model });
                }
            });
            found.requests += u64::from(entry.action == Action::Alloc);
            found.pins += u64::from(entry.action == Action::SegmentAlloc);
        }
        found.elapsed_ns = start.elapsed().as_nanos() as u64;
        Ok(found)
    }

    fn step(&self, pool: &mut Pool, entry: &Entry, differ: &mut dyn FnMut(String, String)) {
        match entry.action {
            Action::SegmentAlloc => {
                pool.held += entry.size as i64;
                pool.fresh = Some(entry.addr);
                pool.known.insert(entry.addr);
            }
            Action::SegmentFree => {
                pool.held -= entry.size as i64;
                pool.known.remove(&entry.addr);
                if self.is_emptied(entry) {
                    pool.model.empty_cache();
                }
            }
            Action::Alloc => {
                let recorded = match pool.fresh.take() {
                    Some(addr) if addr == entry.addr => "pins a new block".to_owned(),
                    _ => format!("takes the block at {:#x}", entry.addr),
                };
                let block = pool.model.alloc(entry.size);
                let model = match pool.places.get(&block) {
                    None => "pins a new block".to_owned(),
                    Some(addr) => format!("takes the block at {addr:#x}"),
                };
                pool.places.insert(block, entry.addr);
                pool.live.insert(entry.addr, block);
                let held = pool.model.stats().allocated_bytes.current;
                if recorded != model {
                    differ(recorded, model);
                } else if held != pool.held {
                    differ(format!("holds {} bytes", pool.held), format!("holds {held} bytes"));
                }
            }
            Action::FreeCompleted => {
                if let Some(block) = pool.live.remove(&entry.addr) {
                    pool.model.free(block);
                }
            }
            _ => {}
        }
    }
}
