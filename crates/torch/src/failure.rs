//! Failures: why a request was not served. Who says no more of its errors passes on what the driver says.

use gmlake_core::units::{Bytes, GIB, KIB, MIB};
use gmlake_cuda::DriverError;

/// A size in the words of PyTorch's own messages, which programs look for: always two decimals.
pub(super) struct PytorchSize(pub(super) Bytes);

impl std::fmt::Display for PytorchSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (size, unit) = match self.0 {
            0..=KIB => return write!(f, "{} bytes", self.0),
            size if size <= MIB => (size as f64 / KIB as f64, "KiB"),
            size if size <= GIB => (size as f64 / MIB as f64, "MiB"),
            size => (size as f64 / GIB as f64, "GiB"),
        };
        write!(f, "{size:.2} {unit}")
    }
}

/// Why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no memory, whatever is given back.
    #[error("{0}")]
    OutOfMemory(String),
    /// Anything else: the driver failed, or something is not supported.
    #[error("{0}")]
    Other(String),
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Self::Other(format!("CUDA error: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_pytorchs() {
        let sizes = [0, 1024, 1025, MIB, 3 * MIB, GIB, 800_000_000 * GIB]
            .map(|size| PytorchSize(size).to_string());
        let expected = [
            "0 bytes",
            "1024 bytes",
            "1.00 KiB",
            "1024.00 KiB",
            "3.00 MiB",
            "1024.00 MiB",
            "800000000.00 GiB",
        ];
        assert_eq!(sizes, expected);
    }
}
