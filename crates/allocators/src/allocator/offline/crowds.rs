//! Crowds: the most that lives at once in any span of time.
//!
//! A table of powers of two: row `k` has the most of every `2^k` moments in a row, and two of them cover any span.
//!
//! ```text
//!   live     3  5  2  7  1
//!   row 1    5  5  7  7          the most of moments 1 to 4: row 1 at 1 and at 3
//! ```

use gmlake_core::units::Bytes;

/// The most bytes of any span.
pub(super) struct Crowds {
    rows: Vec<Vec<Bytes>>,
}

impl Crowds {
    /// From the bytes that live at each moment.
    pub(super) fn new(live: &[Bytes]) -> Self {
        let mut rows = vec![live.to_vec()];
        let mut half = 1;
        while 2 * half <= live.len() {
            let last = &rows[rows.len() - 1];
            let next = last.iter().zip(&last[half..]).map(|(a, b)| *a.max(b)).collect();
            rows.push(next);
            half *= 2;
        }
        Self { rows }
    }

    /// The most from `lower` up to `upper`.
    pub(super) fn most(&self, lower: usize, upper: usize) -> Bytes {
        let row = (upper - lower).ilog2() as usize;
        self.rows[row][lower].max(self.rows[row][upper - (1 << row)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_most_of_every_span(live in prop::collection::vec(0..100_u64, 1..40)) {
            let crowds = Crowds::new(&live);
            for lower in 0..live.len() {
                for upper in lower + 1..=live.len() {
                    let most = live[lower..upper].iter().max();
                    prop_assert_eq!(Some(&crowds.most(lower, upper)), most);
                }
            }
        }
    }
}
