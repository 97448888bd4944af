//! Plausibility: a file with sizes or addresses that no memory has is no recording, and its sums would overflow.

use super::{Position, Result, TraceError};
use gmlake_core::units::Bytes;

/// No size is so large: PyTorch refuses to ask for more.
const MOST_BYTES: Bytes = 1 << 60;

/// Nor are all sizes of a file together.
const MOST_IN_ALL: Bytes = 1 << 62;

/// No memory ends behind this address.
const LAST_ADDRESS: u64 = 1 << 63;

/// What entries and segments come to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    /// The largest size.
    most: Bytes,
    /// All sizes together.
    sum: Bytes,
    /// Where memory from the driver ends.
    end: u64,
}

impl Extent {
    /// Adds some bytes.
    #[inline]
    pub(super) fn add(&mut self, size: Bytes) {
        self.most = self.most.max(size);
        self.sum = self.sum.saturating_add(size);
    }

    /// Adds the place of memory that is or was held from the driver.
    #[inline]
    pub(super) fn add_place(&mut self, address: u64, size: Bytes) {
        self.end = self.end.max(address.saturating_add(size));
    }

    /// Fails for what no memory has.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        let Self { most, sum, end } = *self;
        let is_plausible = most < MOST_BYTES && sum <= MOST_IN_ALL && end <= LAST_ADDRESS;
        if is_plausible { Ok(()) } else { Err(self.error()) }
    }

    #[cold]
    fn error(&self) -> TraceError {
        let Self { most, sum, end } = *self;
        let what = if most >= MOST_BYTES {
            format!("has a size of {most} bytes")
        } else if sum > MOST_IN_ALL {
            format!("has sizes of more than {MOST_IN_ALL} bytes together")
        } else {
            format!("has memory up to the address {end:#x}")
        };
        let problem = format!("{what}, which is beyond any memory");
        TraceError::new(Position::File, problem, "this is no recording of PyTorch")
    }
}

/// Fails for a size that no memory has and no program means.
pub(super) fn plausible(size: Bytes) -> Result<()> {
    let mut extent = Extent::default();
    extent.add(size);
    extent.check()
}
