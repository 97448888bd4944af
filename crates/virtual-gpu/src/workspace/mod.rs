//! Workspaces: the device memory that CUDA's libraries ask PyTorch for while an operation runs.
//!
//! A library tells how many bytes an operation needs, PyTorch takes them from its caching allocator, and gives them
//! back at once. The allocator keeps the segment, so a workspace counts in reserved memory. How many bytes it is
//! depends on the kernel that the library would choose; here rules stand in for that choice, each with the error that
//! was measured.
//!
//! Measured on an H200: cuDNN 9.19, cuFFT 12.0, cuSPARSE 12.6, with PyTorch 2.11. Matrix products and attention by its
//! own kernels need no rule: there PyTorch decides.

mod asked;
mod convolution;
mod decomposition;
mod fourier;
mod guesses;
mod measured;
mod question;
mod recurrent;
mod sparse;
mod spread;
mod table;

pub use asked::Asked;
pub use convolution::{Convolution, Direction};
pub use decomposition::decomposition;
pub use fourier::Fourier;
pub use guesses::{CONVOLUTIONS, Guess, Guesses, Subject};
pub use measured::{Basis, Kind, Layer, Point, UNIT, difference};
pub use question::{Pairs, Question, joined};
pub use recurrent::{Cell, Part, Recurrent};
pub use sparse::{Sparse, sparse_sum};
pub use table::{Versions, Workspaces};

/// What a plan for attention asks for (forwards and backwards): the rest is added by PyTorch itself.
/// Measured for 41 shapes: always this. Heads that share keys and values need more backwards (`exports/plan.rs`).
pub const ATTENTION: u64 = 256;

/// States of cuDNN's generator for dropout, whatever the layer.
pub const DROPOUT_STATES: u64 = 6_488_064;

/// Bytes for batch normalization of 32 bits with channels last, forwards and backwards. The five shapes that were
/// measured need 9 KB to 1 MB; these are those of the middle one. In the usual layout none are needed, and 16 bits go
/// another way.
pub const BATCH_NORM: (u64, u64) = (203_360, 136_240);

/// Bytes for cuDNN's CTC loss: steps, sequences, and labels of the alphabet. Within 3 % of the four measured.
#[must_use]
pub fn ctc_loss(steps: u64, batch: u64, alphabet: u64) -> u64 {
    steps * batch * (4096 + 4 * alphabet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctc_losses_need_nearly_what_was_measured() {
        for (steps, batch, alphabet, bytes) in [
            (50, 16, 20, 3_367_232.0),
            (100, 8, 29, 3_379_616.0),
            (300, 32, 32, 40_539_264.0),
            (150, 4, 1000, 4_861_008.0),
        ] {
            let off = ctc_loss(steps, batch, alphabet) as f64 / bytes - 1.0;
            assert!(off.abs() < 0.03, "{alphabet}: {off}");
        }
    }
}
