//! Busy places: which addresses are taken, at which time, for a placement that is made in any order of time.
//!
//! A segment tree over time. A block that lives through the whole span of a node is noted there; every node above it
//! knows, too, that somewhere below the addresses are taken. Addresses are kept as ranges that do not touch, so that a
//! thousand blocks side by side are one entry.
//!
//! ```text
//!   time      0     1     2     3        a block that lives in [1, 4):
//!   root     [                     ]     somewhere
//!            [ somewhere ][ through ]
//!                  [  t   ]               t: through. To ask about [0, 2): the root, `somewhere` of its left child
//! ```

use std::ops::Range;

use gmlake_core::units::Bytes;

/// Sorted ranges of addresses, first and end, that neither overlap nor touch.
#[derive(Debug, Clone, Default)]
struct Ranges(Vec<(Bytes, Bytes)>);

impl Ranges {
    fn insert(&mut self, start: Bytes, end: Bytes) {
        let from = self.0.partition_point(|range| range.1 < start);
        let to = from + self.0[from..].partition_point(|range| range.0 <= end);
        if from == to {
            self.0.insert(from, (start, end));
            return;
        }
        self.0[from] = (start.min(self.0[from].0), end.max(self.0[to - 1].1));
        self.0.drain(from + 1..to);
    }

    /// The lowest address from `at` on with `size` free bytes.
    fn first_fit(&self, mut at: Bytes, size: Bytes) -> Bytes {
        let first = self.0.partition_point(|range| range.1 <= at);
        for &(start, end) in &self.0[first..] {
            if start >= at + size {
                break;
            }
            at = end;
        }
        at
    }
}

/// What is taken when.
#[derive(Debug, Clone)]
pub(super) struct Busy {
    /// Moments, a power of two.
    moments: usize,
    /// Of each node, what is taken through all of its span.
    through: Vec<Ranges>,
    /// And what is taken at or below it.
    somewhere: Vec<Ranges>,
    /// The nodes of the span at hand, and whether they lie within it as a whole.
    nodes: Vec<(usize, bool)>,
}

impl Busy {
    /// Nothing is taken, for this many moments.
    pub(super) fn new(moments: usize) -> Self {
        let moments = moments.next_power_of_two();
        let through = vec![Ranges::default(); 2 * moments];
        Self { moments, somewhere: through.clone(), through, nodes: Vec::new() }
    }

    /// Takes `size` bytes from `lower` up to `upper` at the lowest address where they are free, and says where.
    pub(super) fn take(&mut self, lower: usize, upper: usize, size: Bytes) -> Bytes {
        self.nodes.clear();
        self.visit(1, 0..self.moments, &(lower..upper));
        let at = self.first_fit(size);
        for &(node, is_whole) in &self.nodes {
            self.somewhere[node].insert(at, at + size);
            if is_whole {
                self.through[node].insert(at, at + size);
            }
        }
        at
    }

    /// The lowest address that all nodes have free: whichever is in the way moves it up, until none is.
    fn first_fit(&self, size: Bytes) -> Bytes {
        let (mut at, mut agree) = (0, 0);
        for &(node, is_whole) in self.nodes.iter().cycle() {
            let taken = if is_whole { &self.somewhere } else { &self.through };
            let free = taken[node].first_fit(at, size);
            agree = if free == at { agree + 1 } else { 1 };
            at = free;
            if agree >= self.nodes.len() {
                break;
            }
        }
        at
    }

    /// Finds the nodes from the root down to those that lie within a span as a whole.
    fn visit(&mut self, node: usize, own: Range<usize>, span: &Range<usize>) {
        if span.end <= own.start || own.end <= span.start {
            return;
        }
        let is_whole = span.start <= own.start && own.end <= span.end;
        self.nodes.push((node, is_whole));
        if !is_whole {
            let middle = own.start.midpoint(own.end);
            self.visit(2 * node, own.start..middle, span);
            self.visit(2 * node + 1, middle..own.end, span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against every address in turn.
        #[test]
        fn it_takes_the_lowest_address_that_is_free(
            blocks in prop::collection::vec((0..20_usize, 1..20_usize, 1..9_u64), 1..40),
        ) {
            let mut busy = Busy::new(40);
            let mut taken: Vec<(usize, usize, Bytes, Bytes)> = Vec::new();
            for (lower, length, size) in blocks {
                let upper = lower + length;
                let is_free = |at: &Bytes| {
                    !taken.iter().any(|&(from, to, start, end)| {
                        from < upper && lower < to && start < at + size && *at < end
                    })
                };
                let lowest = (0..).find(is_free).unwrap();
                prop_assert_eq!(busy.take(lower, upper, size), lowest);
                taken.push((lower, upper, lowest, lowest + size));
            }
        }
    }
}
