//! NVML, the monitor: as much of it as PyTorch asks for.
//!
//! Expandable segments ask whether the card is in a fabric, and an out-of-memory message who else holds memory. It is
//! in none, and no one else does. What other programs would ask first (`nvmlInit`) is left out, so that they find no
//! monitor, rather than one that contradicts itself.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::exports::state::put;

const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 3;

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    SUCCESS
}

/// No handle: the monitor does not know the card.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    _bus: *const c_char,
    to: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller hands over a place for the handle.
    unsafe { put(to, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses(
    _device: *mut c_void,
    count: *mut c_uint,
    _processes: *mut c_void,
) -> c_int {
    // SAFETY: the caller hands over a place for the number.
    unsafe { put(count, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) -> c_int {
    // SAFETY: the caller hands over a place for the version.
    unsafe { put(to, crate::exports::state::gpu().conf.cuda) }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetGpuFabricInfoV() -> c_int {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType() -> c_int {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2() -> c_int {
    NOT_SUPPORTED
}
