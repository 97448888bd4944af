//! A plan: an address for every block of a program that is known from beginning to end.
//!
//! Blocks are rectangles, time by memory, and must not overlap (dynamic storage allocation; the best plan is NP-hard to
//! find). They are placed one after the other, each at the lowest address that is free throughout its life: the largest
//! first, or those that live when most is live, or the longest; the lowest plan counts. As long as it is above the
//! bound, what ended up there comes earlier in the next round (squeaky wheel optimisation).
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
use super::crowds::Crowds;
use crate::trace::Lifetime;
use crate::units::Bytes;

/// Rounds in which the order is changed.
const ROUNDS: usize = 16;
/// A plan that is above the bound by less than this part of it is not worth another round.
const CLOSE: Bytes = 1000;

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

impl Span {
    fn length(&self) -> Bytes {
        (self.upper - self.lower) as Bytes
    }
}

/// Makes the plan. Sizes are taken as they are.
pub(super) fn plan(lifetimes: &[Lifetime]) -> Plan {
    let (spans, moments) = spans(lifetimes);
    let live = live(&spans, moments);
    let bound = live.iter().copied().max().unwrap_or(0);
    let mut best = Round::default();
    for order in orders(&spans, &live) {
        if best.order.is_empty() || best.height > bound {
            best = best.or_better(place(&spans, order, moments));
        }
    }
    let mut last = best.clone();
    for _ in 0..ROUNDS {
        if best.height - bound <= bound / CLOSE {
            break;
        }
        last = place(&spans, last.blaming(&spans, bound), moments);
        best = best.or_better(last.clone());
    }
    let mut places = vec![None; lifetimes.len()];
    spans.iter().zip(&best.places).for_each(|(span, &at)| places[span.number] = Some(at));
    Plan { places, height: best.height }
}

/// Orders to begin with, each of which is the best one for some programs.
fn orders(spans: &[Span], live: &[Bytes]) -> impl Iterator<Item = Vec<usize>> {
    let crowds = Crowds::new(live);
    let crowd: Vec<Bytes> = spans.iter().map(|span| crowds.most(span.lower, span.upper)).collect();
    let keys = move |kind: usize, at: usize| {
        let (size, length, crowd) = (spans[at].size, spans[at].length(), crowd[at]);
        match kind {
            0 => (size, length, 0),
            1 => (size, crowd, 0),
            2 => (crowd, length, size),
            _ => (length, size, 0),
        }
    };
    (0..4).map(move |kind| {
        let mut order: Vec<usize> = (0..spans.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(keys(kind, at)));
        order
    })
}

/// An order, where it puts each block, and how high they reach.
#[derive(Debug, Clone, Default)]
struct Round {
    order: Vec<usize>,
    places: Vec<Bytes>,
    height: Bytes,
}

impl Round {
    fn or_better(self, other: Self) -> Self {
        if self.order.is_empty() || other.height < self.height { other } else { self }
    }

    /// The same order, but what ended above the bound comes in half the time.
    fn blaming(&self, spans: &[Span], bound: Bytes) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.order.len());
        for (rank, &at) in self.order.iter().enumerate() {
            let is_high = self.places[at] + spans[at].size > bound;
            order.push((if is_high { rank / 2 } else { rank }, !is_high, at));
        }
        order.sort_by_key(|&(rank, is_low, _)| (rank, is_low));
        order.into_iter().map(|(_, _, at)| at).collect()
    }
}

/// One round: first fit in the given order.
fn place(spans: &[Span], order: Vec<usize>, moments: usize) -> Round {
    let (mut busy, mut places, mut height) = (Busy::new(moments), vec![0; spans.len()], 0);
    for &at in &order {
        let Span { lower, upper, size, .. } = spans[at];
        places[at] = busy.take(lower, upper, size);
        height = height.max(places[at] + size);
    }
    Round { order, places, height }
}

/// The bytes that live at each moment: no plan takes fewer than the most of them.
fn live(spans: &[Span], moments: usize) -> Vec<Bytes> {
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
            prop_assert_eq!(live(&spans, moments).into_iter().max(), Some(bound(&lives)));
        }
    }

    #[test]
    fn a_plan_of_nothing_takes_nothing() {
        assert_eq!(plan(&[]), Plan::default());
    }
}
