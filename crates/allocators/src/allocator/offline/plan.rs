//! A plan: an address for every block of a program that is known from beginning to end.
//!
//! Blocks are rectangles, time by memory, and must not overlap (dynamic storage allocation; the best plan is NP-hard to
//! find). They are placed one after the other, each at the lowest address that is free throughout its life: the largest
//! first, or those that live when most is live, or the longest; the lowest plan counts. As long as it is above the
//! bound, what ended up there comes earlier in the next round (squeaky wheel optimisation). A program of a few hundred
//! blocks can be searched, too ([`search`](super::search)).
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
use super::search::search;
use super::span::{Span, live, spans};
use gmlake_core::program::Lifetime;
use gmlake_core::units::Bytes;

/// Rounds in which the order is changed.
const ROUNDS: usize = 16;
/// A plan that is above the bound by less than this part of it is not worth another round.
const CLOSE: Bytes = 1000;
/// Heights that are searched for.
const SEARCHES: usize = 6;

/// Where each block goes, from the beginning of the plan on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// In the order of the lifetimes; `None` for those that hold nothing.
    pub(super) places: Vec<Option<Bytes>>,
    /// The bytes that the plan takes.
    pub(super) height: Bytes,
}

/// Makes the plan. Sizes are taken as they are. A search takes up to `nodes` nodes for each height; 0: no search.
pub(super) fn plan(lifetimes: &[Lifetime], nodes: u64) -> Plan {
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
    if nodes > 0 {
        best = improve(&spans, moments, bound, best, nodes);
    }
    let mut places = vec![None; lifetimes.len()];
    spans.iter().zip(&best.places).for_each(|(span, &at)| places[span.number] = Some(at));
    Plan { places, height: best.height }
}

/// The lowest plan that a search finds between the bound and the one at hand.
fn improve(spans: &[Span], moments: usize, bound: Bytes, mut best: Round, nodes: u64) -> Round {
    let mut too_low = bound.saturating_sub(1);
    for _ in 0..SEARCHES {
        if best.height - too_low <= 1 + bound / CLOSE {
            break;
        }
        // The bound itself first: it is often reached.
        let capacity = if too_low < bound { bound } else { too_low + (best.height - too_low) / 2 };
        match search(spans, moments, capacity, nodes) {
            None => too_low = capacity,
            Some(places) => {
                let tops = spans.iter().zip(&places).map(|(span, at)| at + span.size);
                let height = tops.max().unwrap_or(0);
                best = Round { order: best.order, places, height };
            }
        }
    }
    best
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
                .map(|(lower, length, size)| {
                    let upper = lower + length;
                    Lifetime { lower, upper, size, step: 0 }
                })
                .collect();
            let made = plan(&lives, 200);
            check(&lives, &made);
            prop_assert!(made.height >= bound(&lives));
            let (spans, moments) = spans(&lives);
            prop_assert_eq!(live(&spans, moments).into_iter().max(), Some(bound(&lives)));
        }
    }

    #[test]
    fn a_plan_of_nothing_takes_nothing() {
        assert_eq!(plan(&[], 10), Plan::default());
    }
}
