//! A job that runs again and again in one process: its trace, several times in a row.
//!
//! What an allocator has learnt, and how it has left its memory, meets the same job again. That shows whether host time
//! and memory grow with the length of a run, and whether a policy settles.
//!
//! ```text
//!   recorded    ▁▃▅▇▇▅▇▅▇▅      ends with a model that is still there
//!   repeated    ▁▃▅▇▇▅▇▅▇▅▁▃▅▇▇▅▇▅▇▅▁     what is left is freed at the end of each round
//! ```

use super::{AllocId, Event, EventKind, Step, Trace};

impl Trace {
    /// The trace this many times in a row, each time with new allocations. What is left at the end of a round is freed,
    /// in the order in which it was asked for. Moments and steps go on from round to round.
    ///
    /// # Panics
    /// If there would be more than 2^32 allocations.
    pub fn repeated(&self, rounds: u32) -> Self {
        let allocs = self.allocs.checked_mul(rounds).expect("at most 2^32 allocations");
        let round = self.closed();
        let mut long = Self { allocs, ..self.clone() };
        (long.events, long.times_us, long.steps) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..rounds {
            let (begin, us) = (long.events.len(), long.span_us());
            let event = |event: &Event| event.renumbered(number * self.allocs);
            let step = |step: &Step| Step { start: begin + step.start, end: begin + step.end };
            long.events.extend(round.events.iter().map(event));
            long.times_us.extend(round.times_us.iter().map(|at| us + at));
            long.steps.extend(round.steps.iter().map(step));
        }
        long
    }

    /// The trace, and frees of all that is left, at its last moment.
    fn closed(&self) -> Self {
        let mut closed = self.clone();
        closed.events.extend(self.left());
        if !self.times_us.is_empty() {
            closed.times_us.resize(closed.events.len(), self.span_us());
        }
        closed
    }

    /// Frees of all that is live or pending at the end.
    fn left(&self) -> impl Iterator<Item = Event> {
        let mut last = vec![None; self.allocs as usize];
        for event in self.events.iter().filter(|event| event.has_allocation()) {
            last[event.alloc.0 as usize] = Some(*event);
        }
        last.into_iter().flatten().filter_map(|event| {
            let kind = match event.kind {
                EventKind::Malloc => EventKind::Free,
                EventKind::FreeRequested => EventKind::FreeCompleted,
                _ => return None,
            };
            Some(Event { kind, ..event })
        })
    }
}

impl Event {
    /// Whether it is about an allocation that lives on, or did.
    fn has_allocation(self) -> bool {
        !matches!(self.kind, EventKind::Attempt | EventKind::Trim)
    }

    /// The same for an allocation that is this many numbers later.
    fn renumbered(self, by: u32) -> Self {
        let alloc = if self.has_allocation() { AllocId(self.alloc.0 + by) } else { self.alloc };
        Self { alloc, ..self }
    }
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashSet;

    use super::*;
    use crate::program::{PoolId, StreamId};

    fn event(kind: EventKind, alloc: u32) -> Event {
        let (stream, pool) = (StreamId(0), PoolId::DEFAULT);
        Event { size: 512, alloc: AllocId(alloc), stream, kind, pool }
    }

    /// Three allocations: one is freed, one waits for a stream, one is live in the end.
    fn trace() -> Trace {
        use EventKind::*;
        let events = [(Malloc, 0), (Malloc, 1), (Malloc, 2), (Attempt, 0), (Free, 1), (Trim, 0)];
        let events = events.into_iter().chain([(FreeRequested, 0)]);
        let events: Vec<_> = events.map(|(kind, alloc)| event(kind, alloc)).collect();
        let times_us = (0..events.len() as u64).map(|at| 10 * at).collect();
        Trace {
            events,
            times_us,
            allocs: 3,
            steps: vec![Step { start: 2, end: 5 }],
            ..Trace::default()
        }
    }

    #[test]
    fn each_round_is_the_recorded_one_with_new_allocations() {
        let (once, long) = (trace(), trace().repeated(3));
        assert_eq!((long.events.len(), long.times_us.len(), long.allocs), (27, 27, 9));
        for (number, round) in long.events.chunks(9).enumerate() {
            for (event, recorded) in round.iter().zip(&once.events) {
                assert_eq!(*event, recorded.renumbered(3 * number as u32));
            }
        }
        let starts: Vec<_> = long.steps.iter().map(|step| (step.start, step.end)).collect();
        assert_eq!(starts, [(2, 5), (11, 14), (20, 23)]);
        assert!(long.times_us.is_sorted(), "{:?}", long.times_us);
        assert_eq!(long.span_us(), 180);
    }

    #[test]
    fn nothing_is_left_after_a_round() {
        let mut live = FxHashSet::default();
        for (place, event) in trace().repeated(3).events.iter().enumerate() {
            match event.kind {
                EventKind::Malloc => assert!(live.insert(event.alloc), "{event:?} twice"),
                EventKind::Free | EventKind::FreeCompleted => {
                    assert!(live.remove(&event.alloc), "{event:?} of nothing");
                }
                _ => {}
            }
            assert!(place % 9 != 8 || live.is_empty(), "left: {live:?}");
        }
    }

    #[test]
    fn a_trace_without_times_stays_without() {
        let trace = Trace { times_us: Vec::new(), ..trace() };
        assert!(trace.repeated(2).times_us.is_empty());
    }
}
