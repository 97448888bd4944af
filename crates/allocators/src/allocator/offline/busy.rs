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
    /// What is taken in that span.
    found: Vec<(Bytes, Bytes)>,
}

impl Busy {
    /// Nothing is taken, for this many moments.
    pub(super) fn new(moments: usize) -> Self {
        let moments = moments.next_power_of_two();
        let (nodes, found) = (Vec::new(), Vec::new());
        let through = vec![Ranges::default(); 2 * moments];
        Self { moments, somewhere: through.clone(), through, nodes, found }
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

    fn first_fit(&mut self, size: Bytes) -> Bytes {
        self.found.clear();
        for &(node, is_whole) in &self.nodes {
            let taken = if is_whole { &self.somewhere } else { &self.through };
            self.found.extend_from_slice(&taken[node].0);
        }
        self.found.sort_unstable();
        let mut at = 0;
        for &(start, end) in &self.found {
            if start >= at + size {
                break;
            }
            at = at.max(end);
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
