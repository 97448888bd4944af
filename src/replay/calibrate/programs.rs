//! The calls as allocators make them: made-up programs through real allocators.
//!
//! A call that is repeated on an empty device finds all that it needs in the caches of the host and of the driver. In a
//! program it comes after others, on a device that holds much, for memory that was never used or was just given back,
//! and takes up to twice as long. So the prices are fitted to calls in their natural surroundings: made-up traces
//! (training with varying lengths, random churn, combs made to fragment) through every allocator that keeps memory.
//! Every other one is stretched until it fills a good part of the device, since calls cost more the more is mapped.

use super::CalibrationError;
use super::fit::Seen;
use crate::alloc_conf::AllocConf;
use crate::allocator::{Environment, Options, Role, Spec, by_default};
use crate::cuda::{CudaDevice, Gpu};
use crate::device::{Call, Observation, Timed, Watched};
use crate::drive::{OnOom, Replay};
use crate::replay::probe::PaceProbe;
use crate::replay::workload::scaled;
use crate::trace::synthetic::Program;
use crate::trace::{Trace, peak_live_bytes};

/// Events of each program.
const EVENTS: usize = 4000;
/// Events between two looks at the clock.
const STRIDE: usize = 64;

/// The calls of one program through one allocator, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The program.
    pub program: String,
    /// The allocator.
    pub allocator: String,
    /// What each call took.
    pub calls: Vec<Observation>,
    /// What the fixed work took about the time of each call, in nanoseconds.
    pub probe_ns: Vec<f64>,
}

impl Observed {
    /// What the fixed work took on average over the calls, in nanoseconds.
    pub(super) fn mean_probe_ns(&self) -> f64 {
        self.probe_ns.iter().sum::<f64>() / self.probe_ns.len().max(1) as f64
    }

    /// The calls of one kind, as they would have been, had the fixed work next to them taken `probe_ns`.
    pub(super) fn at(&self, probe_ns: f64, call: Call) -> impl Iterator<Item = Seen> + '_ {
        let total: u64 = self.calls.iter().map(|one| one.ns).sum();
        let paced = self.calls.iter().zip(&self.probe_ns);
        paced.filter(move |(one, _)| one.call == call && one.ns > 0).map(move |(one, alongside)| {
            Seen {
                amount: one.amount,
                ns: one.ns as f64 * probe_ns / alongside,
                share: one.ns as f64 / total as f64,
            }
        })
    }
}

/// Runs programs, each with another seed, until `over` says so; all allocators get their turn at least once.
pub(super) fn observe(
    gpu: &Gpu,
    over: &dyn Fn() -> bool,
) -> Result<Vec<Observed>, CalibrationError> {
    let mut seen = Vec::new();
    let mut seed = 0;
    while seed == 0 || !over() {
        for (number, program) in (0..).zip(Program::ALL) {
            let mut trace = program.generate(seed, EVENTS);
            if (seed + number) % 2 == 1 {
                // Larger sizes, so that it takes a quarter of what is free; smaller ones, if it does not fit.
                let wanted = (gpu.memory()?.free / 4) as f64;
                trace = scaled(&trace, wanted / peak_live_bytes(&trace).max(1) as f64);
            }
            for spec in by_default().filter(|spec| is_real(spec)) {
                if seed == 0 || !over() {
                    let mut probe = PaceProbe::new(gpu);
                    let calls = run(gpu, spec, &trace, (over, &mut probe))?;
                    let probe_ns = probe.beats().alongside(&calls);
                    // Without room for the fixed work, the pace is not known.
                    if probe_ns.len() == calls.len() {
                        let (program, allocator) = (program.name().into(), spec.name.into());
                        seen.push(Observed { program, allocator, calls, probe_ns });
                    }
                }
            }
        }
        seed += 1;
    }
    Ok(seen)
}

/// Allocators, not bounds; and not the one that makes a call for each 2 MiB of every request, which alone would take
/// all the time.
fn is_real(spec: &Spec) -> bool {
    spec.role != Role::Bound && spec.name != "vmm"
}

/// One program through one allocator, in pieces, so that it can be cut short.
fn run(
    gpu: &Gpu,
    spec: &Spec,
    trace: &Trace,
    (over, probe): (&dyn Fn() -> bool, &mut PaceProbe),
) -> Result<Vec<Observation>, CalibrationError> {
    let mut environment = Environment::new(AllocConf::default());
    environment.total_memory = gpu.memory()?.total;
    let mut allocator = spec
        .build(&Options::default(), &environment)
        .expect("an allocator can be built with its own defaults");
    let mut device = Watched::new(CudaDevice::new(gpu.clone()), Timed::observing(true));
    let mut replay = Replay::new(trace, OnOom::Skip);
    let length = trace.events.len();
    for index in 0..length {
        let _ = replay.advance(index..index + 1, allocator.as_mut(), &mut device, &mut ())?;
        if let Some(error) = device.device.first_error() {
            return Err(error.clone().into());
        }
        probe.listen(device.watch.nanos().total());
        if index > length / 4 && index % STRIDE == 0 && over() {
            break;
        }
    }
    device.device.close()?;
    Ok(device.watch.take_observations())
}
