//! The driver, `libcuda.so.1`: virtual memory management for expandable segments and for our own plug-in, modules and
//! launches for Triton.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::HostKind;

use crate::exports::copies;
use crate::exports::devices;
use crate::exports::entry_points;
use crate::exports::host;
use crate::exports::kernels;
use crate::exports::runtime::{self, code};
use crate::exports::state::{
    self, Code, INVALID_DEVICE, NO_DEVICE, NOT_FOUND, SUCCESS, Stream, gpu, number, pointer, put,
    put_text,
};
use crate::exports::streams;

/// The handle of a device's primary context.
fn context(device: c_int) -> *mut c_void {
    pointer(0x100 + device as u64)
}

/// The first fields of `CUmemAllocationProp`.
#[repr(C)]
pub struct AllocationProperties {
    kind: c_int,
    handle_kinds: c_int,
    location_kind: c_int,
    device: c_int,
}

/// The number of the device in the lowest hexadecimal digits of a handle, above it the handle of the device's memory.
const DEVICES: u64 = 64;

fn split(handle: u64) -> (usize, u64) {
    ((handle % DEVICES) as usize, handle / DEVICES)
}

/// Memsets by numbers of one or four bytes; one byte is enough where all four are the same.
macro_rules! memsets {
    ($($name:ident($value:ty, $width:literal $(, $on:ident: Stream)?);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            to: u64, value: $value, count: usize $(, $on: Stream)?
        ) -> Code {
            let on: Stream = [$($on,)? std::ptr::null_mut()][0];
            // SAFETY: the caller hands over a range of this size.
            unsafe { copies::set(pointer(to), value as c_int & 0xff, count * $width, on) }
        }
    )*};
}

memsets! {
    cuMemsetD8_v2(u8, 1);
    cuMemsetD8Async(u8, 1, on: Stream);
    cuMemsetD32_v2(u32, 4);
    cuMemsetD32Async(u32, 4, on: Stream);
}

skins! {
    /// `CU_POINTER_ATTRIBUTE_*` that PyTorch and Triton ask for.
    cuPointerGetAttribute(to: *mut c_void, attribute: c_int, at: u64) = {
        const CONTEXT: c_int = 1;
        const MEMORY_TYPE: c_int = 2;
        const DEVICE_POINTER: c_int = 3;
        const HOST_POINTER: c_int = 4;
        const IS_MANAGED: c_int = 8;
        const DEVICE: c_int = 9;
        const RANGE_START: c_int = 11;
        const RANGE_SIZE: c_int = 12;
        /// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`
        const HOST_TYPE: c_int = 1;
        const DEVICE_TYPE: c_int = 2;
        let host_kind = host::kind_of(at);
        let (device, kind) = match runtime::device_of(at) {
            Some(device) => (device as c_int, DEVICE_TYPE),
            None if host_kind.is_some() => (state::device(), HOST_TYPE),
            None => return state::INVALID_VALUE,
        };
        let range = gpu().range_of(at);
        match attribute {
            CONTEXT => put(to.cast(), context(device)),
            MEMORY_TYPE => put(to.cast(), kind),
            // Pinned memory has the same address on the device.
            DEVICE_POINTER => put(to.cast(), at),
            HOST_POINTER if kind == HOST_TYPE => put(to.cast(), at),
            HOST_POINTER => state::INVALID_VALUE,
            DEVICE => put(to.cast(), device),
            IS_MANAGED => put(to.cast::<c_uint>(), (host_kind == Some(HostKind::Managed)).into()),
            RANGE_START => put(to.cast(), range.map_or(at, |(base, _)| base)),
            RANGE_SIZE => put(to.cast(), range.map_or(0, |(_, bytes)| bytes)),
            _ => put(to.cast::<c_int>(), 0),
        }
    };
    cuGetProcAddress_v2(
        symbol: *const c_char, to: *mut *const c_void, _version: c_int, _flags: u64,
        status: *mut c_int
    ) = {
        let found = entry_points::find(&CStr::from_ptr(symbol).to_string_lossy());
        put(to, found.unwrap_or(std::ptr::null()));
        if !status.is_null() {
            status.write(c_int::from(found.is_none()));
        }
        if found.is_some() { SUCCESS } else { NOT_FOUND }
    };
    cuMemAddressReserve(to: *mut u64, bytes: usize, _alignment: usize, _wish: u64, _flags: u64) = {
        let Ok(device) = state::current() else { return NO_DEVICE };
        let reserved = gpu().reserve(device, bytes as u64);
        reserved.map_or_else(code, |at| put(to, at))
    };
    cuMemAddressFree(at: u64, bytes: usize) =
        gpu().unreserve(at, bytes as u64).map_or_else(code, |()| SUCCESS);
    cuMemCreate(to: *mut u64, bytes: usize, wanted: *const AllocationProperties, _flags: u64) = {
        let device = (*wanted).device;
        let Some(index) = devices::device_index(device) else { return INVALID_DEVICE };
        let created = gpu().memories[index].create(bytes as u64);
        created.map_or_else(code, |handle| put(to, handle * DEVICES + index as u64))
    };
    cuMemUnmap(at: u64, bytes: usize) = {
        let unmapped = gpu().unmap(at, bytes as u64);
        unmapped.map_or_else(code, |()| {
            state::discard(at, bytes as u64);
            SUCCESS
        })
    };
    /// The first address and the size of the allocation that an address lies in.
    cuMemGetAddressRange_v2(to: *mut u64, bytes: *mut usize, at: u64) = {
        let Some((base, size)) = gpu().range_of(at) else { return NOT_FOUND };
        if !to.is_null() {
            to.write(base);
        }
        if !bytes.is_null() {
            bytes.write(size as usize);
        }
        SUCCESS
    };
    cuPointerGetAttributes(
        count: c_uint, attributes: *const c_int, places: *const *mut c_void, at: u64
    ) = {
        let all = (0..count as usize)
            .map(|i| cuPointerGetAttribute(*places.add(i), *attributes.add(i), at));
        all.max().unwrap_or(SUCCESS)
    };
    /// `CU_FUNC_ATTRIBUTE_*`: threads per block, registers, and no shared or local memory.
    cuFuncGetAttribute(to: *mut c_int, attribute: c_int, function: *mut c_void) = {
        let Some(code) = kernels::chosen(function) else { return state::NO_KERNEL_IMAGE };
        let value = match attribute {
            0 => 1024,
            4 => crate::exports::launches::REGISTERS,
            5 => code.ptx,
            6 => code.binary,
            _ => 0,
        };
        put(to, value)
    };
    cuDevicePrimaryCtxGetState(_device: c_int, flags: *mut c_uint, active: *mut c_int) =
        { put(flags, 0); put(active, 1) };
    /// What a handle was created with: memory of a device, not to be shared.
    cuMemGetAllocationPropertiesFromHandle(to: *mut AllocationProperties, handle: u64) = {
        let device = split(handle).0 as c_int;
        put(to, AllocationProperties { kind: 1, handle_kinds: 0, location_kind: 1, device })
    };
    cuMemRelease(handle: u64) = {
        let (device, handle) = split(handle);
        gpu().memories[device].release(handle).map_or_else(code, |()| SUCCESS)
    };
    cuMemMap(at: u64, bytes: usize, _offset: usize, handle: u64, _flags: u64) = {
        let (device, handle) = split(handle);
        gpu().memories[device].map(at, bytes as u64, handle).map_or_else(code, |()| SUCCESS)
    };
    /// A device's handle is its index.
    cuDeviceGet(to: *mut c_int, index: c_int) = devices::on_device(index, || put(to, index));
    cuDeviceGetAttribute(to: *mut c_int, attribute: c_int, device: c_int) =
        devices::on_device(device, || put(to, gpu().conf.card.attribute(attribute)));
    cuDeviceGetName(to: *mut c_char, room: c_int, device: c_int) = devices::on_device(device, || {
        put_text(&gpu().conf.card.chip.reported, to, room.max(0) as usize);
        SUCCESS
    });
    cuDeviceTotalMem_v2(to: *mut usize, device: c_int) =
        devices::on_device(device, || put(to, gpu().conf.card.memory as usize));
    cuCtxSetCurrent(to: *mut c_void) = match number(to) {
        0 => SUCCESS,
        context => state::set_device(context.wrapping_sub(0x100) as c_int),
    };
    cuMemAlloc_v2(to: *mut u64, bytes: usize) =
        runtime::malloc(bytes).map_or_else(|code| code, |at| put(to, at));
    cuDriverGetVersion(to: *mut c_int) = devices::cudaDriverGetVersion(to);
    cuInit(_flags: c_uint) = state::current().map_or_else(|code| code, |_| SUCCESS);
    cuDeviceGetCount(to: *mut c_int) = devices::count(to);
    cuDeviceCanAccessPeer(to: *mut c_int, device: c_int, peer: c_int) =
        devices::cudaDeviceCanAccessPeer(to, device, peer);
    cuDevicePrimaryCtxRetain(to: *mut *mut c_void, device: c_int) = put(to, context(device));
    cuCtxGetCurrent(to: *mut *mut c_void) = put(to, context(state::device()));
    cuCtxGetDevice(to: *mut c_int) = put(to, state::device());
    cuCtxSynchronize() = streams::cudaDeviceSynchronize();
    cuGetErrorString(of: Code, to: *mut *const c_char) = put(to, runtime::words(of));
    cuGetErrorName(of: Code, to: *mut *const c_char) = put(to, runtime::name(of));
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) = runtime::cudaMemGetInfo(free, total);
    cuMemFree_v2(at: u64) = runtime::free(at);
    cuMemGetAllocationGranularity(to: *mut usize, _wanted: *const c_void, _which: c_int) =
        put(to, 2 << 20);
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) =
        runtime::cudaMemcpy(to, pointer(from), bytes, 0);
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) =
        runtime::cudaMemcpy(pointer(to), from, bytes, 0);
    cuEventRecord(event: *mut c_void, on: Stream) = streams::cudaEventRecord(event, on);
    cuEventQuery(event: *mut c_void) = streams::event_state(event);
    cuEventSynchronize(event: *mut c_void) = streams::cudaEventSynchronize(event);
    cuEventDestroy_v2(event: *mut c_void) = streams::cudaEventDestroy(event);
    cuStreamWaitEvent(on: Stream, event: *mut c_void, flags: c_uint) =
        streams::cudaStreamWaitEvent(on, event, flags);
    cuStreamQuery(of: Stream) = streams::stream_state(of);
    cuStreamSynchronize(of: Stream) = streams::cudaStreamSynchronize(of);
    cuStreamIsCapturing(of: Stream, to: *mut c_int) = streams::cudaStreamIsCapturing(of, to);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_int) =
        streams::cudaThreadExchangeStreamCaptureMode(mode);
    cuModuleGetFunction(to: *mut *mut c_void, module: *mut c_void, _name: *const c_char) =
        put(to, module);
    cuOccupancyMaxActiveClusters(to: *mut c_int, _function: *mut c_void, _config: *const c_void) =
        put(to, gpu().conf.card.chip.multiprocessors);
}
