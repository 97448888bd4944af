//! Patterns in GPU memory: each allocation gets a number of its own, written through its address, and looked for
//! before the memory goes back.
//!
//! Two live allocations that share a byte, by a wrong address or by a handle that is mapped twice, cannot both find
//! their number again. `Coverage::Sample` writes the first 4 KiB of every 2 MiB, which meets every page; `All` writes
//! everything. A small kernel counts the words that differ, so that looking at all memory takes no longer than
//! writing it.

use super::driver::{self, DriverError, Stream};
use super::gpu::Gpu;
use super::mismatches::{Mismatches, WORD};
use gmlake_allocators::device::{DevicePtr, GRANULE};
use gmlake_core::units::{Bytes, KIB};

/// How much of an allocation is written and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// The first 4 KiB of every 2 MiB.
    Sample,
    /// Every byte.
    All,
}

/// A pattern in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Where it begins.
    pub at: DevicePtr,
    /// How many bytes it may cover.
    pub size: Bytes,
    value: u32,
}

const SAMPLED: Bytes = 4 * KIB;

/// Writes patterns and looks for them.
#[derive(Debug)]
pub struct Painter {
    gpu: Gpu,
    coverage: Coverage,
    mismatches: Mismatches,
    next: u32,
}

impl Painter {
    /// Loads the kernel.
    pub fn new(gpu: &Gpu, coverage: Coverage) -> Result<Self, DriverError> {
        // A page of its own: the driver would let the memory that is looked at share it.
        let mismatches = Mismatches::new(GRANULE)?;
        // The driver loads code when it is first used, and that takes memory: use all of it now, so that no replay's
        // peak has it.
        let counter = mismatches.counter;
        driver::fill(counter, 0, 1, 2, WORD)?;
        driver::fill(counter, 0, 2, 1, 0)?;
        mismatches.count(Stream::DEFAULT, counter, [2, 1], 0)?;
        driver::synchronize()?;
        Ok(Self { gpu: gpu.clone(), coverage, mismatches, next: 0 })
    }

    /// Writes a pattern that no other stamp has over `size` bytes.
    pub fn paint(&mut self, at: DevicePtr, size: Bytes) -> Result<Stamp, DriverError> {
        // An odd factor makes neighbouring numbers differ in every byte, and none come twice.
        self.next = self.next.wrapping_add(1);
        let stamp = Stamp { at, size, value: self.next.wrapping_mul(0x9E37_79B1) };
        for (at, words, rows) in self.areas(size, at.0) {
            driver::fill(at, stamp.value, words, rows, GRANULE)?;
        }
        if !size.is_multiple_of(WORD) {
            driver::fill_bytes(at.0 + size - size % WORD, stamp.value as u8, size % WORD)?;
        }
        Ok(stamp)
    }

    /// How many bytes of a pattern are not as they were written, in units of a word. Waits for the GPU.
    pub fn check(&mut self, stamp: &Stamp) -> Result<Bytes, DriverError> {
        for (at, words, rows) in self.areas(stamp.size, stamp.at.0) {
            self.mismatches.count(Stream::DEFAULT, at, [words, rows], stamp.value)?;
        }
        let wrong = self.mismatches.found()?;
        Ok(wrong + self.check_tail(stamp)?)
    }

    /// The bytes after the last whole word.
    fn check_tail(&self, stamp: &Stamp) -> Result<Bytes, DriverError> {
        let mut tail = [0_u8; WORD as usize];
        let tail = &mut tail[..(stamp.size % WORD) as usize];
        if tail.is_empty() {
            return Ok(0);
        }
        driver::read(stamp.at.0 + stamp.size - tail.len() as u64, tail)?;
        Ok(tail.iter().filter(|&&byte| byte != stamp.value as u8).count() as Bytes)
    }

    /// Areas to cover, as address, words in a row, and rows a granule apart.
    fn areas(&self, size: Bytes, at: u64) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
        let (whole, rest) = match self.coverage {
            Coverage::All => (None, (at, size / WORD, 1)),
            Coverage::Sample => {
                let (rows, rest) = (size / GRANULE, size % GRANULE);
                let rest = (at + rows * GRANULE, rest.min(SAMPLED) / WORD, 1);
                (Some((at, SAMPLED / WORD, rows)), rest)
            }
        };
        whole.into_iter().chain([rest]).filter(|&(_, words, rows)| words > 0 && rows > 0)
    }
}

impl Drop for Painter {
    fn drop(&mut self) {
        // The context must be current, also when a panic unwinds; failures have no one to hear them.
        let _ = self.gpu.bind();
        let _ = driver::synchronize();
        self.mismatches.end();
    }
}
