//! Stamps: every allocation of a run is written and read through its address.
//!
//! A stamp is made when memory is handed out. It is looked for when the client lets go, and once more when the streams
//! are done, for until then the memory may not be reused. An allocator that has waited for the whole GPU may know
//! earlier that the streams are done; the device counts these waits, and pending stamps of before are let go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::allocator::{Allocation, BlockId};
use crate::cuda::{DriverError, Painter, Stamp};
use crate::drive::{Observer, Step};
use crate::trace::EventKind;
use crate::units::Bytes;

/// What was found by looking.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verified {
    /// Allocations that were stamped.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Times that a stamp was looked for.
    pub checks: u64,
    /// Bytes that were not as written, in units of four.
    pub corrupted_bytes: Bytes,
    /// The first place where that was so.
    pub first_corruption: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Live {
    stamp: Stamp,
    /// Set once the client has let go: how often the device had been synchronised then.
    pending_since: Option<u64>,
}

/// The stamps on what an allocator handed out.
pub(super) struct Stamped {
    painter: Painter,
    synchronizations: Arc<AtomicU64>,
    live: FxHashMap<BlockId, Live>,
    pub(super) verified: Verified,
    /// Time spent on stamps, in nanoseconds.
    pub(super) elapsed_ns: u64,
    /// The first failure of the driver in writing or reading stamps.
    pub(super) error: Option<DriverError>,
}

impl Stamped {
    pub(super) fn new(painter: Painter, synchronizations: Arc<AtomicU64>) -> Self {
        Self {
            painter,
            synchronizations,
            live: FxHashMap::default(),
            verified: Verified::default(),
            elapsed_ns: 0,
            error: None,
        }
    }

    /// Looks for every stamp that is still there.
    pub(super) fn check_all(&mut self) {
        let mut blocks: Vec<_> = self.live.keys().copied().collect();
        blocks.sort_unstable();
        for block in blocks {
            self.check(block);
        }
    }

    fn stamp(&mut self, given: &Allocation) {
        let start = Instant::now();
        match self.painter.paint(given.at, given.size) {
            Ok(stamp) => {
                self.live.insert(given.block, Live { stamp, pending_since: None });
                self.verified.allocations += 1;
                self.verified.bytes += given.size;
            }
            Err(error) => drop(self.error.get_or_insert(error)),
        }
        self.elapsed_ns += start.elapsed().as_nanos() as u64;
    }

    fn check(&mut self, block: BlockId) {
        let Some(Live { stamp, pending_since }) = self.live.get(&block).copied() else { return };
        if pending_since.is_some_and(|waits| waits < self.synchronizations.load(Ordering::Relaxed))
        {
            return;
        }
        let start = Instant::now();
        match self.painter.check(&stamp) {
            Ok(wrong) => {
                self.verified.checks += 1;
                self.verified.corrupted_bytes += wrong;
                if wrong > 0 {
                    let (at, size) = (stamp.at, stamp.size);
                    let place = format!("{wrong} of {size} bytes at {at} are not as written");
                    self.verified.first_corruption.get_or_insert(place);
                }
            }
            Err(error) => drop(self.error.get_or_insert(error)),
        }
        self.elapsed_ns += start.elapsed().as_nanos() as u64;
    }
}

impl<D> Observer<D> for Stamped {
    /// Once the allocator has the block back, its memory may be gone.
    fn before(&mut self, step: &mut Step<'_, D>) {
        let Some(block) = step.block else { return };
        self.check(block);
        if step.event.kind != EventKind::FreeRequested {
            self.live.remove(&block);
        } else if let Some(live) = self.live.get_mut(&block) {
            live.pending_since = Some(self.synchronizations.load(Ordering::Relaxed));
        }
    }

    fn served(&mut self, step: &mut Step<'_, D>, given: Option<Allocation>) {
        let Some(given) = given else { return };
        self.stamp(&given);
        if step.event.kind == EventKind::Attempt {
            self.check(given.block);
            self.live.remove(&given.block);
        }
    }
}
