//! The CUDA runtime: memory and copies. Its devices, streams and launches are in files of their own.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::{HostKind, MemoryError};

use crate::exports::copies;
use crate::exports::entry_points;
use crate::exports::host;
use crate::exports::state::{
    self, Code, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_FOUND, NOT_SUPPORTED, OUT_OF_MEMORY,
    SUCCESS, Stream, failed, gpu, number, pointer, put, remembered,
};

/// The code of a refusal by the memory of a device.
pub fn code(error: MemoryError) -> Code {
    match error {
        MemoryError::OutOfMemory => OUT_OF_MEMORY,
        MemoryError::Invalid => INVALID_VALUE,
    }
}

/// Takes memory of this thread's device.
pub fn malloc(bytes: usize) -> Result<u64, Code> {
    let device = state::current()?;
    gpu().malloc(device, bytes as u64).map_err(code)
}

/// Gives memory back, of whichever device.
pub fn free(at: u64) -> Code {
    let freed = gpu().free(at);
    match freed {
        Some(bytes) => {
            state::discard(at, bytes);
            SUCCESS
        }
        None if host::free(at, HostKind::Managed) => SUCCESS,
        None => INVALID_VALUE,
    }
}

/// The first fields of `cudaPointerAttributes`, which all versions share.
#[repr(C)]
pub struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: *const c_void,
    host_pointer: *const c_void,
}

/// The device that an address belongs to.
pub fn device_of(at: u64) -> Option<usize> {
    gpu().memories.iter().position(|memory| memory.range_of(at).is_some())
}

/// Errors, with their names and in words.
const ERRORS: [(Code, &CStr, &CStr); 11] = [
    (SUCCESS, c"cudaSuccess", c"no error"),
    (INVALID_VALUE, c"cudaErrorInvalidValue", c"invalid argument"),
    (OUT_OF_MEMORY, c"cudaErrorMemoryAllocation", c"out of memory"),
    (NO_DEVICE, c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
    (INVALID_DEVICE, c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    (NOT_FOUND, c"cudaErrorSymbolNotFound", c"named symbol not found"),
    (state::NOT_READY, c"cudaErrorNotReady", c"device not ready"),
    (
        state::NO_KERNEL_IMAGE,
        c"cudaErrorNoKernelImageForDevice",
        c"no kernel image is available for execution on the device",
    ),
    // Libraries above find these by themselves.
    (98, c"cudaErrorInvalidDeviceFunction", c"invalid device function (error 98)"),
    (700, c"cudaErrorIllegalAddress", c"an illegal memory access was encountered (error 700)"),
    (719, c"cudaErrorLaunchFailure", c"unspecified launch failure (error 719)"),
];

/// An error in words.
pub fn words(code: Code) -> *const c_char {
    match ERRORS.iter().find(|known| known.0 == code) {
        Some((.., words)) => words.as_ptr(),
        None if code == NOT_SUPPORTED => state::refusal(),
        None => state::numbered("CUDA", code),
    }
}

/// An error's name.
pub fn name(code: Code) -> *const c_char {
    match ERRORS.iter().find(|known| known.0 == code) {
        Some((_, name, _)) => name.as_ptr(),
        None if code == NOT_SUPPORTED => c"cudaErrorNotSupported".as_ptr(),
        None => c"cudaErrorUnknown".as_ptr(),
    }
}

/// Finds a function of the driver by its name.
///
/// # Safety
/// `symbol` ends with a zero; `to` can be written to, `status` too or it is null.
unsafe fn entry_point(symbol: *const c_char, to: *mut *const c_void, status: *mut c_int) -> Code {
    // SAFETY: as the caller promises.
    let wanted = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
    state::trace(&format!("entry point {wanted}"));
    let found = entry_points::find(&wanted);
    // SAFETY: as the caller promises.
    unsafe {
        put(to, found.unwrap_or(std::ptr::null()));
        if !status.is_null() {
            status.write(if found.is_some() { 0 } else { 1 });
        }
    }
    if found.is_none() {
        state::unwritten(&wanted);
    }
    // Whether there is such a function, the status says; where the caller wants none, the code does.
    if found.is_some() || !status.is_null() { SUCCESS } else { failed(NOT_FOUND) }
}

skins! {
    cudaMemGetInfo(free: *mut usize, total: *mut usize) = {
        let Ok(device) = state::current() else { return NO_DEVICE };
        let info = gpu().memories[device].info();
        put(free, info.0 as usize);
        put(total, info.1 as usize)
    };
    cudaPointerGetAttributes(to: *mut PointerAttributes, at: *const c_void) = {
        let none = std::ptr::null();
        let (kind, device, device_pointer, host_pointer) = match host::kind_of(number(at)) {
            _ if let Some(device) = device_of(number(at)) => (2, device as c_int, at, none),
            Some(HostKind::Managed) => (3, state::device(), at, at),
            Some(_) => (1, state::device(), at, at),
            None => (0, -2, none, at),
        };
        put(to, PointerAttributes { kind, device, device_pointer, host_pointer })
    };
    cudaMemcpy2DAsync(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize,
        height: usize, _kind: c_int, on: Stream
    ) = {
        for row in 0..height {
            let (to, from) = (to.byte_add(row * to_pitch), from.byte_add(row * from_pitch));
            copies::copy(to, from, width, on);
        }
        SUCCESS
    };
    cudaGetErrorString(of: Code) -> *const c_char = words(of);
    cudaGetErrorName(of: Code) -> *const c_char = name(of);
    cudaGetSymbolAddress(to: *mut *mut c_void, _symbol: *const c_void) = {
        /// Room for any variable of a module; kernels, which would use it, do not run.
        const ROOM: usize = 1 << 20;
        static VARIABLE: std::sync::OnceLock<Box<[u8]>> = std::sync::OnceLock::new();
        let at = VARIABLE.get_or_init(|| vec![0; ROOM].into_boxed_slice()).as_ptr();
        put(to, at.cast_mut().cast())
    };
    cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, _kind: c_int) = {
        let none = std::ptr::null_mut();
        let done = copies::copy(to, from, bytes, none);
        gpu().timeline.wait_for_stream(state::stream(none));
        done
    };
    cudaGetLastError() = {
        let last = state::last_error();
        failed(SUCCESS);
        last
    };
    cudaMalloc(to: *mut *mut c_void, bytes: usize) =
        malloc(bytes).map_or_else(failed, |at| put(to, pointer(at)));
    cudaMallocAsync(to: *mut *mut c_void, bytes: usize, _on: Stream) = cudaMalloc(to, bytes);
    cudaFree(at: *mut c_void) = if at.is_null() { SUCCESS } else { remembered(free(number(at))) };
    cudaFreeAsync(at: *mut c_void, _on: Stream) = cudaFree(at);
    cudaMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, _kind: c_int, on: Stream) =
        copies::copy(to, from, bytes, on);
    cudaMemcpyPeerAsync(
        to: *mut c_void, _to_device: c_int, from: *const c_void, _from_device: c_int,
        bytes: usize, on: Stream
    ) = copies::copy(to, from, bytes, on);
    cudaMemset(to: *mut c_void, value: c_int, bytes: usize) =
        copies::set(to, value, bytes, std::ptr::null_mut());
    cudaMemsetAsync(to: *mut c_void, value: c_int, bytes: usize, on: Stream) =
        copies::set(to, value, bytes, on);
    cudaPeekAtLastError() = state::last_error();
    cudaGetDriverEntryPointByVersion(
        symbol: *const c_char, to: *mut *const c_void, _version: c_uint, _flags: u64,
        status: *mut c_int
    ) = entry_point(symbol, to, status);
    cudaGetDriverEntryPoint(
        symbol: *const c_char, to: *mut *const c_void, _flags: u64, status: *mut c_int
    ) = entry_point(symbol, to, status);
    cudaDeviceGetDefaultMemPool(to: *mut *mut c_void, _device: c_int) =
        put(to, pointer(gpu().object()));
    /// All attributes of a memory pool that PyTorch asks for are numbers of 64 bits.
    cudaMemPoolGetAttribute(_pool: *mut c_void, _attribute: c_int, to: *mut u64) = put(to, 0);
}
