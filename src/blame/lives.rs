//! History: every block and every segment of a run, each with its place and its life.
//!
//! ```text
//!   address ▲   ┌───────────────── segment ──────────────────┐
//!           │   │  ┌── block ──┐        ┌──── block ────┐    │
//!           └───┴──┴───────────┴────────┴───────────────┴────┴──▶ events
//!                  born        died
//! ```
//!
//! What is live at an event, and where, follows from the lives alone: whoever was born at it or before, and died after.

use super::categories::Category;
use crate::trace::{PoolId, StreamId};
use crate::units::Bytes;

/// An event's number; [`Life::NEVER`] is after all events.
pub type EventIndex = u32;

/// From when to when something was there, in numbers of events: the first at which it was, the first at which it was no
/// more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// The event that began it; 0 if it was there before the first one.
    pub born: EventIndex,
    /// The event that ended it.
    pub died: EventIndex,
}

impl Life {
    /// It was there at the end.
    pub const NEVER: EventIndex = EventIndex::MAX;

    /// Whether it was there when `event` was over.
    pub fn covers(self, event: EventIndex) -> bool {
        (self.born..self.died).contains(&event)
    }
}

/// A block that the program was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockLife {
    /// Where it was.
    pub at: u64,
    /// Its size.
    pub bytes: Bytes,
    /// What the program asked for.
    pub requested: Bytes,
    /// When it was there.
    pub life: Life,
    /// When the program let go of it: before it died, if another stream still used it.
    pub let_go: EventIndex,
    /// Place in [`History::origins`].
    pub origin: u32,
}

/// A range of addresses with memory under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLife {
    /// Where it begins.
    pub at: u64,
    /// Its size.
    pub bytes: Bytes,
    /// When it was held.
    pub life: Life,
    /// The stream that it was obtained for.
    pub stream: StreamId,
    /// The pool that it was obtained for.
    pub pool: PoolId,
}

/// Who asked for a block, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Place in [`History::stacks`].
    pub stack: u32,
    /// What it is for.
    pub category: Category,
    /// The stream.
    pub stream: StreamId,
    /// The pool.
    pub pool: PoolId,
}

/// A call stack in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NamedStack {
    /// The frames, innermost first, as `file:line function`; or one sentence that says why there are none.
    pub frames: Vec<String>,
    /// Which of them names the block: the innermost one that a user can change.
    pub named: usize,
}

/// All that a run held, from the first event to the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The allocator.
    pub allocator: String,
    /// How many events there are.
    pub events: EventIndex,
    /// Events and their times in microseconds since the first, with a straight line between one and the next; empty if
    /// there are no times.
    pub times_us: Vec<(EventIndex, u64)>,
    /// Blocks in order of their requests.
    pub blocks: Vec<BlockLife>,
    /// Segments in order of their beginnings.
    pub segments: Vec<SegmentLife>,
    /// The different origins of blocks.
    pub origins: Vec<Origin>,
    /// The different call stacks.
    pub stacks: Vec<NamedStack>,
    /// Whether any of them has frames.
    pub has_stacks: bool,
    /// Requests that were not served: event and bytes.
    pub ooms: Vec<(EventIndex, Bytes)>,
    /// Whether the recording is the state at one moment alone, without events of its own.
    pub is_state: bool,
    /// First event of each training step.
    pub steps: Vec<EventIndex>,
}
