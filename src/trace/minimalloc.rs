//! Lifetimes for offline placement, in the CSV of `minimalloc` (Moffitt, ASPLOS 2023) and its relatives.
//!
//! ```text
//!   id,lower,upper,size        lower: the event that asks for it; upper: the event from which on its place may be
//!   b0,0,7,1049088             used again. size: bytes, as requested. Time is counted in events.
//! ```

use std::io::{self, Write};

use super::{EventKind, Trace};
use crate::units::Bytes;

/// One row of the file.
struct Lifetime {
    lower: usize,
    upper: usize,
    size: Bytes,
}

/// Writes when each allocation of a trace lives, and how large it is. Those that are never freed live to the end.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_minimalloc(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    out.write_all(b"id,lower,upper,size\n")?;
    for (id, lifetime) in lifetimes(trace).iter().enumerate() {
        let Lifetime { lower, upper, size } = lifetime;
        writeln!(out, "b{id},{lower},{upper},{size}")?;
    }
    out.flush()
}

/// In the order of the requests. Requests that failed in the recording hold nothing and are left out.
fn lifetimes(trace: &Trace) -> Vec<Lifetime> {
    let mut lifetimes: Vec<Lifetime> = Vec::new();
    let mut row_of = vec![usize::MAX; trace.allocs as usize];
    for (at, event) in trace.events.iter().enumerate() {
        match event.kind {
            EventKind::Malloc => {
                row_of[event.alloc.0 as usize] = lifetimes.len();
                let upper = trace.events.len();
                lifetimes.push(Lifetime { lower: at, upper, size: event.size });
            }
            EventKind::Free | EventKind::FreeCompleted => {
                if let Some(row) = lifetimes.get_mut(row_of[event.alloc.0 as usize]) {
                    row.upper = at;
                }
            }
            EventKind::Attempt | EventKind::FreeRequested | EventKind::Trim => {}
        }
    }
    lifetimes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::synthetic::Program;

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
