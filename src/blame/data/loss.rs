//! Loss: what an allocator holds at its peak beyond what was asked for, by cause and by the line that it is due to.
//!
//! ```text
//!   a hole        [ block of line 84 ][ hole ][ block of line 30 ]   half of it to each: both keep it from growing
//!   a free segment [    free, last used by line 84                ]   line 84 left it behind
//!   rounding      [ asked for by line 30 ▒▒ ]                          line 30 asked for it
//! ```
//!
//! The rows of a cause add up to the bytes of that cause ([`Causes`](super::Causes)), to the byte.

use serde::Serialize;

use super::rows::By;
use crate::run::Cause;
use crate::units::Bytes;

/// Lost bytes of one cause and one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LossRow {
    /// The cause, by its short name.
    pub cause: &'static str,
    /// The line (or the like) that the bytes are due to.
    pub name: String,
    /// The bytes.
    pub bytes: Bytes,
    /// Pieces of memory that they lie in; a hole counts for each of its neighbours.
    pub pieces: u64,
    /// The largest of these, in bytes, whole.
    pub largest_bytes: Bytes,
}

/// The request that made the allocator hold more than ever before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LossGrowth {
    /// The line (or the like) that asked.
    pub name: String,
    /// Bytes asked for.
    pub requested_bytes: Bytes,
    /// Bytes of the largest free block then, of any pool and stream; 0 if there was none.
    pub largest_free_bytes: Bytes,
}

/// What one call of `torch.cuda.empty_cache()` would have changed, as simulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Emptied {
    /// Index of the event behind which it is called: the last of the cached memory was then freed.
    pub event: u64,
    /// Training step of that event, from 1.
    pub step: Option<u64>,
    /// Most bytes that are then held at any moment of the run.
    pub reserved_bytes: Bytes,
}

/// What an allocator lost at its peak.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The trace file, as given.
    pub file: String,
    /// Index of the device in that file.
    pub device: u32,
    /// The allocator.
    pub allocator: String,
    /// Its options that differ from the defaults, as `name=value`.
    pub options: Vec<String>,
    /// Index of the event at which it held most; `None`: before the first.
    pub event: Option<u64>,
    /// Training step of that event, from 1.
    pub step: Option<u64>,
    /// Bytes held from the device.
    pub reserved_bytes: Bytes,
    /// Bytes asked for by the program.
    pub live_bytes: Bytes,
    /// Most bytes asked for at any moment of the run, be it another one.
    pub live_peak_bytes: Bytes,
    /// The difference: the sum of all rows.
    pub lost_bytes: Bytes,
    /// The kind of name.
    pub by: By,
    /// The request that forced the growth.
    pub growth: Option<LossGrowth>,
    /// The rows, by cause in the order of the report, the largest first.
    pub rows: Vec<LossRow>,
    /// Most bytes that PyTorch would hold with expandable segments, which is a setting; `None` if it has that already.
    pub expandable_bytes: Option<Bytes>,
    /// What emptying the cache would change, where a small request cannot use what is cached; `None`: not tried, or it
    /// leaves requests unserved.
    pub emptied: Option<Emptied>,
}

impl Loss {
    /// Bytes that no allocator could save, since they were live at another moment.
    pub fn needed_later_bytes(&self) -> Bytes {
        self.live_peak_bytes.saturating_sub(self.live_bytes).min(self.lost_bytes)
    }

    /// Bytes that an allocator could save at most.
    pub fn savable_bytes(&self) -> Bytes {
        self.lost_bytes - self.needed_later_bytes()
    }

    /// Whether saving so many bytes is worth a change: 5 % of what is held.
    pub fn is_worth_it(&self, bytes: Bytes) -> bool {
        bytes.saturating_mul(20) >= self.reserved_bytes
    }

    /// The cause of most lost bytes, if it is worth a change.
    pub fn cause_worth_a_change(&self) -> Option<Cause> {
        let worst = Cause::ALL.into_iter().max_by_key(|&cause| self.bytes(cause));
        let is_worth_it = |bytes| self.is_worth_it(bytes);
        worst.filter(|&cause| is_worth_it(self.savable_bytes()) && is_worth_it(self.bytes(cause)))
    }

    /// Bytes with this cause.
    pub fn bytes(&self, cause: Cause) -> Bytes {
        self.rows_of(cause).map(|row| row.bytes).sum()
    }

    /// The rows with this cause, the largest first.
    pub fn rows_of(&self, cause: Cause) -> impl Iterator<Item = &LossRow> {
        self.rows.iter().filter(move |row| row.cause == cause.name())
    }
}
