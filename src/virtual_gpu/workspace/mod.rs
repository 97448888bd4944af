//! Workspaces: the device memory that CUDA's libraries ask PyTorch for while an operation runs.
//!
//! A library tells how many bytes an operation needs, PyTorch takes them from its caching allocator, and gives them back
//! at once. The allocator keeps the segment, so a workspace counts in reserved memory. How many bytes it is depends on
//! the kernel that the library would choose; here rules stand in for that choice, each with the error that was measured.
//!
//! Measured on an H200: cuDNN 9.19, cuFFT 12.0, cuSPARSE 12.6, with PyTorch 2.11. Matrix products and attention by its
//! own kernels need no rule: there PyTorch decides.

mod convolution;
mod fourier;
mod recurrent;

pub use convolution::{Convolution, Direction};
pub use fourier::Fourier;
pub use recurrent::{Cell, Recurrent};

/// What a plan for attention asks for (forwards and backwards): the rest is added by PyTorch itself.
/// Measured for 41 shapes: always this.
pub const ATTENTION: u64 = 256;

/// States of cuDNN's generator for dropout, whatever the layer.
pub const DROPOUT_STATES: u64 = 6_488_064;

/// Bytes for cuDNN's CTC loss: steps, sequences, and labels of the alphabet. Within 1 % of the four measured.
#[must_use]
pub fn ctc_loss(steps: u64, batch: u64, alphabet: u64) -> u64 {
    steps * batch * (4096 + 4 * alphabet)
}

/// Bytes for a sparse matrix times a dense one: values that are not zero, and whether rows are compressed (CSR).
#[must_use]
pub fn sparse_product(nonzero: u64, compressed: bool) -> u64 {
    if compressed { nonzero / 3 } else { nonzero / 64 + 10 }
}

/// Bytes for a product of two sparse matrices: for the estimate, and for the `products` of single values in it.
#[must_use]
pub fn sparse_by_sparse(nonzero: u64, products: u64) -> (u64, u64) {
    (12 * nonzero, 24 * products)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_sparse_products() {
        assert!((ctc_loss(300, 32, 32) as f64 / 40_539_264.0 - 1.0).abs() < 0.01);
        assert!(sparse_product(1_000_000, false).abs_diff(15_635) < 10);
        assert!(sparse_product(1_000_000, true).abs_diff(333_327) < 10);
        assert!(sparse_by_sparse(100_000, 1_000_000).1.abs_diff(24_053_215) < 60_000);
    }
}
