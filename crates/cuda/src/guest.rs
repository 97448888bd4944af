//! Calls that a guest needs: inside PyTorch the context, the streams and their captures belong to somebody else.
//!
//! The rules are those of [`super::driver`]: nothing here owns anything, and the driver checks what it is given.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUresult};

use super::driver::{Context, DriverError, Kernel, Ordinal, Stream, check};

type Result<T> = std::result::Result<T, DriverError>;

/// The context that is current on this thread; `None` if there is none.
///
/// # Errors
/// What the driver says.
pub fn current() -> Result<Option<Context>> {
    let mut context: sys::CUcontext = ptr::null_mut();
    // SAFETY: writes one pointer to a variable that outlives the call.
    check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut context) })?;
    Ok((!context.is_null()).then(|| Context::from_raw(context)))
}

/// Leaves this thread without a context.
///
/// # Errors
/// What the driver says.
pub fn set_none() -> Result<()> {
    // SAFETY: a null context is allowed, and means none.
    check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(ptr::null_mut()) })
}

/// Whether a GPU can read and write another one's memory.
///
/// # Errors
/// What the driver says.
pub fn can_access_peer(from: Ordinal, memory_of: Ordinal) -> Result<bool> {
    let mut answer: c_int = 0;
    // SAFETY: writes one int to a variable that outlives the call.
    let code = unsafe { sys::cuDeviceCanAccessPeer(&raw mut answer, from, memory_of) };
    check("cuDeviceCanAccessPeer", code).map(|()| answer != 0)
}

/// Whether what is queued on the stream with this handle is being captured into a graph. The driver cannot say so of
/// the default stream while another one is captured: that one is not.
///
/// # Errors
/// What the driver says.
pub fn is_capturing(stream: u64) -> Result<bool> {
    let stream = Stream::from_raw(stream);
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: writes one enum to a variable that outlives the call; the stream is its owner's, who keeps it.
    match unsafe { sys::cuStreamIsCapturing(stream.raw(), &raw mut status) } {
        CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => Ok(false),
        code => check("cuStreamIsCapturing", code)
            .map(|()| status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE),
    }
}

/// Until it is dropped, this thread may allocate while some stream is being captured.
#[derive(Debug)]
pub struct Relaxed(sys::CUstreamCaptureMode);

impl Relaxed {
    /// Changes this thread's mode.
    ///
    /// # Errors
    /// What the driver says.
    pub fn enter() -> Result<Self> {
        exchange_capture_mode(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).map(Self)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // It worked a moment ago; should it fail, the thread stays as tolerant as it is.
        let _ = exchange_capture_mode(self.0);
    }
}

/// Queues setting `words` 32-bit words to a value.
///
/// # Errors
/// What the driver says.
pub fn fill_words_on(stream: Stream, at: u64, value: u32, words: u64) -> Result<()> {
    // SAFETY: a device range and a stream, which the driver checks.
    let code = unsafe { sys::cuMemsetD32Async(at, value, words as usize, stream.raw()) };
    check("cuMemsetD32Async", code)
}

/// Queues a kernel whose parameters are 64-bit numbers on a stream.
///
/// # Errors
/// What the driver says; faults of the kernel itself come with a later call.
pub fn launch_on(
    stream: Stream,
    kernel: Kernel,
    blocks: u32,
    threads: u32,
    parameters: &[u64],
) -> Result<()> {
    let mut pointers: Vec<*mut c_void> =
        parameters.iter().map(|value| ptr::from_ref(value).cast_mut().cast()).collect();
    let (pointers, none) = (pointers.as_mut_ptr(), ptr::null_mut());
    let function = kernel.function();
    // SAFETY: the driver copies one 64-bit value through each pointer before it returns, and writes none; the only
    // caller passes as many as its kernel declares.
    let code = unsafe {
        let queue = stream.raw();
        sys::cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, queue, pointers, none)
    };
    check("cuLaunchKernel", code)
}

/// Copies from the GPU, after what is queued on a stream; waits for it.
///
/// # Errors
/// What the driver says.
pub fn read_after(stream: Stream, at: u64, into: &mut [u8]) -> Result<()> {
    super::driver::stream_synchronize(stream)?;
    super::driver::read(at, into)
}

/// Sets this thread's mode, and returns the one before.
fn exchange_capture_mode(mut mode: sys::CUstreamCaptureMode) -> Result<sys::CUstreamCaptureMode> {
    // SAFETY: reads and writes one enum, which outlives the call.
    let code = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    check("cuThreadExchangeStreamCaptureMode", code)?;
    Ok(mode)
}
