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
    /// The stream that waits for all others.
    pub(super) const DEFAULT: Self = Self(ptr::null_mut());

    /// The stream with this handle, which somebody else made; 0 is the default stream.
    pub fn from_raw(handle: u64) -> Self {
        Self(handle as sys::CUstream)
    }

    /// Its handle.
    pub(super) fn raw(self) -> sys::CUstream {
        self.0
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

/// Calls that answer with a code alone: name and arguments, the driver's name, and the call itself.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),*) $call:literal $code:expr;
    )*) => {$(
        $(#[$doc])*
        pub fn $name($($argument: $type),*) -> Result<()> {
            // SAFETY: handles came from the driver or from the owner of a stream, who keeps it. The driver checks
            // handles and device addresses. What it writes to or reads from our own memory is a slice of that length.
            check($call, unsafe { $code })
        }
    )*};
}

calls! {
    /// Gives back a share in the primary context; the last one ends it.
    release_context(device: Ordinal) "cuDevicePrimaryCtxRelease"
        sys::cuDevicePrimaryCtxRelease_v2(device);
    /// Makes a context current on this thread.
    set_current(context: Context) "cuCtxSetCurrent" sys::cuCtxSetCurrent(context.0);
    /// Leaves this thread without a context.
    set_none() "cuCtxSetCurrent" sys::cuCtxSetCurrent(ptr::null_mut());
    /// Waits until the GPU has done all that was queued in the current context. Errors are those of earlier kernels,
    /// too.
    synchronize() "cuCtxSynchronize" sys::cuCtxSynchronize();
    /// Gives back what [`mem_alloc`] gave. Waits for the GPU.
    mem_free(at: u64) "cuMemFree" sys::cuMemFree_v2(at);
    /// Gives back a reservation.
    address_free(at: u64, size: Bytes) "cuMemAddressFree"
        sys::cuMemAddressFree(at, size as usize);
    /// Gives back a handle; the memory stays until its last mapping is gone.
    release(handle: PhysicalHandle) "cuMemRelease" sys::cuMemRelease(handle);
    /// Maps `size` bytes of a handle, from `offset` on, at an address. Today's drivers only map whole handles.
    map(at: u64, size: Bytes, offset: Bytes, handle: PhysicalHandle) "cuMemMap"
        sys::cuMemMap(at, size as usize, offset as usize, handle, 0);
    /// Takes mappings away.
    unmap(at: u64, size: Bytes) "cuMemUnmap" sys::cuMemUnmap(at, size as usize);
    /// Sets bytes.
    fill_bytes(at: u64, value: u8, size: Bytes) "cuMemsetD8"
        sys::cuMemsetD8_v2(at, value, size as usize);
    /// Queues a memset on a stream.
    fill_on(stream: Stream, at: u64, value: u8, size: Bytes) "cuMemsetD8Async"
        sys::cuMemsetD8Async(at, value, size as usize, stream.0);
    /// Queues setting `words` 32-bit words on a stream.
    fill_words_on(stream: Stream, at: u64, value: u32, words: u64) "cuMemsetD32Async"
        sys::cuMemsetD32Async(at, value, words as usize, stream.0);
    /// Copies from the GPU; waits for what was queued before.
    read(at: u64, into: &mut [u8]) "cuMemcpyDtoH"
        sys::cuMemcpyDtoH_v2(into.as_mut_ptr().cast(), at, into.len());
    /// Ends a stream.
    stream_destroy(stream: Stream) "cuStreamDestroy" sys::cuStreamDestroy_v2(stream.0);
    /// Waits until a stream is empty.
    stream_synchronize(stream: Stream) "cuStreamSynchronize" sys::cuStreamSynchronize(stream.0);
    /// Lets what is queued on a stream from now on begin after an event. The host does not wait.
    stream_wait(stream: Stream, event: Event) "cuStreamWaitEvent"
        sys::cuStreamWaitEvent(stream.0, event.0, 0);
    /// Ends an event. Streams that wait for it go on waiting.
    event_destroy(event: Event) "cuEventDestroy" sys::cuEventDestroy_v2(event.0);
    /// Lets an event be the end of what is queued on a stream now.
    event_record(event: Event, stream: Stream) "cuEventRecord"
        sys::cuEventRecord(event.0, stream.0);
}

/// Calls that obtain something: name and arguments, the driver's name, zero of what it writes to `out`, the call, and
/// what becomes of that.
macro_rules! obtains {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $returns:ty = $made:expr,
            $call:literal $zero:expr => |$out:ident| $code:expr;
    )*) => {$(
        $(#[$doc])*
        pub fn $name($($argument: $type),*) -> Result<$returns> {
            let mut obtained = $zero;
            let $out = &raw mut obtained;
            // SAFETY: the driver writes one value to a variable that outlives the call, as do the structs it reads.
            check($call, unsafe { $code })?;
            Ok($made(obtained))
        }
    )*};
}

obtains! {
    /// How many GPUs there are.
    device_count() -> u32 = |count: c_int| u32::try_from(count).unwrap_or(0),
        "cuDeviceGetCount" 0 => |out| sys::cuDeviceGetCount(out);
    /// The GPU's number with the driver.
    device(index: u32) -> Ordinal = Ordinal::from,
        "cuDeviceGet" 0 => |out| sys::cuDeviceGet(out, c_int::try_from(index).unwrap_or(c_int::MAX));
    /// Whether the GPU has virtual memory management.
    has_vmm(device: Ordinal) -> bool = |value: c_int| value != 0,
        "cuDeviceGetAttribute" 0 => |out| sys::cuDeviceGetAttribute(out, VMM, device);
    /// The newest CUDA that the driver can serve, as 1000 x major + 10 x minor.
    version() -> i32 = i32::from, "cuDriverGetVersion" 0 => |out| sys::cuDriverGetVersion(out);
    /// Makes the GPU's primary context, or takes one more share in it.
    retain_context(device: Ordinal) -> Context = Context,
        "cuDevicePrimaryCtxRetain" ptr::null_mut() => |out| sys::cuDevicePrimaryCtxRetain(out, device);
    /// The context that is current on this thread; `None` if there is none.
    current() -> Option<Context> = |it: sys::CUcontext| (!it.is_null()).then_some(Context(it)),
        "cuCtxGetCurrent" ptr::null_mut() => |out| sys::cuCtxGetCurrent(out);
    /// Whether a GPU can read and write another one's memory.
    can_access_peer(from: Ordinal, memory_of: Ordinal) -> bool = |answer: c_int| answer != 0,
        "cuDeviceCanAccessPeer" 0 => |out| sys::cuDeviceCanAccessPeer(out, from, memory_of);
    /// Memory and an address at once.
    mem_alloc(size: Bytes) -> u64 = u64::from,
        "cuMemAlloc" 0 => |out| sys::cuMemAlloc_v2(out, size as usize);
    /// Addresses without memory.
    address_reserve(size: Bytes) -> u64 = u64::from,
        "cuMemAddressReserve" 0 => |out| sys::cuMemAddressReserve(out, size as usize, 0, 0, 0);
    /// The smallest unit of physical memory in bytes.
    granularity(device: Ordinal) -> Bytes = |size: usize| size as Bytes,
        "cuMemGetAllocationGranularity"
        0 => |out| sys::cuMemGetAllocationGranularity(out, &properties(device), MINIMUM);
    /// Memory without an address.
    create(device: Ordinal, size: Bytes) -> PhysicalHandle = PhysicalHandle::from,
        "cuMemCreate" 0 => |out| sys::cuMemCreate(out, size as usize, &properties(device), 0);
    /// A stream that does not wait for others.
    stream_create() -> Stream = Stream,
        "cuStreamCreate" ptr::null_mut() => |out| sys::cuStreamCreate(out, NON_BLOCKING);
    /// An event that knows whether it was reached, but not when.
    event_create() -> Event = Event,
        "cuEventCreate" ptr::null_mut() => |out| sys::cuEventCreate(out, WITHOUT_TIME);
}

const VMM: sys::CUdevice_attribute =
    sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
const MINIMUM: sys::CUmemAllocationGranularity_flags =
    sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
const NON_BLOCKING: u32 = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
const WITHOUT_TIME: u32 = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;

/// The answer to a question: yes, or not yet.
fn is_ready(call: &'static str, code: CUresult) -> Result<bool> {
    match code {
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        code => check(call, code).map(|()| true),
    }
}

/// The GPU's name.
pub fn device_name(device: Ordinal) -> Result<String> {
    let mut text = [0_u8; 128];
    let length = text.len() as c_int - 1;
    // SAFETY: the driver writes at most `length` bytes, which is less than the buffer holds.
    let code = unsafe { sys::cuDeviceGetName(text.as_mut_ptr().cast(), length, device) };
    check("cuDeviceGetName", code)?;
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(0);
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// Free and total memory of the current GPU in bytes.
pub fn memory_info() -> Result<(Bytes, Bytes)> {
    let (mut free, mut total) = (0_usize, 0_usize);
    // SAFETY: writes two sizes to variables that outlive the call.
    let code = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    check("cuMemGetInfo", code)?;
    Ok((free as Bytes, total as Bytes))
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

/// Makes mapped memory readable and writable by these GPUs.
pub fn set_access(devices: &[Ordinal], at: u64, size: Bytes) -> Result<()> {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let describe = |&device: &Ordinal| sys::CUmemAccessDesc { location: location(device), flags };
    let access: Vec<_> = devices.iter().map(describe).collect();
    // SAFETY: reads as many structs as the count says, which outlive the call; the address is checked by the driver.
    let code = unsafe { sys::cuMemSetAccess(at, size as usize, access.as_ptr(), access.len()) };
    check("cuMemSetAccess", code)
}

/// Sets `rows` rows of `words` 32-bit words each, `pitch` bytes apart, to a value. Returns before that has happened.
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

/// Whether work is queued on a stream.
pub fn stream_is_busy(stream: Stream) -> Result<bool> {
    // SAFETY: the handle came from the driver.
    is_ready("cuStreamQuery", unsafe { sys::cuStreamQuery(stream.0) }).map(|is_idle| !is_idle)
}

/// Whether the GPU has got to an event.
pub fn event_is_reached(event: Event) -> Result<bool> {
    // SAFETY: the handle came from the driver.
    is_ready("cuEventQuery", unsafe { sys::cuEventQuery(event.0) })
}

/// A loaded module with one kernel. The driver allows its use from any thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel {
    module: sys::CUmodule,
    function: sys::CUfunction,
}
// SAFETY: module and function are handles that the driver looks up, and its interface is thread-safe.
unsafe impl Send for Kernel {}

impl Kernel {
    /// Loads a kernel from PTX, which the driver compiles for its GPU.
    pub(crate) fn load(ptx: &CStr, name: &CStr) -> Result<Self> {
        let mut module: sys::CUmodule = ptr::null_mut();
        // SAFETY: PTX is read up to its final zero, which a `CStr` has; the module pointer outlives the call.
        let code = unsafe { sys::cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()) };
        check("cuModuleLoadData", code)?;
        let mut function: sys::CUfunction = ptr::null_mut();
        // SAFETY: the name is read up to its final zero; the function pointer outlives the call.
        let code = unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
        check("cuModuleGetFunction", code)?;
        Ok(Self { module, function })
    }

    /// Queues it on a stream. Its parameters are 64-bit numbers.
    ///
    /// # Errors
    /// What the driver says; faults of the kernel itself come with a later call.
    pub(crate) fn launch(
        self,
        stream: Stream,
        grid: [u32; 2],
        block: u32,
        values: &[u64],
    ) -> Result<()> {
        let mut pointers: Vec<*mut c_void> =
            values.iter().map(|value| ptr::from_ref(value).cast_mut().cast()).collect();
        let (pointers, none) = (pointers.as_mut_ptr(), ptr::null_mut());
        let (function, stream, [x, y]) = (self.function, stream.0, grid);
        // SAFETY: the driver copies one 64-bit value through each pointer before it returns, and writes none; the
        // only caller passes as many as its kernel declares.
        let code = unsafe {
            sys::cuLaunchKernel(function, x, y, 1, block, 1, 1, 0, stream, pointers, none)
        };
        check("cuLaunchKernel", code)
    }

    /// Unloads it, when no launch is under way.
    pub(crate) fn unload(self) -> Result<()> {
        // SAFETY: the handle came from the driver.
        check("cuModuleUnload", unsafe { sys::cuModuleUnload(self.module) })
    }
}
