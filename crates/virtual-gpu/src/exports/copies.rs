//! Copies: done for real up to 1 MiB, so that ids, lengths and flags arrive; larger ones are dropped.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{KeptCopy, Work};

use crate::exports::host;
use crate::exports::state::{self, Code, SUCCESS, Stream, gpu, is_device, number, pointer};

/// Larger copies are not done.
const LIMIT: usize = 1 << 20;

/// Called with address and size when the program reads bytes that no one knows.
pub type OnUnknownRead = extern "C" fn(*const c_void, usize);

static ON_UNKNOWN_READ: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Has `call` called at each read of unknown bytes from now on.
pub fn on_unknown_read(call: Option<OnUnknownRead>) {
    let call = call.map_or(std::ptr::null_mut(), |call| call as *mut c_void);
    ON_UNKNOWN_READ.store(call, Ordering::Release);
}

fn tell_unknown_read(from: u64, bytes: usize) {
    gpu().unknown_reads += 1;
    let call = ON_UNKNOWN_READ.load(Ordering::Acquire);
    if !call.is_null() {
        // SAFETY: only `on_unknown_read` stores here, and what it stores is such a function.
        let call = unsafe { std::mem::transmute::<*mut c_void, OnUnknownRead>(call) };
        call(pointer(from), bytes);
    }
}

/// Copies `bytes` bytes on a stream, or keeps the copy for later where the stream is captured.
///
/// # Safety
/// Host memory at `to` can be written, and at `from` be read.
pub unsafe fn copy(to: *mut c_void, from: *const c_void, bytes: usize, on: Stream) -> Code {
    let (target, source) = (number(to), number(from));
    let on = state::stream(on);
    let size = bytes as u64;
    let inside = is_device(target) && is_device(source);
    {
        let mut gpu = gpu();
        gpu.work(on, if inside { Work::Bytes(size) } else { Work::Bus(size) });
        if let Some(capture) = gpu.graphs.of(on) {
            capture.copies.push(KeptCopy { to: target, from: source, bytes: size });
            return SUCCESS;
        }
    }
    // SAFETY: as the caller promises.
    unsafe { do_copy(target, source, bytes) };
    SUCCESS
}

/// Copies at once.
///
/// # Safety
/// As for [`copy`].
pub unsafe fn do_copy(target: u64, source: u64, bytes: usize) {
    let to_device = is_device(target);
    let from_device = is_device(source);
    if bytes > LIMIT && (to_device || from_device) {
        if to_device {
            gpu().known.remove(target, bytes as u64);
        } else if !host::discard(target, bytes) {
            // SAFETY: the caller promises that host memory there can be written.
            unsafe { std::ptr::write_bytes(pointer(target).cast::<u8>(), 0, bytes) };
        }
        return;
    }
    if from_device && !to_device {
        if let Some(value) = state::expected(bytes) {
            let value = value.to_ne_bytes();
            // SAFETY: `bytes` was foreseen as 8 at most, and the host's memory can be written.
            unsafe {
                std::ptr::copy_nonoverlapping(value.as_ptr(), pointer(target).cast(), bytes.min(8))
            };
            return;
        }
        let known = gpu().known.holds(source, bytes as u64);
        if !known {
            tell_unknown_read(source, bytes);
        }
    }
    // SAFETY: device addresses are mapped memory of this process; for the host's the caller promises.
    unsafe { std::ptr::copy(pointer(source).cast::<u8>(), pointer(target).cast::<u8>(), bytes) };
    match (from_device, to_device) {
        (true, true) => gpu().known.copy(target, source, bytes as u64),
        (false, true) => gpu().known.add(target, bytes as u64),
        _ => {}
    }
}

/// Sets `bytes` bytes on a stream.
///
/// # Safety
/// Host memory at `to` can be written.
pub unsafe fn set(to: *mut c_void, value: i32, bytes: usize, on: Stream) -> Code {
    state::work(on, Work::Bytes(bytes as u64 / 2));
    let target = number(to);
    if bytes > LIMIT && is_device(target) && value as u8 != 0 {
        gpu().known.remove(target, bytes as u64);
        return SUCCESS;
    }
    let is_host = !is_device(target);
    if bytes > LIMIT && is_host && value as u8 == 0 && host::discard(target, bytes) {
        return SUCCESS;
    }
    // SAFETY: device addresses are mapped memory of this process; for the host's the caller promises.
    unsafe { fill(target, value as u8, bytes) };
    if !is_host {
        gpu().known.add(target, bytes as u64);
    }
    SUCCESS
}

/// Fills memory; large zeros by giving pages back, which read as zeros.
///
/// # Safety
/// As for [`set`].
unsafe fn fill(target: u64, value: u8, bytes: usize) {
    const PAGE: u64 = 4096;
    let end = target + bytes as u64;
    let (first, last) = (target.next_multiple_of(PAGE), end & !(PAGE - 1));
    let by_pages = bytes > LIMIT && is_device(target);
    let (head, tail) = if by_pages { (first, last) } else { (end, end) };
    if by_pages {
        state::discard(first, last - first);
    }
    // SAFETY: both parts lie in the range that the caller promises.
    unsafe {
        std::ptr::write_bytes(pointer(target).cast::<u8>(), value, (head - target) as usize);
        std::ptr::write_bytes(pointer(tail).cast::<u8>(), value, (end - tail) as usize);
    }
}
