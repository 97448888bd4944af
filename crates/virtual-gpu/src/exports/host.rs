//! Host memory that the GPU can reach: pinned, registered and managed. It is mapped and not touched. What is not
//! touched reads as zeros and takes no memory.

use std::ffi::{c_int, c_uint, c_void};

use crate::{HostKind, HostRange};

use crate::exports::pages;
use crate::exports::state::{
    Code, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, Stream, gpu, number, pointer, put, remembered,
};

const PAGE: usize = 4096;
/// From this size on it is worth a look into the list of mappings, which takes a millisecond.
const MUCH: u64 = 8 << 20;

/// Maps memory for the program, and notes it.
fn allocate(bytes: usize, kind: HostKind) -> Result<*mut c_void, Code> {
    let size = bytes.max(1).checked_next_multiple_of(PAGE).ok_or(INVALID_VALUE)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the mapping is new, and replaces none.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(OUT_OF_MEMORY);
    }
    gpu().host.add(number(at), size as u64, kind);
    Ok(at)
}

/// Takes memory back that `allocate` gave, of this kind; false if nothing of it begins here.
pub fn free(at: u64, kind: HostKind) -> bool {
    let mut gpu = gpu();
    if gpu.host.find(at).is_none_or(|found| found.at != at || found.kind != kind) {
        return false;
    }
    let Some(HostRange { bytes, .. }) = gpu.host.remove(at) else { return false };
    // SAFETY: `allocate` mapped this range, and the program has freed it.
    unsafe { libc::munmap(pointer(at), bytes as usize) };
    true
}

/// Makes this memory of the host read as zeros without a write to each page, where that can be done: in memory of ours,
/// and where it is much in other memory of the program, unless a file is mapped there.
pub fn discard(at: u64, bytes: usize) -> bool {
    let bytes = bytes as u64;
    let is_ours = gpu().host.find(at).is_some_and(|range| {
        range.kind != HostKind::Registered && at + bytes <= range.at + range.bytes
    });
    let can = is_ours || bytes >= MUCH && pages::is_anonymous(at, bytes);
    if can {
        // SAFETY: it is private memory without a file, into which the caller wants zeros written.
        unsafe { pages::discard(at, bytes) };
    }
    can
}

/// Functions that hand out memory: their names, further arguments, its kind. Those of the runtime remember an error.
macro_rules! allocations {
    ($($name:ident($($more:ident: $type:ty),*) $kind:ident $ends:path;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            to: *mut *mut c_void, bytes: usize $(, $more: $type)*
        ) -> Code {
            $ends(match allocate(bytes, HostKind::$kind) {
                // SAFETY: the caller hands over a place for the address.
                Ok(at) => unsafe { put(to, at) },
                Err(code) => code,
            })
        }
    )*};
}

allocations! {
    cudaHostAlloc(_flags: c_uint) Pinned remembered;
    cudaMallocHost() Pinned remembered;
    cudaMallocManaged(_flags: c_uint) Managed remembered;
    cuMemHostAlloc(_flags: c_uint) Pinned Code::from;
    cuMemAllocHost_v2() Pinned Code::from;
    cuMemAllocManaged(_flags: c_uint) Managed Code::from;
}

/// `cudaMemLocation` as it is passed: its type, and the number of a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    /// CUDA 12 passes the number of a device in its place, -1 for the host.
    fn is_device(self) -> bool {
        const DEVICE: c_int = 1;
        if gpu().conf.cuda < 13_000 { self.kind >= 0 } else { self.kind == DEVICE }
    }
}

/// Sends managed memory somewhere; it takes no time here.
fn prefetch(at: *const c_void, to_device: bool) -> Code {
    if gpu().host.send(number(at), to_device) { SUCCESS } else { INVALID_VALUE }
}

/// The kind of host memory that an address lies in, if the GPU can reach it.
pub fn kind_of(at: u64) -> Option<HostKind> {
    gpu().host.find(at).map(|range| range.kind)
}

skins! {
    cudaHostUnregister(at: *mut c_void) = {
        let mut gpu = gpu();
        if gpu.host.find(number(at)).is_some_and(|found| found.kind == HostKind::Registered) {
            gpu.host.remove(number(at));
        }
        SUCCESS
    };
    cuMemFreeHost(at: *mut c_void) =
        if at.is_null() || free(number(at), HostKind::Pinned) { SUCCESS } else { INVALID_VALUE };
    cudaFreeHost(at: *mut c_void) = remembered(cuMemFreeHost(at));
    cudaHostRegister(at: *mut c_void, bytes: usize, _flags: c_uint) =
        { gpu().host.add(number(at), bytes as u64, HostKind::Registered); SUCCESS };
    cuMemHostRegister_v2(at: *mut c_void, bytes: usize, flags: c_uint) =
        cudaHostRegister(at, bytes, flags);
    cuMemHostUnregister(at: *mut c_void) = cudaHostUnregister(at);
    /// Pinned memory has the same address on the device.
    cudaHostGetDevicePointer(to: *mut *mut c_void, at: *mut c_void, _flags: c_uint) = put(to, at);
    cuMemHostGetDevicePointer_v2(to: *mut *mut c_void, at: *mut c_void, flags: c_uint) =
        cudaHostGetDevicePointer(to, at, flags);
    /// CUDA 13 has a location and flags, CUDA 12 the number of a device.
    cudaMemPrefetchAsync(at: *const c_void, _bytes: usize, to: Location) =
        remembered(prefetch(at, to.is_device()));
    cudaMemPrefetchAsync_v2(
        at: *const c_void, _bytes: usize, to: Location, _flags: c_uint, _on: Stream
    ) = remembered(prefetch(at, to.kind == 1));
    cuMemPrefetchAsync(at: *const c_void, _bytes: usize, device: c_int) = prefetch(at, device >= 0);
    cuMemPrefetchAsync_v2(at: *const c_void, _bytes: usize, to: Location) =
        prefetch(at, to.kind == 1);
}
