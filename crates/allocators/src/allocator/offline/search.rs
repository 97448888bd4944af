//! A search: a plan no higher than a capacity, for a program of a few hundred blocks.
//!
//! Depth first, from below: every branch puts one more block as low as it goes on what is there, and never lower than
//! the one before. A branch ends when at some moment what is still to come does not fit above the floor. Where no block
//! is left that crosses a moment's border, both sides are searched by themselves.
//!
//! ```text
//!   capacity ─────────────────────      at each moment: floor + what is still to come <= capacity
//!            ┌──┐     ┌────┐
//!            │  ├─────┤    │            next: the block that can go lowest; a block that could lie
//!            │  │     │    │            below another one is not put on top of it
//! ```
//!
//! The method is minimalloc's (Moffitt, ASPLOS 2023), without its finer points.

use std::cmp::Reverse;
use std::ops::Range;

use super::span::Span;
use gmlake_core::units::Bytes;

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Found,
    Impossible,
    OutOfNodes,
}

/// What a block changed when it was put down.
struct Undo {
    block: usize,
    /// The first moment whose floor changed, and the floors from there on.
    floors: (usize, Vec<Bytes>),
    /// Blocks that cannot go as low as before, and how low they could.
    lowest: Vec<(usize, Bytes)>,
    /// Whether nothing that is left lies above the block.
    is_free_above: bool,
}

struct Search<'a> {
    spans: &'a [Span],
    capacity: Bytes,
    nodes: u64,
    /// Which blocks come first among those that can go equally low.
    taste: usize,
    /// Of each moment: the lowest address for what is still to come, and how many bytes that is.
    floor: Vec<Bytes>,
    rest: Vec<Bytes>,
    /// Of each block: how low it can go, and where it is.
    lowest: Vec<Bytes>,
    place: Vec<Option<Bytes>>,
}

/// A place for each block, below `capacity`; `None` if there is none, or none was found within this many nodes.
pub(super) fn search(
    spans: &[Span],
    moments: usize,
    capacity: Bytes,
    nodes: u64,
) -> Option<Vec<Bytes>> {
    let mut limit = 2 * spans.len() as u64;
    while limit <= nodes {
        for taste in 0..3 {
            let mut search = Search::new(spans, moments, capacity);
            (search.nodes, search.taste) = (limit, taste);
            match search.part((0..spans.len()).collect(), 0..moments) {
                Verdict::Found => return search.place.into_iter().collect(),
                Verdict::Impossible => return None,
                Verdict::OutOfNodes => {}
            }
        }
        limit *= 2;
    }
    None
}

impl<'a> Search<'a> {
    fn new(spans: &'a [Span], moments: usize, capacity: Bytes) -> Self {
        let (floor, mut rest) = (vec![0; moments], vec![0; moments]);
        for span in spans {
            rest[span.lower..span.upper].iter_mut().for_each(|rest| *rest += span.size);
        }
        let (lowest, place) = (vec![0; spans.len()], vec![None; spans.len()]);
        Self { spans, capacity, nodes: 0, taste: 0, floor, rest, lowest, place }
    }

    /// Searches a window of time for the blocks in it.
    fn part(&mut self, mut blocks: Vec<usize>, window: Range<usize>) -> Verdict {
        blocks.sort_by_cached_key(|&block| {
            let span = &self.spans[block];
            let crowd = self.rest[span.lower..span.upper].iter().copied().max().unwrap_or(0);
            let (length, area) = (span.length(), span.length() * span.size);
            let key = match self.taste {
                0 => (crowd, length, area),
                1 => (crowd, area, length),
                _ => (length, area, crowd),
            };
            (Reverse(key), block)
        });
        self.branch(&blocks, &window, (0, 0))
    }

    /// Puts one more block down; not below `last`, and of equal height not one that comes before it in the order.
    fn branch(&mut self, blocks: &[usize], window: &Range<usize>, last: (Bytes, usize)) -> Verdict {
        if self.nodes == 0 {
            return Verdict::OutOfNodes;
        }
        self.nodes -= 1;
        let open = blocks.iter().enumerate().filter(|&(_, &block)| self.place[block].is_none());
        let mut open: Vec<(Bytes, usize, usize)> =
            open.map(|(rank, &block)| (self.lowest[block], rank, block)).collect();
        open.sort_unstable();
        let tops = open.iter().map(|&(at, _, block)| at + self.spans[block].size);
        let Some(lowest_top) = tops.min() else { return Verdict::Found };
        for &(at, rank, block) in open.iter().filter(|&&(at, rank, _)| (at, rank) >= last) {
            if at >= lowest_top {
                break;
            }
            let others = open.iter().map(|&(_, _, other)| other).filter(|&other| other != block);
            let others: Vec<usize> = others.collect();
            let undo = self.put(block, at, &others);
            let verdict = match self.fits(window, at) {
                true => self.go_on(blocks, &others, window, (at, rank)),
                false => Verdict::Impossible,
            };
            if verdict == Verdict::Found {
                return verdict;
            }
            let is_free_above = undo.is_free_above;
            self.undo(undo);
            if verdict == Verdict::OutOfNodes {
                return verdict;
            }
            if is_free_above {
                break;
            }
        }
        Verdict::Impossible
    }

    /// Searches for the blocks that are left, each separate window by itself.
    fn go_on(
        &mut self,
        blocks: &[usize],
        left: &[usize],
        window: &Range<usize>,
        last: (Bytes, usize),
    ) -> Verdict {
        let mut parts = self.parts(left, window);
        if let [(_, part)] = &parts[..]
            && part.len() == left.len()
        {
            return self.branch(blocks, window, last);
        }
        let tightness = |window: &Range<usize>| {
            window.clone().map(|moment| self.floor[moment] + self.rest[moment]).max()
        };
        parts.sort_by_cached_key(|(window, _)| Reverse(tightness(window)));
        let before = (self.floor.clone(), self.rest.clone(), self.lowest.clone());
        for (window, part) in parts {
            let verdict = self.part(part, window);
            if verdict != Verdict::Found {
                (self.floor, self.rest, self.lowest) = before;
                left.iter().for_each(|&block| self.place[block] = None);
                return verdict;
            }
        }
        Verdict::Found
    }

    /// The windows that no block which is left crosses, with their blocks.
    fn parts(&self, left: &[usize], window: &Range<usize>) -> Vec<(Range<usize>, Vec<usize>)> {
        let mut sorted = left.to_vec();
        sorted.sort_by_key(|&block| self.spans[block].lower);
        let mut parts: Vec<(Range<usize>, Vec<usize>)> = Vec::new();
        for block in sorted {
            let Span { lower, upper, .. } = self.spans[block];
            match parts.last_mut().filter(|(last, _)| lower < last.end) {
                Some((last, part)) => {
                    last.end = last.end.max(upper);
                    part.push(block);
                }
                None => parts.push((lower..upper, vec![block])),
            }
        }
        debug_assert!(parts.iter().all(|(own, _)| window.start <= own.start));
        parts
    }

    fn put(&mut self, block: usize, at: Bytes, others: &[usize]) -> Undo {
        let span = self.spans[block];
        let top = at + span.size;
        let (mut changed, mut lowest, mut is_free_above) = (span.lower..span.upper, vec![], true);
        for &other in others {
            let its = &self.spans[other];
            if its.lower < span.upper && span.lower < its.upper {
                is_free_above = false;
                if self.lowest[other] < top {
                    lowest.push((other, self.lowest[other]));
                    self.lowest[other] = top;
                    changed = changed.start.min(its.lower)..changed.end.max(its.upper);
                }
            }
        }
        let floors = (changed.start, self.floor[changed.clone()].to_vec());
        self.place[block] = Some(at);
        for moment in span.lower..span.upper {
            self.floor[moment] = top;
            self.rest[moment] -= span.size;
        }
        self.raise_floors(others, changed);
        Undo { block, floors, lowest, is_free_above }
    }

    /// At no moment is the floor below the lowest place of what is still to come then.
    fn raise_floors(&mut self, others: &[usize], changed: Range<usize>) {
        let mut floors = vec![Bytes::MAX; changed.len()];
        for &other in others {
            let its = &self.spans[other];
            let (from, to) = (its.lower.max(changed.start), its.upper.min(changed.end));
            for moment in from..to {
                let floor = &mut floors[moment - changed.start];
                *floor = self.lowest[other].min(*floor);
            }
        }
        for (moment, floor) in changed.zip(floors).filter(|&(_, floor)| floor < Bytes::MAX) {
            self.floor[moment] = self.floor[moment].max(floor);
        }
    }

    fn undo(&mut self, undo: Undo) {
        let span = self.spans[undo.block];
        self.place[undo.block] = None;
        self.rest[span.lower..span.upper].iter_mut().for_each(|rest| *rest += span.size);
        let (start, floors) = undo.floors;
        self.floor[start..start + floors.len()].copy_from_slice(&floors);
        undo.lowest.into_iter().for_each(|(other, at)| self.lowest[other] = at);
    }

    /// Whether what is still to come can be above the floor and above `at`, below the capacity.
    fn fits(&self, window: &Range<usize>, at: Bytes) -> bool {
        let mut moments = window.clone();
        moments.all(|moment| self.floor[moment].max(at) + self.rest[moment] <= self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lowest height of any plan: every order, each block as low as it goes.
    fn lowest_height(spans: &[Span], left: &mut Vec<usize>, places: &mut Vec<Bytes>) -> Bytes {
        if left.is_empty() {
            return spans.iter().zip(&*places).map(|(span, at)| at + span.size).max().unwrap_or(0);
        }
        let mut best = Bytes::MAX;
        for turn in 0..left.len() {
            let block = left.remove(turn);
            places[block] = (0..spans.len())
                .filter(|&other| other != block && !left.contains(&other))
                .filter(|&other| spans[other].lower < spans[block].upper)
                .filter(|&other| spans[block].lower < spans[other].upper)
                .map(|other| places[other] + spans[other].size)
                .max()
                .unwrap_or(0);
            best = best.min(lowest_height(spans, left, places));
            left.insert(turn, block);
        }
        best
    }

    proptest! {
        #[test]
        fn it_finds_the_lowest_plan_and_none_below(
            rows in prop::collection::vec((0..6_usize, 1..4_usize, 1..6_u64), 1..7),
        ) {
            let spans: Vec<_> = rows
                .iter()
                .enumerate()
                .map(|(number, &(lower, length, size))| {
                    Span { lower, upper: lower + length, size, number }
                })
                .collect();
            let mut left = (0..spans.len()).collect();
            let lowest = lowest_height(&spans, &mut left, &mut vec![0; spans.len()]);
            let found = search(&spans, 10, lowest, 1 << 20).expect("there is such a plan");
            for (one, a) in spans.iter().enumerate() {
                prop_assert!(found[one] + a.size <= lowest);
                for (other, b) in spans.iter().enumerate().skip(one + 1) {
                    let at_once = a.lower < b.upper && b.lower < a.upper;
                    let share =
                        found[one] < found[other] + b.size && found[other] < found[one] + a.size;
                    prop_assert!(!(at_once && share), "{one} and {other} at {found:?}");
                }
            }
            prop_assert_eq!(search(&spans, 10, lowest - 1, 1 << 20), None);
        }
    }
}
