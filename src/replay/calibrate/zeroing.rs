//! How fast the driver zeroes memory that was given back, which it does before it hands it out again.
//!
//! One piece of memory is allocated and freed over and over. First the driver takes memory that is clean already; when
//! all of the device was used once, each allocation waits, and the pace is that of the zeroing.

use std::time::{Duration, Instant};

use super::CalibrationError;
use crate::device::Device;
use crate::replay::cuda::{CudaDevice, Gpu};
use crate::units::{Bytes, GIB, MIB};

/// Time to measure the pace in, once it is reached.
const SPAN: Duration = Duration::from_millis(1000);
/// What the calls themselves may take of it; with more, there is no pace to be seen.
const MOST_CALLS: f64 = 0.5;

/// Nanoseconds for a MiB; zero if allocations do not wait. `call_ns` is what an allocation and a free of `piece(free)`
/// take by themselves.
pub(super) fn measure(gpu: &Gpu, call_ns: f64) -> Result<f64, CalibrationError> {
    let memory = gpu.memory()?;
    let piece = piece(memory.free);
    let mut device = CudaDevice::new(gpu.clone());
    let begin = Instant::now();
    for _ in 0..memory.total / piece {
        turn(&mut device, piece)?;
        // A device that is slow for another reason is not to hold us up.
        if begin.elapsed() > 2 * SPAN {
            break;
        }
    }
    let (start, mut turns) = (Instant::now(), 0_u32);
    while start.elapsed() < SPAN {
        turn(&mut device, piece)?;
        turns += 1;
    }
    let each = start.elapsed().as_nanos() as f64 / f64::from(turns);
    device.first_error().map_or(Ok(()), |error| Err(error.clone()))?;
    let is_seen = call_ns < MOST_CALLS * each;
    Ok(if is_seen { each / (piece as f64 / MIB as f64) } else { 0.0 })
}

/// Large, so that the calls themselves take little of the time.
pub(super) fn piece(free: Bytes) -> Bytes {
    (free / 4 / MIB * MIB).clamp(MIB, GIB)
}

fn turn(device: &mut CudaDevice, piece: Bytes) -> Result<(), CalibrationError> {
    let at = device.malloc(piece)?;
    device.free(at);
    Ok(())
}
