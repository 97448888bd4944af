//! Spread: between which bytes a workspace lies that was not measured, and how many of a hundred are off.
//!
//! Convolutions: one that takes less than the tree says mostly takes nothing; one that takes more takes up to its
//! tensors' bytes more, or twice that for the gradient of a weight (`examples/predict/drawn_convolutions.py`,
//! `examples/workspace_errors.rs`). How many do, each leaf of the tree says, above a floor.

use gmlake_core::units::Bytes;

use super::{Basis, Cell, Convolution, Direction, Fourier, Recurrent};

/// The least and the most bytes; how many of a hundred take less than the best guess, and how many take more.
pub type Spread = ((Bytes, Bytes), (u8, u8));

/// What is as good as right.
const NONE: (u8, u8) = (0, 0);

impl Convolution {
    /// The spread of a convolution whose best guess is `bytes`.
    pub fn spread(&self, basis: Basis, bytes: Bytes) -> Spread {
        let tensors = [&self.input, &self.weight, &self.output];
        let tensors = tensors.map(|sizes| self.bytes_of(sizes)).iter().sum::<Bytes>();
        let is_weight = self.direction == Direction::Weight;
        let chances = match basis {
            Basis::Measured => NONE,
            // Of 3,441 between measured batches 84 % were equal, 94 % within 1 MiB (`reports/predict.md`).
            Basis::Between => (4, 4),
            Basis::Chosen => self.chances(bytes == 0),
        };
        let times = if is_weight { 2 } else { 1 };
        match (basis, chances) {
            (_, NONE) => ((bytes, bytes), NONE),
            (Basis::Between, _) => (around(bytes, tensors / 8), chances),
            (_, (_, 0)) => ((0, bytes), chances),
            _ => ((0, bytes + times * (tensors + (1 << 20))), chances),
        }
    }

    /// How many of a hundred take less than the tree says, and how many take more. The leaves promise too much for the
    /// layers of a network, which are not drawn at random: by them alone two of ten recorded jobs left their intervals,
    /// with these floors one (`reports/predict.md`).
    fn chances(&self, is_zero: bool) -> (u8, u8) {
        let (less, more) = self.chosen().1;
        let (least, most) = if self.direction == Direction::Weight { (28, 37) } else { (20, 15) };
        (if is_zero { 0 } else { less.max(least) }, more.max(most))
    }
}

impl Recurrent {
    /// The spread of a network, by 2,682 that were measured on an H100 (`examples/predict/recurrent.py`). Those that
    /// run one way take 0.6 to 2.5 times the rule, one in eight less than 0.95 and three in ten more than 1.1. Those
    /// that run both ways take no less. It holds all of 170 that were drawn later (`drawn_operations.py`).
    pub fn spread(&self, bytes: Bytes) -> Spread {
        let least = if self.both_ways { bytes - bytes / 500 } else { bytes / 10 * 6 };
        let most = if self.cell == Cell::Plain { bytes * 3 } else { bytes / 2 * 5 };
        ((least, most), if self.both_ways { (0, 28) } else { (12, 30) })
    }
}

impl Fourier {
    /// The spread of a transform, by 193 on an H100. Where the rule has nothing, one in four takes one copy of the data
    /// or two; where all lengths are products of small primes, one in ten of 64 bits does, and none of 32. One in ten
    /// takes nothing where the rule has a copy.
    pub fn spread(&self, bytes: Bytes) -> Spread {
        let copy = self.copy();
        match (bytes, self.is_smooth()) {
            (0, true) if self.complex == 8 => ((0, 0), NONE),
            (0, is_smooth) => ((0, 2 * copy), (0, if is_smooth { 10 } else { 25 })),
            _ => ((0, bytes + copy), (10, 5)),
        }
    }
}

fn around(bytes: Bytes, off: Bytes) -> (Bytes, Bytes) {
    (bytes.saturating_sub(off), bytes + off)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_has_no_spread_and_what_follows_the_rule_has_one() {
        let convolution = Convolution {
            direction: Direction::Weight,
            element: 4,
            is_float16: false,
            channels_last: false,
            input: vec![8, 64, 1, 1000],
            weight: vec![64, 64, 1, 7],
            output: vec![8, 64, 1, 1000],
            plain: false,
            dilation: 1,
        };
        let bytes = convolution.workspace();
        assert_eq!(convolution.spread(Basis::Measured, bytes), ((bytes, bytes), NONE));
        let ((low, high), chances) = convolution.spread(Basis::Chosen, bytes);
        assert!(low == 0 && high > bytes + 8 * 64 * 1000 * 4 && chances.0 >= 28);
    }
}
