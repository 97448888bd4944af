//! A span: the lifetime of a block in moments that matter.
//!
//! A moment begins when a block is asked for after others were let go of. All blocks of one moment live at once.
//!
//! ```text
//!   malloc a   malloc b   free a   malloc c   free b   free c   malloc d
//!   ├────────── moment 0 ────────┤ ├─────── moment 1 ─────────┤ ├─ moment 2
//! ```

use gmlake_core::program::Lifetime;
use gmlake_core::units::Bytes;

/// The lifetime of one block in moments that matter: one begins when a block is asked for after others were let go of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// The moment in which it is asked for.
    pub(super) lower: usize,
    /// The first moment without it.
    pub(super) upper: usize,
    /// Bytes.
    pub(super) size: Bytes,
    /// Its number among the lifetimes.
    pub(super) number: usize,
}

impl Span {
    /// Moments.
    pub(super) fn length(&self) -> Bytes {
        (self.upper - self.lower) as Bytes
    }
}

/// The bytes that live at each moment: no plan takes fewer than the most of them.
pub(super) fn live(spans: &[Span], moments: usize) -> Vec<Bytes> {
    let (mut come, mut gone) = (vec![0; moments + 1], vec![0; moments + 1]);
    for span in spans {
        come[span.lower] += span.size;
        gone[span.upper] += span.size;
    }
    let mut live: Bytes = 0;
    let each = come.iter().zip(&gone).map(|(come, gone)| {
        live = live + come - gone;
        live
    });
    each.collect()
}

/// The lifetimes in moments, and how many moments there are.
pub(super) fn spans(lifetimes: &[Lifetime]) -> (Vec<Span>, usize) {
    let held = lifetimes.iter().enumerate().filter(|(_, life)| life.lower < life.upper);
    let held: Vec<(usize, &Lifetime)> = held.collect();
    // At one time, what ends comes before what begins.
    let ends = held.iter().map(|(_, life)| (life.upper, false));
    let begins = held.iter().map(|(_, life)| (life.lower, true));
    let mut changes: Vec<(usize, bool)> = ends.chain(begins).collect();
    changes.sort_unstable();
    changes.dedup();
    let (mut moment, mut was_begin) = (0, true);
    let mut moments = Vec::with_capacity(changes.len());
    for &(_, is_begin) in &changes {
        moment += usize::from(is_begin && !was_begin);
        was_begin = is_begin;
        moments.push(moment);
    }
    let moment_of = |change: (usize, bool)| {
        moments[changes.binary_search(&change).expect("it is among the changes")]
    };
    let span = |&(number, life): &(usize, &Lifetime)| {
        let (lower, last) = (moment_of((life.lower, true)), moment_of((life.upper, false)));
        Span { lower, upper: last + 1, size: life.size, number }
    };
    (held.iter().map(span).collect(), moment + 1)
}
