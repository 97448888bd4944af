//! Patterns in GPU memory: each allocation gets a number of its own, written through its address, and looked for
//! before the memory goes back.
//!
//! Two live allocations that share a byte, by a wrong address or by a handle that is mapped twice, cannot both find
//! their number again. `Coverage::Sample` writes the first 4 KiB of every 2 MiB, which meets every page; `All` writes
//! everything. A small kernel counts the words that differ, so that looking at all memory takes no longer than
//! writing it.

use std::ffi::CStr;

use super::driver::{self, DriverError, Kernel};
use super::gpu::Gpu;
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

/// For each row of `words` words, `pitch` bytes apart: counts the words that are not `value`.
/// For Turing and newer, the oldest GPUs that today's drivers still compile for.
/// The x dimension of the grid walks along a row, the y dimension over the rows.
const PTX: &CStr = c"
.version 7.0
.target sm_75
.address_size 64
.visible .entry count_mismatches(
    .param .u64 base, .param .u64 words, .param .u64 rows,
    .param .u64 pitch, .param .u64 value, .param .u64 counter)
{
    .reg .pred %p;
    .reg .b32 %want, %have, %t, %n;
    .reg .b64 %base, %words, %rows, %pitch, %value, %counter;
    .reg .b64 %x, %x0, %xstep, %y, %ystep, %row, %at, %bad;
    ld.param.u64 %base, [base];
    ld.param.u64 %words, [words];
    ld.param.u64 %rows, [rows];
    ld.param.u64 %pitch, [pitch];
    ld.param.u64 %value, [value];
    ld.param.u64 %counter, [counter];
    cvta.to.global.u64 %base, %base;
    cvta.to.global.u64 %counter, %counter;
    cvt.u32.u64 %want, %value;
    mov.u32 %t, %ctaid.x;
    mov.u32 %n, %ntid.x;
    mul.wide.u32 %x0, %t, %n;
    mov.u32 %t, %tid.x;
    cvt.u64.u32 %x, %t;
    add.u64 %x0, %x0, %x;
    mov.u32 %t, %nctaid.x;
    mul.wide.u32 %xstep, %t, %n;
    mov.u32 %t, %ctaid.y;
    cvt.u64.u32 %y, %t;
    mov.u32 %t, %nctaid.y;
    cvt.u64.u32 %ystep, %t;
    mov.u64 %bad, 0;
ROW:
    setp.ge.u64 %p, %y, %rows;
    @%p bra DONE;
    mad.lo.u64 %row, %y, %pitch, %base;
    mov.u64 %x, %x0;
WORD:
    setp.ge.u64 %p, %x, %words;
    @%p bra NEXT;
    shl.b64 %at, %x, 2;
    add.u64 %at, %row, %at;
    ld.global.u32 %have, [%at];
    setp.eq.u32 %p, %have, %want;
    add.u64 %x, %x, %xstep;
    @%p bra WORD;
    add.u64 %bad, %bad, 1;
    bra WORD;
NEXT:
    add.u64 %y, %y, %ystep;
    bra ROW;
DONE:
    setp.eq.u64 %p, %bad, 0;
    @%p bra END;
    red.global.add.u64 [%counter], %bad;
END:
    ret;
}
";

/// Threads in a block of the kernel.
pub(super) const THREADS: u32 = 256;
/// Enough blocks to fill any GPU that there is.
pub(super) const BLOCKS: u64 = 2048;
const SAMPLED: Bytes = 4 * KIB;
const WORD: Bytes = 4;

/// Writes patterns and looks for them.
#[derive(Debug)]
pub struct Painter {
    gpu: Gpu,
    coverage: Coverage,
    kernel: Kernel,
    /// Address of a 64-bit number in GPU memory to which each check adds the words that it found wrong.
    counter: u64,
    counted: u64,
    next: u32,
}

impl Painter {
    /// Loads the kernel.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(gpu: &Gpu, coverage: Coverage) -> Result<Self, DriverError> {
        let kernel = load_counter()?;
        // A page of its own: the driver would let the memory that is looked at share it.
        let counter = driver::mem_alloc(GRANULE)?;
        // The driver loads code when it is first used, and that takes memory: use all of it now, so that no replay's
        // peak has it.
        driver::fill(counter, 0, 1, 2, WORD)?;
        driver::fill_bytes(counter, 0, 8)?;
        driver::fill(counter, 0, 2, 1, 0)?;
        driver::launch(kernel, [1, 1], THREADS, &[counter, 2, 1, GRANULE, 0, counter])?;
        driver::synchronize()?;
        Ok(Self { gpu: gpu.clone(), coverage, kernel, counter, counted: 0, next: 0 })
    }

    /// Writes a pattern that no other stamp has over `size` bytes.
    ///
    /// # Errors
    /// What the driver says.
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
    ///
    /// # Errors
    /// What the driver says.
    pub fn check(&mut self, stamp: &Stamp) -> Result<Bytes, DriverError> {
        for (at, words, rows) in self.areas(stamp.size, stamp.at.0) {
            let blocks = words.div_ceil(u64::from(THREADS)).min(BLOCKS) as u32;
            let grid = [blocks, rows.min(BLOCKS) as u32];
            let parameters = [at, words, rows, GRANULE, u64::from(stamp.value), self.counter];
            driver::launch(self.kernel, grid, THREADS, &parameters)?;
        }
        let mut bytes = [0; 8];
        driver::read(self.counter, &mut bytes)?;
        let total = u64::from_le_bytes(bytes);
        let wrong = WORD * (total - std::mem::replace(&mut self.counted, total));
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

/// The kernel that counts mismatches.
pub(super) fn load_counter() -> Result<Kernel, DriverError> {
    driver::load_kernel(PTX, c"count_mismatches")
}

impl Drop for Painter {
    fn drop(&mut self) {
        // The context must be current, also when a panic unwinds; failures have no one to hear them.
        let _ = self.gpu.bind();
        let _ = driver::synchronize();
        let _ = driver::mem_free(self.counter);
        let _ = driver::unload_kernel(self.kernel);
    }
}
