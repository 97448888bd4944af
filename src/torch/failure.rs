//! Failures: why a request was not served.

use crate::cuda::DriverError;

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
