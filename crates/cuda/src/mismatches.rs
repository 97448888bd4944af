//! How many words of GPU memory are not what they should be: a kernel that counts them.

use std::ffi::CStr;

use super::driver::{self, DriverError, Kernel, Stream};
use gmlake_allocators::device::GRANULE;
use gmlake_core::units::Bytes;

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
const THREADS: u32 = 256;
/// Enough blocks to fill any GPU that there is.
const BLOCKS: u64 = 2048;
/// What is counted.
pub(super) const WORD: Bytes = 4;

/// The kernel, and what it has found.
#[derive(Debug)]
pub(super) struct Mismatches {
    kernel: Kernel,
    /// Address of a 64-bit number in GPU memory to which each count adds the words that it found wrong.
    pub(super) counter: u64,
    counted: u64,
}

impl Mismatches {
    /// Loads the kernel, and obtains `size` bytes for its number.
    pub(super) fn new(size: Bytes) -> Result<Self, DriverError> {
        let kernel = Kernel::load(PTX, c"count_mismatches")?;
        let counter = driver::mem_alloc(size)?;
        driver::fill_bytes(counter, 0, 8)?;
        Ok(Self { kernel, counter, counted: 0 })
    }

    /// Queues counting the words that are not `value`, in so many words of so many rows, a granule apart.
    pub(super) fn count(
        &self,
        stream: Stream,
        at: u64,
        [words, rows]: [u64; 2],
        value: u32,
    ) -> Result<(), DriverError> {
        let blocks = words.div_ceil(THREADS.into()).clamp(1, BLOCKS) as u32;
        let parameters = [at, words, rows, GRANULE, u64::from(value), self.counter];
        self.kernel.launch(stream, [blocks, rows.min(BLOCKS) as u32], THREADS, &parameters)
    }

    /// Bytes of the words found wrong since the last call. The stream must be empty, or the default one.
    pub(super) fn found(&mut self) -> Result<Bytes, DriverError> {
        let mut bytes = [0; 8];
        driver::read(self.counter, &mut bytes)?;
        let total = u64::from_le_bytes(bytes);
        Ok(WORD * (total - std::mem::replace(&mut self.counted, total)))
    }

    /// Gives everything back. Failures have no one to hear them.
    pub(super) fn end(&self) {
        let _ = driver::mem_free(self.counter);
        let _ = self.kernel.unload();
    }
}
