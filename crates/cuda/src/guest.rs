//! Calls that a guest needs: inside PyTorch the streams and their captures belong to somebody else.
//!
//! The rules are those of [`super::driver`]: nothing here owns anything, and the driver checks what it is given.
#![allow(unsafe_code)]

use cudarc::driver::sys::{self, CUresult};

use super::driver::{DriverError, Stream, check};

type Result<T> = std::result::Result<T, DriverError>;

/// Whether what is queued on the stream with this handle is being captured into a graph. The driver cannot say so of
/// the default stream while another one is captured: that one is not.
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

/// Sets this thread's mode, and returns the one before.
fn exchange_capture_mode(mut mode: sys::CUstreamCaptureMode) -> Result<sys::CUstreamCaptureMode> {
    // SAFETY: reads and writes one enum, which outlives the call.
    let code = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    check("cuThreadExchangeStreamCaptureMode", code)?;
    Ok(mode)
}
