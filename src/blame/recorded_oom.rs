//! The out-of-memory of a recording, from the recording alone: nothing is simulated for it.

use super::data::{By, RecordedOom, Shortfall};
use super::names::Namer;
use crate::sim::Opened;
use crate::trace::{Entry, live};
use crate::verify::most_in;

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
        Some(most) if live + requested > most => Shortfall::TooMuch,
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
