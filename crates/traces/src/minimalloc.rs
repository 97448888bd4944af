//! Lifetimes for offline placement, in the CSV of `minimalloc` (Moffitt, ASPLOS 2023) and its relatives.
//!
//! ```text
//!   id,lower,upper,size        lower: the event that asks for it; upper: the event from which on its place may be
//!   b0,0,7,1049088             used again. size: bytes, as requested. Time is counted in events.
//! ```

use std::io::{self, Write};

use super::Trace;
use super::{Lifetime, lifetimes};

/// Writes when each allocation of a trace lives, and how large it is. Those that are never freed live to the end.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_minimalloc(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    out.write_all(b"id,lower,upper,size\n")?;
    let held = lifetimes(trace).into_iter().filter(|lifetime| lifetime.lower < lifetime.upper);
    for (id, Lifetime { lower, upper, size }) in held.enumerate() {
        writeln!(out, "b{id},{lower},{upper},{size}")?;
    }
    out.flush()
}
