//! A plan: an address for every block of a program that is known from beginning to end.
//!
//! Blocks are rectangles, time by memory, and must not overlap (dynamic storage allocation; the best plan is NP-hard to
//! find). The largest is placed first, each at the lowest address that is free throughout its life. What ends up above
//! the bound is then placed first, in front of all others, and so on (squeaky wheel optimisation): the best round
//! counts.
//!
//! ```text
//!   memory ▲    ┌──────┐           placed by size: 1 2 3 4
//!          │    │  4   │
//!          ├────┴──┬───┴─┐
//!          │   3   │  2  │
//!          ├───────┴─────┴───┐
//!          │        1        │
//!          └─────────────────┴──▶ time
//! ```
//!
//! Greedy by size is from Pisarchyk and Lee (2020), squeaky wheel optimisation from Joslin and Clements (1999).

use super::busy::Busy;
use crate::trace::Lifetime;
use crate::units::Bytes;

/// Rounds in which the order is changed.
const ROUNDS: usize = 12;

/// Where each block goes, from the beginning of the plan on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// In the order of the lifetimes; `None` for those that hold nothing.
    pub(super) places: Vec<Option<Bytes>>,
    /// The bytes that the plan takes.
    pub(super) height: Bytes,
}

/// The lifetime of one block in moments that matter: one begins when a block is asked for after others were let go of.
#[derive(Debug, Clone, Copy)]
struct Span {
    lower: usize,
    upper: usize,
    size: Bytes,
    /// Its number among the lifetimes.
    number: usize,
}

/// Makes the plan. Sizes are taken as they are.
pub(super) fn plan(lifetimes: &[Lifetime]) -> Plan {
    let (spans, moments) = spans(lifetimes);
    let bound = most_live(&spans, moments);
    let mut order: Vec<usize> = (0..spans.len()).collect();
    let length = |span: &Span| span.upper - span.lower;
    order.sort_by_key(|&at| std::cmp::Reverse((spans[at].size, length(&spans[at]))));
    let (mut best, mut height) = place(&spans, &order, moments);
    let mut last = best.clone();
    for _ in 0..ROUNDS {
        if height == bound {
            break;
        }
        let is_high = |&at: &usize| last[at] + spans[at].size > bound;
        let (mut high, low): (Vec<_>, Vec<_>) = order.into_iter().partition(is_high);
        high.extend(low);
        order = high;
        let (places, reached) = place(&spans, &order, moments);
        if reached < height {
            (best, height) = (places.clone(), reached);
        }
        last = places;
    }
    let mut places = vec![None; lifetimes.len()];
    spans.iter().zip(best).for_each(|(span, at)| places[span.number] = Some(at));
    Plan { places, height }
}

/// One round: first fit in the given order.
fn place(spans: &[Span], order: &[usize], moments: usize) -> (Vec<Bytes>, Bytes) {
    let (mut busy, mut places, mut height) = (Busy::new(moments), vec![0; spans.len()], 0);
    for &at in order {
        let Span { lower, upper, size, .. } = spans[at];
        places[at] = busy.take(lower, upper, size);
        height = height.max(places[at] + size);
    }
    (places, height)
}

/// The most bytes that live at one moment: no plan takes fewer.
fn most_live(spans: &[Span], moments: usize) -> Bytes {
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
    each.max().unwrap_or(0)
}

/// The lifetimes in moments, and how many moments there are.
fn spans(lifetimes: &[Lifetime]) -> (Vec<Span>, usize) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The obvious checks: no two blocks share a byte at a time, and the height is what they reach.
    fn check(lifetimes: &[Lifetime], plan: &Plan) {
        let mut reached = 0;
        for (one, a) in lifetimes.iter().enumerate() {
            let Some(at) = plan.places[one] else {
                assert!(a.lower >= a.upper, "{a:?} has no place");
                continue;
            };
            reached = reached.max(at + a.size);
            for (other, b) in lifetimes.iter().enumerate().skip(one + 1) {
                let Some(its) = plan.places[other] else { continue };
                let at_once = a.lower < b.upper && b.lower < a.upper;
                let share = at < its + b.size && its < at + a.size;
                assert!(!(at_once && share), "{a:?} at {at} and {b:?} at {its}");
            }
        }
        assert_eq!(plan.height, reached);
    }

    /// The most that lives at one time, the obvious way.
    fn bound(lifetimes: &[Lifetime]) -> Bytes {
        let at = |time: usize| {
            let live = lifetimes.iter().filter(|life| life.lower <= time && time < life.upper);
            live.map(|life| life.size).sum::<Bytes>()
        };
        lifetimes.iter().map(|life| at(life.lower)).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn no_two_blocks_share_a_byte_at_a_time(
            rows in prop::collection::vec((0..50_usize, 0..30_usize, 1..40_u64), 0..60),
        ) {
            let lives: Vec<_> = rows
                .into_iter()
                .map(|(lower, length, size)| Lifetime { lower, upper: lower + length, size })
                .collect();
            let made = plan(&lives);
            check(&lives, &made);
            prop_assert!(made.height >= bound(&lives));
            let (spans, moments) = spans(&lives);
            prop_assert_eq!(most_live(&spans, moments), bound(&lives));
        }
    }

    #[test]
    fn a_plan_of_nothing_takes_nothing() {
        assert_eq!(plan(&[]), Plan::default());
    }
}
