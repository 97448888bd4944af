//! The out-of-memory of a recording, from the recording alone: nothing is simulated for it.

use serde::Serialize;

use super::names::Namer;
use super::rows::By;
use crate::sim::Opened;
use crate::trace::{Entry, live};
use crate::units::Bytes;
use crate::verify::most_in;

/// Why a request was refused, as far as the recording tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shortfall {
    /// More would have been live than there was.
    TooMuch,
    /// More would have been live than the limit that is simulated; the real one may have been a little higher.
    Unclear,
    /// There was enough, but not in one free block of the right pool and stream.
    Fragmented,
    /// PyTorch kept the cache of other pools, since a `MemPool` or the capture of a CUDA graph was active.
    CacheKept,
    /// The driver had enough: something else refused.
    NotShort,
    /// The driver had enough: PyTorch's memory limit refused, which is below what would be live.
    Limited,
}

/// The first request that ran out of memory in a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedOom {
    /// Index of the event.
    pub event: u64,
    /// Its training step, from 1; the unfinished one counts.
    pub step: Option<u64>,
    /// The line that requested it, if call stacks tell.
    pub line: Option<String>,
    /// The user's own line that called it, if that is another one.
    pub own_line: Option<String>,
    /// Bytes requested.
    pub requested_bytes: Bytes,
    /// Bytes that PyTorch held then.
    pub reserved_bytes: Bytes,
    /// Bytes of these that lay in free blocks.
    pub unused_bytes: Bytes,
    /// Bytes that were live then, without what rounding added.
    pub live_bytes: Bytes,
    /// Bytes that the driver had left, if the recording tells.
    pub device_free_bytes: Option<Bytes>,
    /// Bytes that PyTorch requested from the driver for it: a whole segment, or pages.
    pub driver_request_bytes: Bytes,
    /// Bytes that the process could have had, if that is known.
    pub memory_bytes: Option<Bytes>,
    /// Why it was refused.
    pub shortfall: Shortfall,
}

impl RecordedOom {
    /// Bytes that were held and in no block in use; `None` if they are hardly any.
    pub fn free_bytes(&self) -> Option<Bytes> {
        let free = self.unused_bytes;
        Some(free).filter(|&free| free > 0 && free >= self.reserved_bytes / 1000)
    }

    /// Bytes that the driver could still have given, if that is known.
    pub fn left_bytes(&self) -> Option<Bytes> {
        let unreserved = || self.memory_bytes?.checked_sub(self.reserved_bytes);
        self.device_free_bytes.or_else(unreserved)
    }
}

/// The first request that ran out in the recording, if one did.
pub(crate) fn recorded_oom(opened: &Opened) -> Option<RecordedOom> {
    let event = opened.first_failure()?;
    let refused = opened.refused?;
    let requested = opened.trace.events[event].size;
    let before = event.checked_sub(1).and_then(|last| live(&opened.trace).nth(last));
    let live = before.unwrap_or_default().bytes;
    let memory = opened.limit.or(opened.capacity);
    // Where only a range is known, as much as there may have been.
    let most = opened.memory_range.as_ref().map(most_in).or(memory);
    let shortfall = match most {
        None if refused.was_there() => Shortfall::NotShort,
        Some(most) if live + requested > most => match refused.was_there() {
            true => Shortfall::Limited,
            false => Shortfall::TooMuch,
        },
        _ if opened.kept_cache => Shortfall::CacheKept,
        _ if memory.is_some_and(|memory| live + requested > memory) => Shortfall::Unclear,
        _ => Shortfall::Fragmented,
    };
    let (line, own_line) = lines(opened, event).unzip();
    Some(RecordedOom {
        event: event as u64,
        step: opened.step_of(event),
        line,
        own_line: own_line.flatten(),
        requested_bytes: requested,
        reserved_bytes: refused.held,
        unused_bytes: refused.free,
        live_bytes: live,
        device_free_bytes: refused.device_free,
        driver_request_bytes: refused.needed,
        memory_bytes: memory,
        shortfall,
    })
}

/// The line that requested it, and the user's own line behind it.
fn lines(opened: &Opened, event: usize) -> Option<(String, Option<String>)> {
    let has_stack =
        opened.records.stacks.has_frames() && opened.trace.stack_of(event) != Entry::NO_STACK;
    let size = opened.trace.events.get(event)?.size;
    has_stack.then(|| {
        let mut namer = Namer::new(opened, By::Line, false);
        let line = namer.name(event, size);
        let own = namer.own_of_event(event, &line);
        (line, own)
    })
}
