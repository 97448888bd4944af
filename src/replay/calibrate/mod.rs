//! Calibration: what the memory calls of this GPU cost, and what its driver accepts.
//!
//! Blocks are built and taken down again in every combination of chunk size and number of chunks, each call is timed
//! through the same port that the allocators use, and a line is fitted through the medians. All combinations are
//! measured once before any is measured again, so that a machine that changes its pace changes it for all; the first
//! round is a warm-up and is thrown away. Afterwards some of it is done again while the GPU's queue is full.

mod churn;
mod fit;
mod measure;
mod probes;
mod tables;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::cuda::{CudaDevice, DriverError, Gpu, Queue};
use crate::device::{Call, DeviceError, PerCall, Profile};
use crate::units::Bytes;
use churn::Churn;
use fit::{Point, fit};
use measure::{Bench, SMALL_LIMIT, SMALL_SIZES};
pub use churn::Observation;
pub use measure::{Sample, Shape};
pub use probes::Probe;
pub use tables::{
    LATENCY_TOTALS, PAPER_TABLE_1, Table1Row, latency, latency_chunks, native_latency, table_1,
};

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Calibration {
    /// The GPU.
    pub gpu: String,
    /// The newest CUDA that its driver can serve.
    pub cuda: String,
    /// Rounds on an idle GPU, without the warm-up.
    pub rounds: u64,
    /// Why it ended early.
    pub stopped: Option<String>,
    /// The fitted prices.
    pub profile: Profile,
    /// Every combination that was measured.
    pub samples: Vec<Sample>,
    /// Every call in the churn.
    pub churn: Vec<Observation>,
    /// What the driver accepts.
    pub probes: Vec<Probe>,
}

/// Why there is no calibration.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// The driver refused a call.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The device refused a call.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is too little memory for the smallest combination.
    #[error("too little memory: {free} bytes are free, and 64 MiB are the least to measure with")]
    TooLittle {
        /// Bytes that are free.
        free: Bytes,
    },
}

/// The least free memory to measure with.
const LEAST: Bytes = 64 << 20;

/// Measures for about `budget`; `stop` ends it early, with what was measured until then.
///
/// # Errors
/// If the driver refuses a call, or there is too little memory.
pub fn calibrate(
    gpu: &Gpu,
    name: &str,
    budget: Duration,
    stop: &AtomicBool,
) -> Result<Calibration, CalibrationError> {
    let start = Instant::now();
    let free = gpu.memory()?.free;
    if free < LEAST {
        return Err(CalibrationError::TooLittle { free });
    }
    let probes = probes::run(gpu)?;
    let mut bench = Bench::new(CudaDevice::new(gpu.clone()), free / 4);
    // The last part of the time is for a busy GPU.
    let rounds = rounds(&mut bench, start, budget.mul_f64(0.7), stop)?;
    let mut queue = Queue::new(gpu)?;
    bench.busy_rounds(&mut queue, &|| start.elapsed() > budget || stop.load(Ordering::Relaxed))?;
    drop(queue);
    let samples = bench.finish();
    let is_over = || start.elapsed() > budget.mul_f64(1.5) || stop.load(Ordering::Relaxed);
    let churn = Churn::new(CudaDevice::new(gpu.clone())).run(free / 5 * 2, &is_over)?;
    let stopped = stop.load(Ordering::Relaxed).then(|| "interrupted".to_owned());
    let profile = profile(gpu, name, rounds, &samples);
    let (gpu, cuda) = (gpu.name.clone(), gpu.cuda.clone());
    Ok(Calibration { gpu, cuda, rounds, stopped, profile, samples, churn, probes })
}

fn rounds(
    bench: &mut Bench,
    start: Instant,
    budget: Duration,
    stop: &AtomicBool,
) -> Result<u64, CalibrationError> {
    bench.round(&|| false)?;
    bench.forget();
    let mut rounds = 0;
    // One round is made in any case: half a table is none.
    while rounds == 0 || (start.elapsed() < budget && !stop.load(Ordering::Relaxed)) {
        bench.round(&|| rounds > 0 && start.elapsed() > budget)?;
        rounds += 1;
    }
    Ok(rounds)
}

/// Lines through the medians of an idle GPU.
fn profile(gpu: &Gpu, name: &str, rounds: u64, samples: &[Sample]) -> Profile {
    let points = |call: Call, is_small: bool| -> Vec<Point> {
        let wanted = |sample: &&Sample| {
            let is_alloc = matches!(call, Call::MemAlloc | Call::MemFree);
            sample.call == call.name()
                && !sample.busy
                && (is_alloc && sample.size <= SMALL_LIMIT) == is_small
        };
        let point = |sample: &Sample| Point {
            handles: sample.handles as f64,
            mib: sample.size as f64 / f64::from(1 << 20),
            ns: sample.p50_ns as f64,
        };
        samples.iter().filter(wanted).map(point).collect()
    };
    let mut calls = PerCall::default();
    for call in Call::ALL {
        calls[call] = fit(&points(call, false));
    }
    Profile {
        name: name.to_owned(),
        device: format!("{}, driver for CUDA {}", gpu.name, gpu.cuda),
        source: format!(
            "gmlake-replay calibrate: medians of {rounds} rounds on an idle GPU, fitted by least relative squares"
        ),
        calls,
        small_limit: SMALL_LIMIT,
        small_mem_alloc: fit(&points(Call::MemAlloc, true)),
        small_mem_free: fit(&points(Call::MemFree, true)),
        stream_wait_ns: 0.0,
    }
}

const _: () = assert!(SMALL_SIZES[SMALL_SIZES.len() - 1] <= SMALL_LIMIT);
