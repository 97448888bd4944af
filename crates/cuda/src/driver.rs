//! The driver's calls, one function each, with a `Result`: the only place that talks to `libcuda`.
//!
//! The library is looked for when the program runs, so that the program starts on any machine. Nothing here owns
//! anything: what is obtained has to be given back by the caller ([`super::CudaDevice`] does).
//!
//! All functions but [`load`] need a driver that [`load`] has found, and all that touch memory need a context that
//! [`set_current`] has made current on the calling thread. The driver checks handles and addresses that it is given
//! and answers with an error code; only pointers into our own memory have to be right, and each block below says why
//! they are.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUresult};

use gmlake_core::units::Bytes;

// The driver reads and writes these through pointers: their layout is part of its interface (cuda.h).
const _: () = assert!(size_of::<sys::CUmemLocation>() == 8);
const _: () = assert!(size_of::<sys::CUmemAccessDesc>() == 12);
const _: () = assert!(size_of::<sys::CUmemAllocationProp>() == 32);
const _: () = assert!(size_of::<CUresult>() == 4);

/// Why a driver call did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {name}{}", if .text.is_empty() { String::new() } else { format!(" ({})", .text) })]
pub struct DriverError {
    /// The driver's name of the call.
    pub call: &'static str,
    /// The driver's name of the error, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// What the driver says about it.
    pub text: String,
}

impl DriverError {
    /// Whether there was no memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.name == "CUDA_ERROR_OUT_OF_MEMORY"
    }

    /// Whether the driver is on its way out, with everything that it held: the process ends.
    pub fn is_shutdown(&self) -> bool {
        ["CUDA_ERROR_DEINITIALIZED", "CUDA_ERROR_CONTEXT_IS_DESTROYED"]
            .contains(&self.name.as_str())
    }
}

type Result<T> = std::result::Result<T, DriverError>;

/// A GPU's number with the driver.
pub type Ordinal = i32;

/// A context. The driver allows its use from any thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context(sys::CUcontext);
// SAFETY: a context is a handle that the driver looks up, and its interface is thread-safe.
unsafe impl Send for Context {}
// SAFETY: as above; we never read through the pointer.
unsafe impl Sync for Context {}

impl Context {
    /// The context with this handle, which is not null.
    pub(super) fn from_raw(handle: sys::CUcontext) -> Self {
        Self(handle)
    }
}

/// A stream. The driver allows its use from any thread.
#[derive(Debug, Clone, Copy)]
pub struct Stream(sys::CUstream);
// SAFETY: a stream is a handle that the driver looks up, and its interface is thread-safe.
unsafe impl Send for Stream {}

/// An event. The driver allows its use from any thread.
#[derive(Debug, Clone, Copy)]
pub struct Event(sys::CUevent);
// SAFETY: an event is a handle that the driver looks up, and its interface is thread-safe.
unsafe impl Send for Event {}

impl Stream {
    /// The stream with this handle, which somebody else made; 0 is the default stream.
    pub fn from_raw(handle: u64) -> Self {
        Self(handle as sys::CUstream)
    }

    /// Its handle.
    pub(super) fn raw(self) -> sys::CUstream {
        self.0
    }
}

/// A loaded module with one kernel. The driver allows its use from any thread.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    module: sys::CUmodule,
    function: sys::CUfunction,
}
// SAFETY: module and function are handles that the driver looks up, and its interface is thread-safe.
unsafe impl Send for Kernel {}

impl Kernel {
    pub(super) fn function(self) -> sys::CUfunction {
        self.function
    }
}

/// Number of a physical allocation with the driver.
pub type PhysicalHandle = u64;

#[cold]
fn error(call: &'static str, code: CUresult) -> DriverError {
    let read = |ask: &dyn Fn(*mut *const c_char) -> CUresult| {
        let mut text: *const c_char = ptr::null();
        if ask(&raw mut text) != CUresult::CUDA_SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: on success the driver has set `text` to a string constant of its own.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    // SAFETY: both calls only write one pointer, to a variable that outlives them.
    let name = read(&|out| unsafe { sys::cuGetErrorName(code, out) });
    // SAFETY: as above.
    let text = read(&|out| unsafe { sys::cuGetErrorString(code, out) });
    let name = name.unwrap_or_else(|| format!("error {}", code as u32));
    DriverError { call, name, text: text.unwrap_or_default() }
}

/// The driver's answer as a `Result`.
#[inline]
pub(super) fn check(call: &'static str, code: CUresult) -> Result<()> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(error(call, code)) }
}

/// Finds and initialises the driver.
///
/// # Errors
/// `None` if there is no `libcuda` on this machine; the driver's error if it cannot be used.
pub fn load() -> std::result::Result<(), Option<DriverError>> {
    // SAFETY: opens and closes the library by name; its initialisers are those of the installed driver.
    if !unsafe { sys::is_culib_present() } {
        return Err(None);
    }
    // SAFETY: takes no pointer.
    check("cuInit", unsafe { sys::cuInit(0) }).map_err(Some)
}

/// How many GPUs there are.
///
/// # Errors
/// What the driver says.
pub fn device_count() -> Result<u32> {
    let mut count: c_int = 0;
    // SAFETY: writes one int to a variable that outlives the call.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// The GPU's number with the driver.
///
/// # Errors
/// If there is no such GPU.
pub fn device(index: u32) -> Result<Ordinal> {
    let mut ordinal: Ordinal = 0;
    let index = c_int::try_from(index).unwrap_or(c_int::MAX);
    // SAFETY: writes one int to a variable that outlives the call.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut ordinal, index) })?;
    Ok(ordinal)
}

/// The GPU's name.
///
/// # Errors
/// What the driver says.
pub fn device_name(device: Ordinal) -> Result<String> {
    let mut text = [0_u8; 128];
    let length = text.len() as c_int - 1;
    // SAFETY: the driver writes at most `length` bytes, which is less than the buffer holds.
    let code = unsafe { sys::cuDeviceGetName(text.as_mut_ptr().cast(), length, device) };
    check("cuDeviceGetName", code)?;
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(0);
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// Whether the GPU has virtual memory management.
///
/// # Errors
/// What the driver says.
pub fn has_vmm(device: Ordinal) -> Result<bool> {
    const VMM: sys::CUdevice_attribute =
        sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    let mut value: c_int = 0;
    // SAFETY: writes one int to a variable that outlives the call.
    let code = unsafe { sys::cuDeviceGetAttribute(&raw mut value, VMM, device) };
    check("cuDeviceGetAttribute", code)?;
    Ok(value != 0)
}

/// The newest CUDA that the driver can serve, as 1000 x major + 10 x minor.
///
/// # Errors
/// What the driver says.
pub fn version() -> Result<i32> {
    let mut version: c_int = 0;
    // SAFETY: writes one int to a variable that outlives the call.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) })?;
    Ok(version)
}

/// Makes the GPU's primary context, or takes one more share in it.
///
/// # Errors
/// What the driver says.
pub fn retain_context(device: Ordinal) -> Result<Context> {
    let mut context: sys::CUcontext = ptr::null_mut();
    // SAFETY: writes one pointer to a variable that outlives the call.
    let code = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
    check("cuDevicePrimaryCtxRetain", code)?;
    Ok(Context(context))
}

/// Gives back a share in the primary context; the last one ends it.
///
/// # Errors
/// What the driver says.
pub fn release_context(device: Ordinal) -> Result<()> {
    // SAFETY: takes no pointer.
    check("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) })
}

/// Makes a context current on this thread.
///
/// # Errors
/// What the driver says.
pub fn set_current(context: Context) -> Result<()> {
    // SAFETY: the handle came from the driver.
    check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context.0) })
}

/// Waits until the GPU has done all that was queued in the current context.
///
/// # Errors
/// What the driver says, errors of earlier kernels included.
pub fn synchronize() -> Result<()> {
    // SAFETY: takes no pointer.
    check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
}

/// Free and total memory of the current GPU in bytes.
///
/// # Errors
/// What the driver says.
pub fn memory_info() -> Result<(Bytes, Bytes)> {
    let (mut free, mut total) = (0_usize, 0_usize);
    // SAFETY: writes two sizes to variables that outlive the call.
    let code = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    check("cuMemGetInfo", code)?;
    Ok((free as Bytes, total as Bytes))
}

/// Memory and an address at once.
///
/// # Errors
/// What the driver says.
pub fn mem_alloc(size: Bytes) -> Result<u64> {
    let mut at = 0_u64;
    // SAFETY: writes one address to a variable that outlives the call.
    check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut at, size as usize) })?;
    Ok(at)
}

/// Gives back what [`mem_alloc`] gave. Waits for the GPU.
///
/// # Errors
/// What the driver says.
pub fn mem_free(at: u64) -> Result<()> {
    // SAFETY: a device address, which the driver checks.
    check("cuMemFree", unsafe { sys::cuMemFree_v2(at) })
}

/// Addresses without memory.
///
/// # Errors
/// What the driver says.
pub fn address_reserve(size: Bytes) -> Result<u64> {
    let mut at = 0_u64;
    // SAFETY: writes one address to a variable that outlives the call.
    let code = unsafe { sys::cuMemAddressReserve(&raw mut at, size as usize, 0, 0, 0) };
    check("cuMemAddressReserve", code)?;
    Ok(at)
}

/// Gives back a reservation.
///
/// # Errors
/// What the driver says.
pub fn address_free(at: u64, size: Bytes) -> Result<()> {
    // SAFETY: a device address, which the driver checks.
    check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(at, size as usize) })
}

fn location(device: Ordinal) -> sys::CUmemLocation {
    let kind = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    sys::CUmemLocation { type_: kind, id: device }
}

/// Memory on the GPU itself, not to be shared with other processes.
fn properties(device: Ordinal) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType_enum(0),
        location: location(device),
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// The smallest unit of physical memory in bytes.
///
/// # Errors
/// What the driver says.
pub fn granularity(device: Ordinal) -> Result<Bytes> {
    const MINIMUM: sys::CUmemAllocationGranularity_flags =
        sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let (mut size, wanted) = (0_usize, properties(device));
    // SAFETY: reads one struct and writes one size, both of which outlive the call.
    let code =
        unsafe { sys::cuMemGetAllocationGranularity(&raw mut size, &raw const wanted, MINIMUM) };
    check("cuMemGetAllocationGranularity", code)?;
    Ok(size as Bytes)
}

/// Memory without an address.
///
/// # Errors
/// What the driver says.
pub fn create(device: Ordinal, size: Bytes) -> Result<PhysicalHandle> {
    let (mut handle, wanted) = (0_u64, properties(device));
    // SAFETY: reads one struct and writes one handle, both of which outlive the call.
    let code = unsafe { sys::cuMemCreate(&raw mut handle, size as usize, &raw const wanted, 0) };
    check("cuMemCreate", code)?;
    Ok(handle)
}

/// Gives back a handle; the memory stays until its last mapping is gone.
///
/// # Errors
/// What the driver says.
pub fn release(handle: PhysicalHandle) -> Result<()> {
    // SAFETY: a handle, which the driver checks.
    check("cuMemRelease", unsafe { sys::cuMemRelease(handle) })
}

/// Maps `size` bytes of a handle, from `offset` on, at an address.
///
/// # Errors
/// What the driver says; today's drivers only map whole handles.
pub fn map(at: u64, size: Bytes, offset: Bytes, handle: PhysicalHandle) -> Result<()> {
    // SAFETY: a device address and a handle, which the driver checks.
    check("cuMemMap", unsafe { sys::cuMemMap(at, size as usize, offset as usize, handle, 0) })
}

/// Makes mapped memory readable and writable by these GPUs.
///
/// # Errors
/// What the driver says.
pub fn set_access(devices: &[Ordinal], at: u64, size: Bytes) -> Result<()> {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let describe = |&device: &Ordinal| sys::CUmemAccessDesc { location: location(device), flags };
    let access: Vec<_> = devices.iter().map(describe).collect();
    // SAFETY: reads as many structs as the count says, which outlive the call; the address is checked by the driver.
    let code = unsafe { sys::cuMemSetAccess(at, size as usize, access.as_ptr(), access.len()) };
    check("cuMemSetAccess", code)
}

/// Takes mappings away.
///
/// # Errors
/// What the driver says.
pub fn unmap(at: u64, size: Bytes) -> Result<()> {
    // SAFETY: a device address, which the driver checks.
    check("cuMemUnmap", unsafe { sys::cuMemUnmap(at, size as usize) })
}

/// Sets `rows` rows of `words` 32-bit words each, `pitch` bytes apart, to a value. Returns before that has happened.
///
/// # Errors
/// What the driver says.
pub fn fill(at: u64, value: u32, words: u64, rows: u64, pitch: Bytes) -> Result<()> {
    if rows == 1 {
        // SAFETY: a device range, which the driver checks.
        return check("cuMemsetD32", unsafe { sys::cuMemsetD32_v2(at, value, words as usize) });
    }
    // SAFETY: as above.
    let code =
        unsafe { sys::cuMemsetD2D32_v2(at, pitch as usize, value, words as usize, rows as usize) };
    check("cuMemsetD2D32", code)
}

/// Sets bytes.
///
/// # Errors
/// What the driver says.
pub fn fill_bytes(at: u64, value: u8, size: Bytes) -> Result<()> {
    // SAFETY: a device range, which the driver checks.
    check("cuMemsetD8", unsafe { sys::cuMemsetD8_v2(at, value, size as usize) })
}

/// Copies from the GPU; waits for what was queued before.
///
/// # Errors
/// What the driver says.
pub fn read(at: u64, into: &mut [u8]) -> Result<()> {
    let target: *mut c_void = into.as_mut_ptr().cast();
    // SAFETY: the driver writes exactly `into.len()` bytes to it; it checks the address.
    check("cuMemcpyDtoH", unsafe { sys::cuMemcpyDtoH_v2(target, at, into.len()) })
}

/// A stream that does not wait for others.
///
/// # Errors
/// What the driver says.
pub fn stream_create() -> Result<Stream> {
    let mut stream: sys::CUstream = ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: writes one pointer to a variable that outlives the call.
    check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
    Ok(Stream(stream))
}

/// Ends a stream.
///
/// # Errors
/// What the driver says.
pub fn stream_destroy(stream: Stream) -> Result<()> {
    // SAFETY: the handle came from the driver.
    check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(stream.0) })
}

/// Waits until a stream is empty.
///
/// # Errors
/// What the driver says.
pub fn stream_synchronize(stream: Stream) -> Result<()> {
    // SAFETY: the handle came from the driver.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.0) })
}

/// Whether work is queued on a stream.
///
/// # Errors
/// What the driver says.
pub fn stream_is_busy(stream: Stream) -> Result<bool> {
    // SAFETY: the handle came from the driver.
    match unsafe { sys::cuStreamQuery(stream.0) } {
        CUresult::CUDA_ERROR_NOT_READY => Ok(true),
        code => check("cuStreamQuery", code).map(|()| false),
    }
}

/// An event that knows whether it was reached, but not when.
///
/// # Errors
/// What the driver says.
pub fn event_create() -> Result<Event> {
    let mut event: sys::CUevent = ptr::null_mut();
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
    // SAFETY: writes one pointer to a variable that outlives the call.
    check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, flags) })?;
    Ok(Event(event))
}

/// Ends an event. Streams that wait for it go on waiting.
///
/// # Errors
/// What the driver says.
pub fn event_destroy(event: Event) -> Result<()> {
    // SAFETY: the handle came from the driver.
    check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(event.0) })
}

/// Lets an event be the end of what is queued on a stream now.
///
/// # Errors
/// What the driver says.
pub fn event_record(event: Event, stream: Stream) -> Result<()> {
    // SAFETY: both handles came from the driver, or from the owner of the stream, who keeps it.
    check("cuEventRecord", unsafe { sys::cuEventRecord(event.0, stream.0) })
}

/// Whether the GPU has got to an event.
///
/// # Errors
/// What the driver says.
pub fn event_is_reached(event: Event) -> Result<bool> {
    // SAFETY: the handle came from the driver.
    match unsafe { sys::cuEventQuery(event.0) } {
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        code => check("cuEventQuery", code).map(|()| true),
    }
}

/// Lets what is queued on a stream from now on begin after an event. The host does not wait.
///
/// # Errors
/// What the driver says.
pub fn stream_wait(stream: Stream, event: Event) -> Result<()> {
    // SAFETY: both handles came from the driver, or from the owner of the stream, who keeps it.
    check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream.0, event.0, 0) })
}

/// Queues a memset on a stream.
///
/// # Errors
/// What the driver says.
pub fn fill_on(stream: Stream, at: u64, value: u8, size: Bytes) -> Result<()> {
    // SAFETY: a device range and a stream, which the driver checks.
    let code = unsafe { sys::cuMemsetD8Async(at, value, size as usize, stream.0) };
    check("cuMemsetD8Async", code)
}

/// Loads a kernel from PTX, which the driver compiles for its GPU.
///
/// # Errors
/// What the driver says.
pub fn load_kernel(ptx: &CStr, name: &CStr) -> Result<Kernel> {
    let mut module: sys::CUmodule = ptr::null_mut();
    // SAFETY: PTX is read up to its final zero, which a `CStr` has; the module pointer outlives the call.
    let code = unsafe { sys::cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()) };
    check("cuModuleLoadData", code)?;
    let mut function: sys::CUfunction = ptr::null_mut();
    // SAFETY: the name is read up to its final zero; the function pointer outlives the call.
    let code = unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
    check("cuModuleGetFunction", code)?;
    Ok(Kernel { module, function })
}

/// Unloads a kernel.
///
/// # Errors
/// What the driver says.
pub fn unload_kernel(kernel: Kernel) -> Result<()> {
    // SAFETY: the handle came from the driver, and no launch of it is under way: the caller has synchronised.
    check("cuModuleUnload", unsafe { sys::cuModuleUnload(kernel.module) })
}

/// Starts a kernel whose parameters are 64-bit numbers, on the default stream.
///
/// # Errors
/// What the driver says; faults of the kernel itself come with a later call.
pub fn launch(kernel: Kernel, grid: [u32; 2], block: u32, parameters: &[u64]) -> Result<()> {
    let mut pointers: Vec<*mut c_void> =
        parameters.iter().map(|value| ptr::from_ref(value).cast_mut().cast()).collect();
    let pointers = pointers.as_mut_ptr();
    // SAFETY: the driver copies one 64-bit value through each pointer before it returns, and writes none; the only
    // caller passes as many as its kernel declares.
    let code = unsafe {
        let stream = ptr::null_mut();
        let [x, y] = grid;
        sys::cuLaunchKernel(
            kernel.function,
            x,
            y,
            1,
            block,
            1,
            1,
            0,
            stream,
            pointers,
            ptr::null_mut(),
        )
    };
    check("cuLaunchKernel", code)
}
