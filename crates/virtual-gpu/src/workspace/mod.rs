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
mod choice;
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
/// Measured for 41 shapes, and for 154 of `examples/predict/attention.py` on an H100: always this, but nothing for a
/// single query with a mask, forwards. Heads that share keys and values need more backwards (`exports/plan.rs`).
pub const ATTENTION: u64 = 256;

/// States of cuDNN's generator for dropout, whatever the layer.
pub const DROPOUT_STATES: u64 = 6_488_064;

/// Bytes for batch normalization of 32 bits with channels last: forwards or backwards, by the bytes of its tensor; and
/// the ends between which all of 314 measured lie. The rule is their middle. In the usual layout none are needed, and
/// 16 bits go another way.
pub const fn batch_norm(is_forward: bool, tensor: u64) -> (u64, (u64, u64)) {
    let parts = if is_forward { 27 } else { 40 };
    (tensor / parts + 1024, (512, tensor / 3 + 8192))
}

/// Bytes for cuDNN's CTC loss: steps, sequences, letters of the alphabet, and the longest sequence of labels, where the
/// function that asks is told. Equal for all 161 that were measured.
pub fn ctc_loss(steps: u64, batch: u64, alphabet: u64, longest: Option<u64>) -> u64 {
    const LONGEST: u64 = 255;
    let labels = longest.unwrap_or(LONGEST);
    let lists = if longest.is_some() { 12 * labels + 20 } else { 8 * labels + 12 };
    steps * batch * (4 * alphabet + 8 * (2 * labels + 1)) + batch * lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctc_losses_need_what_was_measured() {
        for (steps, batch, alphabet, longest, bytes) in [
            (50, 16, 20, None, 3_367_232),
            (100, 8, 29, None, 3_379_616),
            (300, 32, 32, None, 40_539_264),
            (150, 4, 1000, None, 4_861_008),
            (104, 8, 67, Some(50), 900_192),
            (1192, 62, 481, Some(242), 429_120_104),
        ] {
            assert_eq!(ctc_loss(steps, batch, alphabet, longest), bytes, "{alphabet}");
        }
    }
}
