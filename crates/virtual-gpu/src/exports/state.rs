//! State: the virtual GPU of this process, what each thread is at, and the memory behind device addresses.
//!
//! Device addresses are addresses of this process. A range of 16 TiB is reserved for them without memory behind it; the
//! kernel adds a page when a small copy touches it. So a pointer to the device can be read by the host, and copies are
//! copies.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::workspace::{Guess, Subject};
use crate::{Asker, Conf, VirtualGpu, Work};

/// Where device addresses lie.
const BOTTOM: u64 = 0x1000_0000_0000;
const TOP: u64 = 0x2000_0000_0000;

/// `cudaError_t` and `CUresult`, which number their values alike.
pub type Code = c_int;
pub const SUCCESS: Code = 0;
pub const INVALID_VALUE: Code = 1;
pub const OUT_OF_MEMORY: Code = 2;
pub const NO_DEVICE: Code = 100;
pub const INVALID_DEVICE: Code = 101;
pub const NO_KERNEL_IMAGE: Code = 209;
pub const NOT_FOUND: Code = 500;
pub const NOT_READY: Code = 600;
pub const NOT_SUPPORTED: Code = 801;

/// A stream as callers hand it over.
pub type Stream = *mut c_void;

struct Process {
    gpu: Mutex<VirtualGpu>,
    verbose: bool,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

thread_local! {
    static DEVICE: Cell<c_int> = const { Cell::new(0) };
    static LAST_ERROR: Cell<Code> = const { Cell::new(SUCCESS) };
    static REFUSED: RefCell<CString> = RefCell::default();
    static WORKS: Cell<bool> = const { Cell::new(false) };
    static EXPECTED: RefCell<VecDeque<(usize, u64)>> = const { RefCell::new(VecDeque::new()) };
}

fn process() -> &'static Process {
    PROCESS.get_or_init(|| {
        let conf = Conf::from(|name| std::env::var(name).ok());
        let conf = conf.unwrap_or_else(|problem| end(&problem));
        reserve_addresses();
        Process {
            gpu: Mutex::new(VirtualGpu::new(conf, BOTTOM, TOP)),
            verbose: std::env::var_os("GMLAKE_GPU_VERBOSE").is_some(),
        }
    })
}

/// Ends the process with a line: without a GPU there is nothing to answer.
fn end(problem: &str) -> ! {
    eprintln!("gmlake: virtual GPU: {problem}");
    std::process::exit(2)
}

fn reserve_addresses() {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let wanted = std::ptr::with_exposed_provenance_mut::<c_void>(BOTTOM as usize);
    // SAFETY: the mapping is new and replaces none, so no memory in use changes.
    let at = unsafe { libc::mmap(wanted, (TOP - BOTTOM) as usize, protection, flags, -1, 0) };
    if at != wanted {
        end("16 TiB of address space cannot be reserved; is there a limit (ulimit -v)?");
    }
}

/// The virtual GPU, locked.
pub fn gpu() -> MutexGuard<'static, VirtualGpu> {
    process().gpu.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The virtual GPU, locked, with the host's clock set.
///
/// What the process used of the processor is asked of the system only every 20 microseconds: the answer takes 2.
pub fn gpu_now() -> MutexGuard<'static, VirtualGpu> {
    const STEP_NS: u64 = 20_000;
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let mut gpu = gpu();
    let now = clock_ns(libc::CLOCK_MONOTONIC);
    if now - ASKED.load(Ordering::Relaxed).min(now) > STEP_NS {
        ASKED.store(now, Ordering::Relaxed);
        let used = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        gpu.timeline.work_until(used);
        if gpu.pace.is_due(used) {
            measure_pace(&mut gpu, used);
        }
    }
    gpu
}

/// Measures how quick this machine is, and leaves the time for that out.
fn measure_pace(gpu: &mut VirtualGpu, used: u64) {
    let begin = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let _ = gpu.pace.probe();
    let took = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) - begin;
    gpu.pace.took(took, used + took);
    gpu.timeline.set_host_pace(gpu.pace.now());
    gpu.timeline.leave_out(took);
}

/// What this thread is when it asks how far the GPU is.
pub fn asker() -> Asker {
    if WORKS.get() { Asker::Worker } else { Asker::Watcher }
}

/// A clock of the system. That of the process is what all its threads together have used of the processor.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the time is ours.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Writes the name of a function that was called, if `GMLAKE_GPU_VERBOSE` is set.
pub fn trace(name: &str) {
    if process().verbose {
        eprintln!("gmlake: virtual GPU: {name}");
    }
}

/// How many devices the program sees. The first time this is asked, `CUDA_VISIBLE_DEVICES` is read, as by `cuInit`;
/// what NVML, the loader and `gmlake predict` ask before comes without it.
pub fn devices() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let mut gpu = gpu();
        gpu.see(std::env::var("CUDA_VISIBLE_DEVICES").ok());
        gpu.memories.len()
    })
}

/// The index of the device that this thread works with, if the program sees one.
pub fn current() -> Result<usize, Code> {
    if devices() > 0 { Ok(device() as usize) } else { Err(NO_DEVICE) }
}

/// The device that this thread works with.
pub fn device() -> c_int {
    DEVICE.get()
}

/// Chooses the device that this thread works with.
pub fn set_device(device: c_int) -> Code {
    if usize::try_from(device).is_ok_and(|index| index < devices()) {
        DEVICE.set(device);
        return SUCCESS;
    }
    INVALID_DEVICE
}

/// Remembers an error for `cudaGetLastError`. Only functions of the runtime do so: the driver and the other libraries
/// leave the runtime's last error alone.
pub fn failed(code: Code) -> Code {
    LAST_ERROR.set(code);
    code
}

/// Remembers the outcome of a function of the runtime if it is an error.
pub fn remembered(code: Code) -> Code {
    if code == SUCCESS { code } else { failed(code) }
}

/// The last error of this thread.
pub fn last_error() -> Code {
    LAST_ERROR.get()
}

/// Answers a call of a function that the virtual GPU does not have.
pub fn unwritten(name: &str) -> Code {
    let text = format!("the virtual GPU does not have {name}");
    if gpu().note_unwritten(name) {
        eprintln!("gmlake: {text}");
    }
    REFUSED.set(CString::new(text).unwrap_or_default());
    if name.starts_with("cuda") { failed(NOT_SUPPORTED) } else { NOT_SUPPORTED }
}

/// A sentence about the function that was refused last on this thread. Valid until the next refusal.
pub fn refusal() -> *const c_char {
    REFUSED.with_borrow(|text| text.as_ptr())
}

/// An error code that has no sentence of its own: the library whose it is, and the number. Valid until the next one.
pub fn numbered(library: &str, code: c_int) -> *const c_char {
    thread_local!(static TEXT: RefCell<CString> = RefCell::default());
    TEXT.set(
        CString::new(format!("{library} error {code} on the virtual GPU")).unwrap_or_default(),
    );
    TEXT.with_borrow(|text| text.as_ptr())
}

/// Whether an address is one of the device's.
pub fn is_device(at: u64) -> bool {
    (BOTTOM..TOP).contains(&at)
}

/// The number of an address or handle.
pub fn number<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// The pointer of a number.
pub fn pointer(number: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(number as usize)
}

/// The name of a stream: each device has a default stream of its own.
pub fn stream(of: Stream) -> u64 {
    match number(of) {
        0..=2 => 0x10 + device() as u64,
        named => named,
    }
}

/// Queues work on a stream.
pub fn work(on: Stream, work: Work) {
    let on = stream(on);
    WORKS.set(true);
    gpu_now().work(on, work);
}

/// Bytes of a workspace: what was measured, or else the estimate, which is noted. See [`ran`].
pub fn workspace(subject: Subject, guess: Guess) -> u64 {
    gpu().workspace(subject, guess)
}

/// Notes that a workspace is in use now, if it is a guess.
pub fn ran(subject: impl FnOnce() -> Subject) {
    let guesses = &mut gpu().guesses;
    if !guesses.is_empty() {
        guesses.ran(&subject(), clock_ns(libc::CLOCK_REALTIME) / 1000);
    }
}

/// Writes a text with a zero behind it, as far as there is room. Returns the length without the zero.
///
/// # Safety
/// `to` has `room` characters.
pub unsafe fn put_text(text: &str, to: *mut c_char, room: usize) -> usize {
    if room > 0 {
        let length = text.len().min(room - 1);
        // SAFETY: the caller promises the room.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, length);
            to.add(length).write(0);
        }
    }
    text.len()
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `to` is null or can be written to.
pub unsafe fn put<T>(to: *mut T, value: T) -> Code {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller promises that it can be written to.
    unsafe { to.write(value) };
    SUCCESS
}

/// A list that the caller hands over; none if it is null.
///
/// # Safety
/// `from` is null or has `count` items, for as long as they are looked at.
pub unsafe fn list<'a, T>(from: *const T, count: c_int) -> &'a [T] {
    let count = count.max(0) as usize;
    // SAFETY: as the caller promises.
    if from.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(from, count) } }
}

/// The next copies to the host of this many bytes deliver these values, in this order.
pub fn expect_read(bytes: usize, value: u64) {
    EXPECTED.with_borrow_mut(|queue| queue.push_back((bytes, value)));
}

/// Forgets what `expect_read` said.
pub fn expect_nothing() {
    EXPECTED.with_borrow_mut(VecDeque::clear);
}

/// The value that a copy of this many bytes delivers, if one was foreseen.
pub fn expected(bytes: usize) -> Option<u64> {
    EXPECTED.with_borrow_mut(|queue| {
        let foreseen = queue.front().is_some_and(|&(wanted, _)| wanted == bytes);
        if foreseen { queue.pop_front().map(|(_, value)| value) } else { None }
    })
}

/// Gives the pages behind freed device memory back to the kernel; they read as zeros again.
pub fn discard(at: u64, bytes: u64) {
    gpu().known.remove(at, bytes);
    // SAFETY: the range lies in our own anonymous mapping, and the program has freed it.
    unsafe { libc::madvise(pointer(at), bytes as usize, libc::MADV_DONTNEED) };
}
