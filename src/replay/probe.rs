//! How quick the machine is just now.
//!
//! The same calls take a third longer at one time than at another: driver calls are the host's work, and hosts are
//! shared, warm up and change their clocks. So a small fixed piece of work is timed beside each replay, and at the
//! calibration whose prices are held against it; what it takes now, in units of what it took then, is the pace.

use std::time::Instant;

use super::cuda::CudaDevice;
use crate::device::{Device, DeviceError, GRANULE};

/// Blocks that are built and taken down.
const BLOCKS: usize = 16;
/// Handles in each.
const HANDLES: u64 = 4;

/// Nanoseconds that the fixed work takes now: the quicker half of the blocks, so that a hiccup does not count.
///
/// # Errors
/// If the device has not even 8 MiB left, or fails.
pub fn probe(device: &mut CudaDevice) -> Result<f64, DeviceError> {
    let mut times = Vec::with_capacity(BLOCKS);
    for _ in 0..BLOCKS {
        let start = Instant::now();
        block(device)?;
        times.push(start.elapsed().as_nanos() as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[..BLOCKS / 2].iter().sum::<f64>() / (BLOCKS / 2) as f64)
}

fn block(device: &mut CudaDevice) -> Result<(), DeviceError> {
    let size = HANDLES * GRANULE;
    let at = device.reserve(size)?;
    let mut handles = Vec::with_capacity(HANDLES as usize);
    let made = device.create_each(GRANULE, HANDLES as usize, &mut handles);
    let result = made.and_then(|()| device.map(at, &handles)).and_then(|()| {
        let access = device.set_access(at, size);
        device.unmap(at, size);
        access
    });
    device.release_each(&handles);
    device.unreserve(at, size);
    result
}
