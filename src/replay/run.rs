//! One trace through one allocator on the GPU, measured, checked, and compared with its simulated twin.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::probe::PaceProbe;
use super::stamped::Stamped;
use super::summary::{LogDifference, ReplaySummary, StepReplay};
use super::twin::{Twin, simulate};
use crate::allocator::{Allocator, Checked, Choice, Environment, OptionError, Role};
use crate::cuda::{Background, Coverage, CudaDevice, DriverError, Gpu, GpuError, Painter};
use crate::device::{
    AddressPolicy, CallLog, Device, MemoryInfo, Profile, Result, SimDevice, Timed, Watched,
};
use crate::drive::{OnOom, Replay};
use crate::trace::{Trace, peak_live_bytes};
use crate::units::{Bytes, Size};

/// How fast events follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// At the recorded times.
    AsRecorded,
    /// One right after the other.
    Max,
}

/// How to replay.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Index of the GPU.
    pub device: u32,
    /// How fast.
    pub pace: Pace,
    /// How much memory is written and checked; `None`: none.
    pub verify: Option<Coverage>,
    /// Work to keep queued on the GPU; zero: none.
    pub background: Duration,
    /// A run that takes longer ends there; `None`: no limit.
    pub limit: Option<Duration>,
    /// Whether the duration of each call is kept.
    pub keep_times: bool,
    /// Prices to hold against the clock.
    pub profile: Profile,
}

/// Why there is no result. Out of memory, and a driver that fails on the way, are results.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is no GPU to work with.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The driver failed before the first event.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The GPU does not have the memory.
    #[error(
        "the trace needs at least {} at once, and the GPU has {} free of {}{}",
        Size(*.needed), Size(.memory.free), Size(.memory.total), hint(*.needed, .memory.free)
    )]
    TooLarge {
        /// Most bytes that are live at once.
        needed: Bytes,
        /// The GPU's memory.
        memory: MemoryInfo,
    },
    /// The allocator refused its options.
    #[error(transparent)]
    Option(#[from] OptionError),
}

/// The scale at which a trace takes nine tenths of the free memory, rounded down to two digits; nothing if there is
/// none.
fn hint(needed: Bytes, free: Bytes) -> String {
    let factor = 0.9 * free as f64 / needed as f64;
    if factor <= 0.0 {
        return String::new();
    }
    let digits = (1.0 - factor.log10().floor()) as usize;
    let unit = 10_f64.powi(digits as i32);
    format!("; try --scale {:.digits$}", (factor * unit).floor() / unit)
}

/// Why a run ended before its trace.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stop {
    /// Between two events: the user, or the clock.
    Asked(String),
    /// In the middle of one.
    Broken(String),
}

/// A GPU whose calls are logged and timed.
type Measured = Watched<CudaDevice, (CallLog, Timed)>;

/// Replays a trace in a context of its own. `stop` ends the run at the next event when it becomes true.
///
/// # Errors
/// If the run cannot begin. What stops it on the way is in the summary, with the results until then.
pub fn replay(
    trace: &Trace,
    choice: &Choice,
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<ReplaySummary, ReplayError> {
    let gpu = Gpu::open(plan.device)?;
    // The world as the allocator sees it: the recorded settings, on this GPU.
    let environment = Environment {
        total_memory: gpu.memory()?.total,
        no_split: trace.no_split.clone(),
        ..Environment::new(trace.settings.clone().unwrap_or_default())
    };
    let has_pools = trace.has_private_pools();
    let build = || {
        let allocator = choice.build(&environment, has_pools)?;
        Ok::<Box<dyn Allocator>, OptionError>(match choice.spec.role {
            Role::PlugIn => Box::new(Checked::supervised(allocator, choice.spec)),
            _ => allocator,
        })
    };
    let device = CudaDevice::new(gpu.clone());
    let _load = match plan.background {
        Duration::ZERO => None,
        span => Some(Background::start(&gpu, span)?),
    };
    let painter = plan.verify.map(|coverage| Painter::new(&gpu, coverage)).transpose()?;
    let stamped = painter.map(|painter| Stamped::new(painter, device.synchronizations()));
    let mut client = Client { allocator: build()?, stamped };
    let memory = gpu.memory()?;
    let needed = peak_live_bytes(trace);
    if needed > memory.free {
        return Err(ReplayError::TooLarge { needed, memory });
    }
    let watch = (CallLog::default(), Timed::observing(plan.keep_times));
    let mut measured = Watched::new(device, watch);
    // A profile that does not say what the fixed work took knows no pace.
    let probe = (plan.profile.probe_ns > 0.0).then(|| PaceProbe::new(&gpu));
    let mut run = Run::new(trace, memory, probe);
    run.replay_events(plan, &mut client, &mut measured, stop);
    let mut summary = run.summary(&client, &measured);
    summary.gpu = gpu.name.clone();
    summary.allocator = choice.spec.name.to_owned();
    summary.profile.clone_from(&plan.profile.name);
    if let Err(error) = measured.device.close() {
        summary.stopped.get_or_insert(format!("giving memory back: {error}"));
    }
    // A run that broke ended in the middle of an event, which a twin would carry out.
    match run.stopped {
        Some(Stop::Broken(_)) => summary.set_calls(&measured.watch.1, None),
        _ => {
            summary.pace = run.pace(&plan.profile);
            compare(&mut summary, &run, plan, &build, &measured)?;
        }
    }
    let (log, mut timed) = measured.watch;
    summary.log = log;
    summary.observations = timed.take_observations();
    Ok(summary)
}

/// Who makes the requests, and writes to the memory if it is to be checked.
struct Client {
    allocator: Box<dyn Allocator>,
    stamped: Option<Stamped>,
}

/// A run in progress.
struct Run<'t> {
    trace: &'t Trace,
    replay: Replay<'t>,
    /// Memory before the first event.
    memory: MemoryInfo,
    physical_peak: Bytes,
    reserved_peak: Bytes,
    elapsed_ns: u64,
    /// Time before each event, and in it, that was not spent in the driver.
    pauses: Vec<u64>,
    steps: Vec<StepReplay>,
    stopped: Option<Stop>,
    probe: Option<PaceProbe>,
}

impl<'t> Run<'t> {
    fn new(trace: &'t Trace, memory: MemoryInfo, probe: Option<PaceProbe>) -> Self {
        Self {
            trace,
            replay: Replay::new(trace, OnOom::Skip),
            memory,
            physical_peak: 0,
            reserved_peak: 0,
            elapsed_ns: 0,
            pauses: Vec::new(),
            steps: Vec::new(),
            stopped: None,
            probe,
        }
    }

    fn replay_events(
        &mut self,
        plan: &Plan,
        client: &mut Client,
        measured: &mut Measured,
        stop: &AtomicBool,
    ) {
        let start = Instant::now();
        let mut clock = (start, measured.watch.1.nanos().total());
        let mut steps = self.trace.steps.iter().peekable();
        let mut mark = None;
        for index in 0..self.trace.events.len() {
            if steps.peek().is_some_and(|step| step.start == index) {
                mark = steps.next().map(|step| (step.end, reading(measured)));
            }
            if let Some(reason) = reason_to_stop(plan, start, stop) {
                self.stopped = Some(Stop::Asked(reason));
                break;
            }
            if plan.pace == Pace::AsRecorded {
                self.wait_for(index, start);
            }
            self.event(index, client, measured);
            self.note_pause(&mut clock, measured);
            if let Some(probe) = &mut self.probe {
                probe.listen(measured.watch.1.nanos().total());
            }
            if self.stopped.is_some() {
                break;
            }
            if let Some((_, before)) = mark.take_if(|(end, _)| *end == index + 1) {
                self.steps.push(since(before, measured));
            }
        }
        if let Some((_, before)) = mark {
            self.steps.push(since(before, measured));
        }
        client.stamped.iter_mut().for_each(Stamped::check_all);
    }

    /// What passed since the last event's end, less the time in the driver.
    fn note_pause(&mut self, (end, driver_ns): &mut (Instant, u64), measured: &Measured) {
        let (now, total) = (Instant::now(), measured.watch.1.nanos().total());
        let passed = now.duration_since(*end).as_nanos() as u64;
        self.pauses.push(passed.saturating_sub(total - *driver_ns));
        (*end, *driver_ns) = (now, total);
    }

    /// How slow the machine was, in units of the machine that the profile was measured on; `None` if the profile does
    /// not say, or there was no memory to try.
    fn pace(&self, profile: &Profile) -> Option<f64> {
        Some(self.probe.as_ref()?.beats().mean()? / profile.probe_ns)
    }

    fn wait_for(&self, index: usize, start: Instant) {
        let due = Duration::from_micros(self.trace.times_us.get(index).copied().unwrap_or(0));
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }

    fn event(&mut self, index: usize, client: &mut Client, measured: &mut Measured) {
        let start = Instant::now();
        let Client { allocator, stamped } = client;
        let result = self.replay.advance(index..index + 1, allocator.as_mut(), measured, stamped);
        self.elapsed_ns += start.elapsed().as_nanos() as u64;
        let failure = result.err().map(|error| error.to_string());
        let failure = failure.or_else(|| measured.device.first_error().map(ToString::to_string));
        let unreadable = stamped.as_ref().and_then(|stamped| stamped.error.as_ref());
        let failure = failure.or_else(|| unreadable.map(ToString::to_string));
        self.stopped = failure.map(|reason| Stop::Broken(format!("event {index}: {reason}")));
        // The driver is only asked when there is more than ever: asking takes time.
        let reserved = allocator.usage().reserved;
        if reserved > self.reserved_peak {
            self.reserved_peak = reserved;
            let free = measured.memory_info().free;
            self.physical_peak = self.physical_peak.max(self.memory.free.saturating_sub(free));
        }
    }

    fn summary(&self, client: &Client, measured: &Measured) -> ReplaySummary {
        let Client { allocator, stamped } = client;
        let elsewhere = stamped.as_ref().map_or(0, |stamped| stamped.elapsed_ns);
        ReplaySummary {
            events: self.replay.outcome.events as u64,
            trace_events: self.trace.events.len() as u64,
            stopped: self
                .stopped
                .as_ref()
                .map(|(Stop::Asked(why) | Stop::Broken(why))| why.clone()),
            oom_count: self.replay.outcome.ooms.len() as u64,
            alloc_retries: allocator.retries(),
            allocator_ns: self.elapsed_ns.saturating_sub(elsewhere),
            driver_ns: measured.watch.1.nanos().total(),
            active_peak_bytes: allocator.peak().active,
            reserved_peak_bytes: allocator.peak().reserved,
            physical_peak_bytes: self.physical_peak,
            verified: stamped.as_ref().map(|stamped| stamped.verified.clone()),
            steps: self.steps.clone(),
            ..ReplaySummary::default()
        }
    }
}

fn reason_to_stop(plan: &Plan, start: Instant, stop: &AtomicBool) -> Option<String> {
    if stop.load(Ordering::Relaxed) {
        return Some("interrupted".to_owned());
    }
    let limit = plan.limit.filter(|&limit| start.elapsed() > limit)?;
    Some(format!("time limit of {} s reached", limit.as_secs_f64()))
}

/// Driver calls and nanoseconds so far.
fn reading(measured: &Measured) -> (u64, u64) {
    let count = measured.watch.1.times.rows().map(|(_, times)| times.count).sum();
    (count, measured.watch.1.nanos().total())
}

fn since((calls, driver_ns): (u64, u64), measured: &Measured) -> StepReplay {
    let now = reading(measured);
    StepReplay { calls: now.0 - calls, driver_ns: now.1 - driver_ns, predicted_ns: 0 }
}

/// Runs the twins, with allocators that `build` makes anew: one with the GPU's addresses, which must make the same
/// calls; one with its own, whose peak is what the simulator tells its users.
fn compare(
    summary: &mut ReplaySummary,
    run: &Run<'_>,
    plan: &Plan,
    build: &dyn Fn() -> Result<Box<dyn Allocator>, OptionError>,
    measured: &Measured,
) -> Result<(), ReplayError> {
    type Outcome = Result<Result<Twin>, OptionError>;
    let twin = |policy: AddressPolicy, profile: &Profile, pauses: &[u64]| -> Outcome {
        // A GPU is asked how far it is, and the simulation cannot know: it gets the same answers.
        let device = SimDevice::with_policy(run.memory.free, policy)
            .beside(run.memory.total - run.memory.free)
            .packing()
            .answering(measured.watch.0.reached.clone().into());
        let events = summary.events as usize;
        Ok(simulate(run.trace, (events, pauses), build()?.as_mut(), device, profile))
    };
    let addresses = AddressPolicy::Answers(measured.watch.0.answers.clone().into());
    let profile = plan.profile.at_pace(summary.pace.unwrap_or(1.0));
    let same = twin(addresses, &profile, &run.pauses)?;
    if let Ok(own) = twin(AddressPolicy::Ascending, &plan.profile, &[])? {
        summary.simulated_peak_bytes = own.peak_used;
        summary.profile_driver_ns = own.bill.nanos.total();
    }
    let Ok(same) = same else { return Ok(()) };
    summary.set_calls(&measured.watch.1, Some(&same.bill.nanos));
    for (step, ns) in summary.steps.iter_mut().zip(same.step_ns) {
        step.predicted_ns = ns;
    }
    summary.compared_calls = measured.watch.0.entries.len() as u64;
    let difference = measured.watch.0.first_difference(&same.log);
    summary.log_difference = difference.map(|(call, replay, simulation)| LogDifference {
        call: call as u64,
        replay,
        simulation,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_free_memory_no_scale_helps() {
        assert_eq!(hint(10, 0), "");
        assert_eq!(hint(1_000_000, 2_345), "; try --scale 0.0021");
    }

    proptest! {
        #[test]
        fn the_scale_that_is_named_fits(needed in 1..1_u64 << 50, share in 1e-9..1.0) {
            let free = (needed as f64 * share) as Bytes;
            prop_assume!(free > 0);
            let hint = hint(needed, free);
            let scale: f64 = hint.trim_start_matches("; try --scale ").parse().unwrap();
            let taken = needed as f64 * scale;
            prop_assert!(taken <= 0.9001 * free as f64 && taken >= 0.8 * free as f64);
        }
    }
}
