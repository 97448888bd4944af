//! Zeroing: how fast the driver clears returned memory before it hands it out again.
//!
//! Pieces of many sizes are allocated and freed over and over, a few of them held at a time. First the driver takes
//! memory that is clean already; when all of the device was used once, allocations wait, and the pace is that of the
//! zeroing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::CalibrationError;
use crate::cuda::{CudaDevice, Gpu};
use crate::device::{Device, DevicePtr};
use crate::trace::synthetic::SplitMix64;
use crate::units::{Bytes, GIB, MIB};

/// Time to measure the pace in, once it is reached.
const SPAN: Duration = Duration::from_millis(1000);
/// What the calls themselves may take of it; with more, there is no pace to be seen.
const MOST_CALLS: f64 = 0.5;

/// Pieces that are held at a time.
const HELD: usize = 6;

/// Nanoseconds for a MiB; zero if allocations do not wait. `call_ns` is what an allocation and a free of half of
/// `piece(free)`, the average, take by themselves.
pub(super) fn measure(gpu: &Gpu, call_ns: f64) -> Result<f64, CalibrationError> {
    let memory = gpu.memory()?;
    let mut turns = Turns {
        device: CudaDevice::new(gpu.clone()),
        largest: piece(memory.free),
        held: VecDeque::new(),
        random: SplitMix64::new(1),
        bytes: 0,
    };
    let begin = Instant::now();
    // A device that is slow for another reason is not to hold us up.
    while turns.bytes < memory.total && begin.elapsed() < 2 * SPAN {
        turns.turn()?;
    }
    let (start, before, mut count) = (Instant::now(), turns.bytes, 0_u32);
    while start.elapsed() < SPAN {
        turns.turn()?;
        count += 1;
    }
    let spent = start.elapsed().as_nanos() as f64;
    turns.device.first_error().map_or(Ok(()), |error| Err(error.clone()))?;
    let is_seen = call_ns * f64::from(count) < MOST_CALLS * spent;
    let mib = (turns.bytes - before) as f64 / MIB as f64;
    Ok(if is_seen { spent / mib } else { 0.0 })
}

/// Pieces in turn.
struct Turns {
    device: CudaDevice,
    largest: Bytes,
    held: VecDeque<DevicePtr>,
    random: SplitMix64,
    /// Allocated so far.
    bytes: Bytes,
}

impl Turns {
    /// The oldest piece goes, and a new one comes.
    fn turn(&mut self) -> Result<(), CalibrationError> {
        if self.held.len() == HELD
            && let Some(oldest) = self.held.pop_front()
        {
            self.device.free(oldest);
        }
        let steps = (self.largest / MIB).max(1);
        let size = (1 + self.random.below(steps)) * MIB;
        self.held.push_back(self.device.malloc(size)?);
        self.bytes += size;
        Ok(())
    }
}

/// Large, so that the calls themselves take little of the time.
pub(super) fn piece(free: Bytes) -> Bytes {
    (free / 16 / MIB * MIB).clamp(MIB, 2 * GIB)
}
