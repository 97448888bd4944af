//! How quick the machine is just now.
//!
//! The same calls take a third longer at one time than at another, and not for long: driver calls are the host's work,
//! and hosts are shared, warm up and change their clocks. So a small fixed piece of work is done beside each replay,
//! again and again, and beside the calibration whose prices are held against it; what it takes now, in units of what it
//! took then, is the pace.
//!
//! ```text
//!   replay   ├─ calls ─┤▒├─ calls ─┤▒├─ calls ─┤▒├─ calls ...      ▒ the fixed work, after each 2 ms in driver calls
//! ```

use super::cuda::{CudaDevice, Gpu};
use crate::device::{Device, DeviceError, GRANULE};

use std::time::Instant;

/// Handles in a block.
const HANDLES: u64 = 4;
/// Driver time between two blocks, in nanoseconds.
const INTERVAL: u64 = 2_000_000;
/// Blocks that took so many times the middle are hiccups, and set aside.
const OUTLIER: f64 = 2.0;

/// Does the fixed work beside a run, and keeps how long it took.
pub(super) struct PaceProbe {
    device: CudaDevice,
    due_ns: u64,
    times: Vec<f64>,
}

impl PaceProbe {
    /// Nothing is done yet.
    pub(super) fn new(gpu: &Gpu) -> Self {
        Self { device: CudaDevice::new(gpu.clone()), due_ns: 0, times: Vec::new() }
    }

    /// The run has spent so many nanoseconds in driver calls: does a block, if it is time. On a device without 8 MiB to
    /// spare there is none.
    #[inline]
    pub(super) fn listen(&mut self, driver_ns: u64) {
        if driver_ns >= self.due_ns {
            self.due_ns = driver_ns + INTERVAL;
            self.beat();
        }
    }

    fn beat(&mut self) {
        let start = Instant::now();
        if block(&mut self.device).is_ok() {
            self.times.push(start.elapsed().as_nanos() as f64);
        }
    }

    /// How long a block took on average, in nanoseconds, without hiccups; `None` if there was none.
    pub(super) fn mean(&self) -> Option<f64> {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        let most = OUTLIER * times.get(times.len() / 2)?;
        times.retain(|&ns| ns <= most);
        Some(times.iter().sum::<f64>() / times.len() as f64)
    }
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
