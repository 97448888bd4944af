//! The least memory that any allocator needs: less than the peak of live bytes where frees wait for other streams.

use crate::trace::{EventKind, Trace};
use crate::units::Bytes;

/// Most bytes that were in use at any time. A block that the program has given back, and that another stream may still
/// read, does not count: an allocator that runs short can wait for that stream.
pub(crate) fn least_memory(trace: &Trace) -> Bytes {
    let mut sizes: Vec<Bytes> = vec![0; trace.allocs as usize];
    let (mut live, mut peak) = (0, 0);
    for (index, event) in trace.events.iter().enumerate() {
        match event.kind {
            EventKind::Malloc => {
                sizes[event.alloc.0 as usize] = event.size;
                live += event.size;
                // What was given back before the recording began follows behind what was live then.
                peak = if index < trace.start_events { peak } else { live.max(peak) };
            }
            EventKind::Attempt => peak = (live + event.size).max(peak),
            EventKind::Free | EventKind::FreeRequested | EventKind::FreeCompleted => {
                live -= std::mem::take(&mut sizes[event.alloc.0 as usize]);
            }
            EventKind::Trim => {}
        }
        if index + 1 == trace.start_events {
            peak = live;
        }
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{AllocId, Event, PoolId, StreamId};

    #[test]
    fn what_was_given_back_is_not_in_use() {
        let event = |kind, alloc, size| Event {
            size,
            alloc: AllocId(alloc),
            stream: StreamId(0),
            kind,
            pool: PoolId::DEFAULT,
        };
        let mut trace = Trace { allocs: 3, ..Trace::default() };
        trace.events = vec![
            event(EventKind::Malloc, 0, 10),
            event(EventKind::FreeRequested, 0, 10),
            event(EventKind::Malloc, 1, 15),
            event(EventKind::FreeCompleted, 0, 10),
            event(EventKind::Attempt, 2, 2),
            event(EventKind::Free, 1, 15),
            event(EventKind::Malloc, 2, 3),
        ];
        assert_eq!(least_memory(&trace), 17);
    }
}
