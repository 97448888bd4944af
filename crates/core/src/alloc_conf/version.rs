//! Versions of PyTorch, as far as the allocator's behaviour depends on them.

use serde::{Serialize, Serializer};

/// A release of PyTorch, as far as the allocator's behaviour depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TorchVersion {
    /// 2 in 2.11.
    pub major: u16,
    /// 11 in 2.11.
    pub minor: u16,
}

impl TorchVersion {
    /// The version that our models were checked against, and the default.
    pub const V2_11: Self = Self { major: 2, minor: 11 };
    /// The newest that is modelled.
    pub const NEWEST: Self = Self { major: 2, minor: 15 };

    /// The environment variable from which this version reads its settings without a warning.
    pub fn alloc_conf_name(self) -> &'static str {
        if self.is_at_least(10) { "PYTORCH_ALLOC_CONF" } else { "PYTORCH_CUDA_ALLOC_CONF" }
    }

    /// Whether this is 2.`minor` or later.
    pub fn is_at_least(self, minor: u16) -> bool {
        self >= Self { major: 2, minor }
    }
}

impl Default for TorchVersion {
    fn default() -> Self {
        Self::V2_11
    }
}

impl std::str::FromStr for TorchVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('.').map(|part| part.parse::<u16>().ok());
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(2), Some(minor @ 1..)) => Ok(Self { major: 2, minor }),
            _ => Err(format!("{text:?} is not a version of PyTorch from 2.1 on, such as 2.11")),
        }
    }
}

impl Serialize for TorchVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl std::fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
