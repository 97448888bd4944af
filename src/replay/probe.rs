//! The pace: how quick the machine is at the moment.
//!
//! The same calls take a third longer at one time than at another, and not for long: driver calls are the host's work,
//! and hosts are shared, warm up and change their clocks. So a small fixed piece of work is done next to each replay,
//! again and again, and next to the calibration whose prices are held against it; what it takes now, in units of what
//! it took then, is the pace.
//!
//! ```text
//!   replay   ├─ calls ─┤▒├─ calls ─┤▒├─ calls ─┤▒├─ calls ...      ▒ the fixed work, after each 2 ms in driver calls
//! ```

use crate::cuda::{CudaDevice, Gpu};
use crate::device::{Device, GRANULE, Observation, Result};

use std::time::Instant;

/// Handles in a block.
const HANDLES: u64 = 4;
/// Driver time between two blocks, in nanoseconds.
const INTERVAL: u64 = 2_000_000;
/// Blocks that took this many times the middle are hiccups, and set aside.
const OUTLIER: f64 = 2.0;
/// Blocks before and after one that have a say in the pace at it: a single one is not worth much.
const NEAR: usize = 4;

/// Does the fixed work next to a run, and keeps how long it took.
pub(super) struct PaceProbe {
    device: CudaDevice,
    due_ns: u64,
    beats: Beats,
}

/// The blocks of one run, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Beats(Vec<Beat>);

/// One block.
#[derive(Debug, Clone, Copy)]
struct Beat {
    /// Driver time of the run until then, in nanoseconds.
    at_ns: u64,
    /// What the block took, in nanoseconds.
    ns: f64,
}

impl PaceProbe {
    /// Nothing is done yet.
    pub(super) fn new(gpu: &Gpu) -> Self {
        Self { device: CudaDevice::new(gpu.clone()), due_ns: 0, beats: Beats::default() }
    }

    /// The run has spent this many nanoseconds in driver calls: does a block, if it is time. On a device without 8 MiB
    /// to spare there is none.
    #[inline]
    pub(super) fn listen(&mut self, driver_ns: u64) {
        if driver_ns >= self.due_ns {
            self.due_ns = driver_ns + INTERVAL;
            self.beat(driver_ns);
        }
    }

    fn beat(&mut self, at_ns: u64) {
        let start = Instant::now();
        if block(&mut self.device).is_ok() {
            let ns = start.elapsed().as_nanos() as f64;
            self.beats.0.push(Beat { at_ns, ns });
        }
    }

    /// What was seen so far.
    pub(super) fn beats(&self) -> &Beats {
        &self.beats
    }
}

impl Beats {
    /// How long a block took on average, in nanoseconds, without hiccups; `None` if there was none.
    pub(super) fn mean(&self) -> Option<f64> {
        let mut times: Vec<_> = self.0.iter().map(|beat| beat.ns).collect();
        times.sort_by(f64::total_cmp);
        let most = OUTLIER * times.get(times.len() / 2)?;
        times.retain(|&ns| ns <= most);
        Some(times.iter().sum::<f64>() / times.len() as f64)
    }

    /// How long a block took about the time of each of the run's calls, in whole nanoseconds: those around the first
    /// block that came after it. Nothing, if there was none.
    pub(super) fn alongside(&self, calls: &[Observation]) -> Vec<f64> {
        let mut local = self.local().peekable();
        let (mut now, mut nearest) = (0, None);
        let each = calls.iter().map_while(|call| {
            now += call.ns;
            while let Some(&(at_ns, ns)) = local.peek() {
                nearest = Some(ns.round());
                if at_ns >= now {
                    break;
                }
                local.next();
            }
            nearest
        });
        each.collect()
    }

    /// The time of each block in the run, and how long it and those around it took on average.
    fn local(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        self.0.iter().enumerate().map(|(index, beat)| {
            let around = index.saturating_sub(NEAR)..(index + NEAR + 1).min(self.0.len());
            let near = Self(self.0[around].to_vec());
            (beat.at_ns, near.mean().unwrap_or(beat.ns))
        })
    }
}

fn block(device: &mut CudaDevice) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Amount, Call};

    #[test]
    fn the_pace_is_that_of_the_blocks_around_without_hiccups() {
        let beat = |index: u64| Beat {
            at_ns: index * 10,
            ns: if index == 3 {
                9000.0
            } else if index < 20 {
                100.0
            } else {
                200.0
            },
        };
        let beats = Beats((0..40).map(beat).collect());
        let local: Vec<_> = beats.local().collect();
        assert_eq!((local[0], local[3], local[39]), ((0, 100.0), (30, 100.0), (390, 200.0)));
        assert!((100.0..200.0).contains(&local[20].1) && local[15].1 == 100.0);
        assert!((beats.mean().unwrap() - (19.0 * 100.0 + 20.0 * 200.0) / 39.0).abs() < 1e-9);
        assert_eq!(Beats::default().mean(), None);
    }

    #[test]
    fn a_call_goes_with_the_block_after_it_and_the_last_one_with_the_last() {
        let calls = [5, 5, 25, 100].map(|ns| Observation {
            call: Call::Map,
            amount: Amount { handles: 1, size: GRANULE },
            ns,
        });
        let far = |at_ns, ns| (0..=2 * NEAR as u64).map(move |_| Beat { at_ns, ns });
        let beats = Beats(far(0, 100.0).chain(far(10, 100.0)).chain(far(40, 200.0)).collect());
        let alongside = beats.alongside(&calls);
        assert_eq!((alongside.len(), alongside[0], alongside[3]), (4, 100.0, 200.0));
        assert!(alongside[2] > 100.0 && alongside[2] < 200.0, "{alongside:?}");
        assert!(Beats::default().alongside(&calls).is_empty());
    }
}
