//! Live bytes: what a program has requested and not yet given back, whatever the allocator.

use std::ops::Range;

use super::{EventKind, Trace};
use crate::units::Bytes;

/// What is live at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LiveBytes {
    /// Bytes that were requested, unrounded, and whose free is not complete.
    pub bytes: Bytes,
    /// Blocks.
    pub blocks: u64,
    /// Those of the bytes that the program has given back, and that another stream may still read.
    pub pending: Bytes,
}

/// The bytes of a block that is live, and whether the program has given it back. There are as many as allocations.
#[derive(Clone, Copy)]
struct BlockSize(u64);

/// No block has as many bytes.
const PENDING: u64 = 1 << 63;

impl BlockSize {
    fn bytes(self) -> Bytes {
        self.0 & !PENDING
    }

    fn is_pending(self) -> bool {
        self.0 & PENDING != 0
    }
}

/// What is live after each event. Everything that speaks of live bytes counts them here.
pub fn live(trace: &Trace) -> impl Iterator<Item = LiveBytes> {
    let mut sizes = vec![BlockSize(0); trace.allocs as usize];
    trace.events.iter().scan(LiveBytes::default(), move |live, event| {
        let place = event.alloc.0 as usize;
        match event.kind {
            EventKind::Malloc => {
                sizes[place] = BlockSize(event.size);
                (live.bytes, live.blocks) = (live.bytes + event.size, live.blocks + 1);
            }
            EventKind::FreeRequested => {
                live.pending += if sizes[place].is_pending() { 0 } else { sizes[place].bytes() };
                sizes[place].0 |= PENDING;
            }
            EventKind::Free | EventKind::FreeCompleted => {
                let size = std::mem::replace(&mut sizes[place], BlockSize(0));
                live.bytes -= size.bytes();
                live.pending -= if size.is_pending() { size.bytes() } else { 0 };
                live.blocks = live.blocks.saturating_sub(1);
            }
            EventKind::Attempt | EventKind::Trim => {}
        }
        Some(*live)
    })
}

/// The first event of a range after which most bytes are live, and what is live then; `None` of an empty range.
pub fn most_live(trace: &Trace, range: Range<usize>) -> Option<(usize, LiveBytes)> {
    let states = live(trace).enumerate().take(range.end).skip(range.start);
    states.reduce(|most, state| if state.1.bytes > most.1.bytes { state } else { most })
}

/// The peak of live bytes, or 0.
pub fn peak_live_bytes(trace: &Trace) -> Bytes {
    most_live(trace, 0..trace.events.len()).map_or(0, |(_, live)| live.bytes)
}

/// The least memory that any allocator needs. What is pending does not count: an allocator that runs short can wait for
/// the stream. What was refused counts, since the program asked for it.
pub fn least_memory(trace: &Trace) -> Bytes {
    // What was given back before the recording began follows behind what was live then.
    let states = live(trace).zip(&trace.events).skip(trace.start_events.saturating_sub(1));
    let needed = states.map(|(live, event)| {
        let refused = if event.kind == EventKind::Attempt { event.size } else { 0 };
        live.bytes - live.pending + refused
    });
    needed.max().unwrap_or(0)
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
            event(EventKind::Attempt, 2, 2),
            event(EventKind::Free, 1, 15),
            event(EventKind::Malloc, 2, 3),
        ];
        let states: Vec<_> = live(&trace).map(|s| (s.bytes, s.blocks, s.pending)).collect();
        let expected =
            [(10, 1, 0), (10, 1, 10), (25, 2, 10), (15, 1, 0), (15, 1, 0), (0, 0, 0), (3, 1, 0)];
        assert_eq!(states, expected);
        assert_eq!(peak_live_bytes(&trace), 25);
        assert_eq!(most_live(&trace, 3..7).map(|(event, _)| event), Some(3));
        assert_eq!(least_memory(&trace), 17, "what was given back is not in use");
    }
}
