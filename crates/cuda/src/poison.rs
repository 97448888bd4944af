//! Poison: a pattern over freed memory, on the stream that freed it, which must still be there when the memory is
//! handed out again.
//!
//! Whatever writes to memory that it does not own any more, or has been given twice, breaks the pattern. Unlike
//! [`super::Painter`], which proves a replay, this works among the streams of a running program, and waits for one of
//! them only.

use super::driver::{self, DriverError, Stream};
use super::mismatches::{Mismatches, WORD};
use gmlake_allocators::device::DevicePtr;
use gmlake_core::units::Bytes;

/// What freed memory is filled with: no number that a program is likely to write, and a NaN as a 32-bit float.
const PATTERN: u32 = 0xFFD3_ADBE;

/// Fills, and looks.
#[derive(Debug)]
pub struct Poison(Mismatches);

impl Poison {
    /// Loads the kernel. The GPU's context must be current, as for all that follows.
    pub fn new() -> Result<Self, DriverError> {
        let mismatches = Mismatches::new(8)?;
        driver::synchronize()?;
        Ok(Self(mismatches))
    }

    /// Queues filling a range, whole words of it, on the stream with this handle.
    pub fn fill(&self, stream: u64, at: DevicePtr, size: Bytes) -> Result<(), DriverError> {
        driver::fill_words_on(Stream::from_raw(stream), at.0, PATTERN, size / WORD)
    }

    /// Bytes of a range that are not as they were filled, in whole words. Waits for the stream.
    pub fn check(&mut self, stream: u64, at: DevicePtr, size: Bytes) -> Result<Bytes, DriverError> {
        let stream = Stream::from_raw(stream);
        self.0.count(stream, at.0, [size / WORD, 1], PATTERN)?;
        driver::stream_synchronize(stream)?;
        self.0.found()
    }
}
