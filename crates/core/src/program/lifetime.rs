//! A lifetime: how much memory a request takes, and from which event to which.
//!
//! ```text
//!   event      0  1  2  3  4  5
//!   malloc a   ├────────────┤         lower 0, upper 4: from event 4 on its place may be used again
//!   malloc b         ├────────── ...  never freed: it lives to the end of the trace
//! ```

use super::{EventKind, Trace};
use crate::units::Bytes;

/// When a request's memory is in use, in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// The event that asks for it.
    pub lower: usize,
    /// The event from which on its place may be used again; that of the request, if it holds nothing.
    pub upper: usize,
    /// Bytes, as requested.
    pub size: Bytes,
    /// Steps that have begun by the request: 0 before the first one, and one more than there are behind the last.
    pub step: usize,
}

/// The lifetime of every request of a trace, in their order. Requests that failed in the recording hold nothing.
pub fn lifetimes(trace: &Trace) -> Vec<Lifetime> {
    let mut lifetimes: Vec<Lifetime> = Vec::new();
    let mut steps: Vec<usize> = trace.steps.iter().map(|step| step.start).collect();
    steps.extend(trace.steps.last().map(|step| step.end));
    let mut row_of = vec![usize::MAX; trace.allocs as usize];
    for (lower, event) in trace.events.iter().enumerate() {
        let size = event.size;
        let step = steps.partition_point(|&begin| begin <= lower);
        match event.kind {
            EventKind::Malloc => {
                row_of[event.alloc.0 as usize] = lifetimes.len();
                lifetimes.push(Lifetime { lower, upper: trace.events.len(), size, step });
            }
            EventKind::Attempt => lifetimes.push(Lifetime { lower, upper: lower, size, step }),
            EventKind::Free | EventKind::FreeCompleted => {
                if let Some(row) = lifetimes.get_mut(row_of[event.alloc.0 as usize]) {
                    row.upper = lower;
                }
            }
            EventKind::FreeRequested | EventKind::Trim => {}
        }
    }
    lifetimes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::synthetic::Program;

    /// The most bytes that live at one time, the obvious way.
    fn most_live(rows: &[Lifetime], events: usize) -> Bytes {
        let live = |at: &usize| -> Bytes {
            rows.iter().filter(|row| (row.lower..row.upper).contains(at)).map(|row| row.size).sum()
        };
        (0..events).map(|at| live(&at)).max().unwrap_or(0)
    }

    #[test]
    fn what_lives_at_a_time_is_what_the_trace_holds_then() {
        for program in Program::ALL {
            let trace = program.generate(7, 1000);
            let (mut now, mut peak) = (0, 0);
            let mut size_of = vec![0; trace.allocs as usize];
            for event in &trace.events {
                // Attempts and flushes are of no allocation.
                let Some(size) = size_of.get_mut(event.alloc.0 as usize) else { continue };
                match event.kind {
                    EventKind::Malloc => {
                        *size = event.size;
                        now += event.size;
                    }
                    EventKind::Free | EventKind::FreeCompleted => now -= std::mem::take(size),
                    _ => {}
                }
                peak = peak.max(now);
            }
            assert_eq!(most_live(&lifetimes(&trace), trace.events.len()), peak, "{program:?}");
        }
    }
}
