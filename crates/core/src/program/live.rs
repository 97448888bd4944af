//! Live bytes: what a program has requested and not yet given back, whatever the allocator.

use super::{EventKind, Trace};
use crate::units::Bytes;

/// Live bytes and blocks after each event. A block is live from its request until its free is complete; bytes are those
/// that were requested, unrounded. Everything that speaks of live bytes counts them here, or as it is done here.
pub fn live(trace: &Trace) -> impl Iterator<Item = (Bytes, u64)> {
    let mut sizes: Vec<Bytes> = vec![0; trace.allocs as usize];
    trace.events.iter().scan((0, 0), move |(live, blocks), event| {
        let place = event.alloc.0 as usize;
        match event.kind {
            EventKind::Malloc => {
                sizes[place] = event.size;
                (*live, *blocks) = (*live + event.size, *blocks + 1);
            }
            EventKind::Free | EventKind::FreeCompleted => {
                *live -= std::mem::take(&mut sizes[place]);
                *blocks = u64::saturating_sub(*blocks, 1);
            }
            EventKind::FreeRequested | EventKind::Attempt | EventKind::Trim => {}
        }
        Some((*live, *blocks))
    })
}

/// The most bytes that were live, or 0.
#[must_use]
pub fn peak_live_bytes(trace: &Trace) -> Bytes {
    live(trace).map(|(bytes, _)| bytes).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{AllocId, Event, PoolId, StreamId};

    #[test]
    fn a_block_is_live_until_its_free_is_complete() {
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
            event(EventKind::Attempt, 2, 100),
            event(EventKind::Free, 1, 15),
        ];
        let states: Vec<_> = live(&trace).collect();
        assert_eq!(states, [(10, 1), (10, 1), (25, 2), (15, 1), (15, 1), (0, 0)]);
        assert_eq!(peak_live_bytes(&trace), 25);
    }
}
