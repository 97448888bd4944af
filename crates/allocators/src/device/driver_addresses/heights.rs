//! A row of heights, and which of them is the last that is high enough.
//!
//! ```text
//!              9              a tree of maxima over the row
//!        7           9
//!     3     7     9     2     last_at_least(3): the third from the left
//! ```

/// A row of heights; those never set are 0.
#[derive(Debug, Clone, Default)]
pub(super) struct Heights {
    /// The root at 1, the children of `n` at `2 n` and `2 n + 1`; as many leaves as inner nodes.
    tree: Vec<u64>,
}

impl Heights {
    pub(super) fn set(&mut self, index: usize, height: u64) {
        while index >= self.leaves() {
            self.double();
        }
        let mut node = self.leaves() + index;
        self.tree[node] = height;
        while node > 1 {
            node /= 2;
            self.tree[node] = self.tree[2 * node].max(self.tree[2 * node + 1]);
        }
    }

    /// The highest index whose height is `least` or more; `least` is not 0.
    pub(super) fn last_at_least(&self, least: u64) -> Option<usize> {
        if self.tree.get(1).is_none_or(|&highest| highest < least) {
            return None;
        }
        let mut node = 1;
        while node < self.leaves() {
            node = if self.tree[2 * node + 1] >= least { 2 * node + 1 } else { 2 * node };
        }
        Some(node - self.leaves())
    }

    fn leaves(&self) -> usize {
        self.tree.len() / 2
    }

    fn double(&mut self) {
        let leaves = self.leaves();
        let mut larger = Self { tree: vec![0; (4 * leaves).max(2)] };
        let first = larger.leaves();
        larger.tree[first..first + leaves].copy_from_slice(&self.tree[leaves..]);
        for node in (1..first).rev() {
            larger.tree[node] = larger.tree[2 * node].max(larger.tree[2 * node + 1]);
        }
        *self = larger;
    }
}
