//! Poison: a pattern over freed memory, on the stream that freed it, which must still be there when the memory is
//! handed out again.
//!
//! Whatever writes to memory that it does not own any more, or has been given twice, breaks the pattern. Unlike
//! [`super::Painter`], which proves a replay, this works among the streams of a running program, and waits for one of
//! them only.

use super::driver::{self, DriverError, Kernel, Stream};
use super::{guest, pattern};
use gmlake_allocators::device::{DevicePtr, GRANULE};
use gmlake_core::units::Bytes;

/// What freed memory is filled with: no number that a program is likely to write, and a NaN as a 32-bit float.
const PATTERN: u32 = 0xFFD3_ADBE;

const WORD: Bytes = 4;

/// Fills, and looks.
#[derive(Debug)]
pub struct Poison {
    kernel: Kernel,
    /// Address of a 64-bit number in GPU memory to which each check adds the words that it found wrong.
    counter: u64,
    counted: u64,
}

impl Poison {
    /// Loads the kernel. The GPU's context must be current, as for all that follows.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new() -> Result<Self, DriverError> {
        let kernel = pattern::load_counter()?;
        let counter = driver::mem_alloc(8)?;
        driver::fill_bytes(counter, 0, 8)?;
        driver::synchronize()?;
        Ok(Self { kernel, counter, counted: 0 })
    }

    /// Queues filling a range, whole words of it, on the stream with this handle.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fill(&self, stream: u64, at: DevicePtr, size: Bytes) -> Result<(), DriverError> {
        guest::fill_words_on(Stream::from_raw(stream), at.0, PATTERN, size / WORD)
    }

    /// Bytes of a range that are not as they were filled, in whole words. Waits for the stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn check(&mut self, stream: u64, at: DevicePtr, size: Bytes) -> Result<Bytes, DriverError> {
        let (stream, words) = (Stream::from_raw(stream), size / WORD);
        let blocks = words.div_ceil(pattern::THREADS.into()).clamp(1, pattern::BLOCKS) as u32;
        let parameters = [at.0, words, 1, GRANULE, u64::from(PATTERN), self.counter];
        guest::launch_on(stream, self.kernel, blocks, pattern::THREADS, &parameters)?;
        let mut bytes = [0; 8];
        guest::read_after(stream, self.counter, &mut bytes)?;
        let total = u64::from_le_bytes(bytes);
        Ok(WORD * (total - std::mem::replace(&mut self.counted, total)))
    }
}
