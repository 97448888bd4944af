//! Memory that another process has: `cudaIpc*`, by which ranks of one machine map each other's buffers.
//!
//! A handle says how large the owner's allocation is. Who opens it gets a range of addresses of that size, which takes
//! no memory of its device, as on a card. What the owner wrote is not there: it is unknown, as after a kernel.

use std::ffi::{c_uint, c_void};

use crate::exports::state::{self, SUCCESS, gpu, number, pointer, put};

const MARK: u64 = u64::from_le_bytes(*b"gmlakeIP");
const GRANULE: u64 = 2 << 20;

/// `cudaIpcMemHandle_t`, which C hands over by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemHandle {
    mark: u64,
    bytes: u64,
    rest: [u64; 6],
}

/// The handle of the allocation in which an address lies.
fn handle_of(at: u64) -> Option<MemHandle> {
    let (_, bytes) = gpu().range_of(at)?;
    Some(MemHandle { mark: MARK, bytes, rest: [0; 6] })
}

/// Addresses for the memory that a handle names.
fn open(handle: MemHandle) -> Option<u64> {
    let device = state::current().ok()?;
    let bytes = handle.bytes.checked_next_multiple_of(GRANULE).filter(|_| handle.mark == MARK)?;
    gpu().reserve(device, bytes).ok()
}

/// Gives the addresses back. False where they are not the beginning of such a range.
fn close(at: u64) -> bool {
    let mut gpu = gpu();
    let found = gpu.range_of(at).filter(|&(base, _)| base == at);
    found.is_some_and(|(base, bytes)| gpu.unreserve(base, bytes).is_ok())
}

skins! {
    cudaIpcOpenMemHandle(to: *mut *mut c_void, handle: MemHandle, _flags: c_uint) =
        open(handle).map_or_else(|| state::failed(state::INVALID_VALUE), |at| put(to, pointer(at)));
    cuIpcGetMemHandle(to: *mut MemHandle, at: u64) =
        handle_of(at).map_or(state::INVALID_VALUE, |handle| put(to, handle));
    cuIpcOpenMemHandle_v2(to: *mut u64, handle: MemHandle, _flags: c_uint) =
        open(handle).map_or(state::INVALID_VALUE, |at| put(to, at));
    cuIpcCloseMemHandle(at: u64) = if close(at) { SUCCESS } else { state::INVALID_VALUE };
    cudaIpcGetMemHandle(to: *mut MemHandle, at: *mut c_void) =
        state::remembered(cuIpcGetMemHandle(to, number(at)));
    cudaIpcCloseMemHandle(at: *mut c_void) = state::remembered(cuIpcCloseMemHandle(number(at)));
}
