//! Calibration: what the memory calls of this GPU cost, and what its driver accepts.
//!
//! First blocks are built and taken down again in every combination of chunk size and number of chunks: the paper's
//! Table 1 and latency figure, medians on an empty device. All combinations are measured once before any is measured
//! again, so that a machine that changes its pace changes it for all; the first round is a warm-up and is thrown away.
//! Some of it is done again while the GPU's queue is full.
//!
//! The prices do not come from there: they are fitted (`prices`, `fit`) to the calls of made-up programs (`programs`),
//! which can be kept (`call_times`) and fitted again; and the speed at which the driver zeroes memory is measured by
//! itself (`zeroing`).

pub mod call_times;
mod fit;
mod measure;
mod prices;
mod probes;
mod programs;
mod zeroing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cuda::{CudaDevice, DriverError, Gpu, Queue};
use crate::device::{Amount, Call, DeviceError, Line, PerCall, Profile};
use crate::units::Bytes;
use measure::Bench;
pub use measure::{Sample, Shape};
pub use prices::Prices;
pub use probes::Probe;
pub use programs::Observed;

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
    /// How much of each call's price pays for rare long ones: 0.1 is a tenth of what the others cost.
    pub rare: PerCall<f64>,
    /// Every combination that was measured.
    pub samples: Vec<Sample>,
    /// Calls of the made-up programs, to which the prices were fitted.
    pub observed: u64,
    /// The calls themselves.
    #[serde(skip)]
    pub programs: Vec<Observed>,
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
    // A third of the time for empty rounds, some for a busy GPU, and half for the programs.
    let rounds = rounds(&mut bench, start, budget.mul_f64(0.35), stop)?;
    let is_over = |share: f64| {
        move || start.elapsed() > budget.mul_f64(share) || stop.load(Ordering::Relaxed)
    };
    let mut queue = Queue::new(gpu)?;
    bench.busy_rounds(&mut queue, &is_over(0.5))?;
    drop(queue);
    let samples = bench.finish();
    let programs = programs::observe(gpu, &is_over(1.0))?;
    let stopped = stop.load(Ordering::Relaxed).then(|| "interrupted".to_owned());
    let prices = Prices::fit(&programs);
    let profile = profile(gpu, name, &samples, &prices)?;
    Ok(Calibration {
        gpu: gpu.name.clone(),
        cuda: gpu.cuda.clone(),
        rounds,
        stopped,
        profile,
        rare: prices.rare,
        samples,
        observed: prices.observed,
        programs,
        probes,
    })
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

/// Prices by what was observed; fences by the rounds, where they were made.
fn profile(
    gpu: &Gpu,
    name: &str,
    samples: &[Sample],
    prices: &Prices,
) -> Result<Profile, CalibrationError> {
    let memory = gpu.memory()?;
    let mut profile = prices.put_into(Profile {
        name: name.to_owned(),
        device: format!("{}, driver for CUDA {}", gpu.name, gpu.cuda),
        memory: memory.total,
        ..Profile::default()
    });
    // Their prices depend on nothing.
    let flat = |one: &Sample| Line {
        per_call_ns: one.p50_ns as f64,
        fit_error: Some(0.0),
        ..Line::default()
    };
    for call in [Call::EventRecord, Call::EventQuery, Call::StreamWait] {
        let of_call = samples.iter().filter(|one| one.call == call.name());
        profile.calls[call] = of_call.map(flat).collect();
    }
    // Half of the largest piece is the average.
    let turn = Amount { handles: 1, size: zeroing::piece(memory.free) / 2 };
    let call_ns = profile.price(Call::MemAlloc, turn) + profile.price(Call::MemFree, turn);
    profile.zeroing_ns_per_mib = (zeroing::measure(gpu, call_ns)? * 10.0).round() / 10.0;
    Ok(profile)
}
