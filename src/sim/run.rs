//! A scenario: one recording under one allocator in one setup. What was found out once is not replayed again.
//!
//! ```text
//!   Scenario ── run ────▶ RunSummary             the first replay: Stage::advance, a stretch of events at a time
//!       │    ── state_at(event) ─▶ Peak  ┐
//!       │    ── left_behind ─▶ tenants   ├─────  at most one more (see `peak`), if whoever follows the run says what
//!       │    ── follow(observer) ────────┘       else is wanted
//!       └── beside: another allocator or setup, with the same memory of what was found out
//! ```

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::cache::{Key, RunCache};
use super::fingerprint::relative_places;
use super::meter::Meter;
use super::opened::Opened;
use super::setup::{Memory, Setup};
use crate::allocator::{
    AllocError, Allocator, BlockId, Checked, Choice, Counter, OptionError, Options, Request, Role,
    find,
};
use crate::device::{Bill, Counted, DeviceError, Priced, Result as DeviceResult, Watched};
use crate::drive::{Observer, Replay};
use crate::run::{Peak, Prices, RunSummary, converged_after, utilization};
use crate::simulation::{Extremes, HeldSegments, Simulated};
use crate::trace::EventKind;
use crate::units::Bytes;

/// Why a run came to no result. Running out of memory is a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// An option of the allocator was refused.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The simulated device failed in another way than by running out of memory.
    #[error("event {event}: {source}")]
    Device {
        /// Index of the event.
        event: usize,
        /// What the device said.
        source: DeviceError,
    },
    /// The allocator broke a promise: a plug-in, or one under the checker.
    #[error("event {event}: {reason}")]
    Fault {
        /// Index of the event.
        event: usize,
        /// Which one.
        reason: String,
    },
}

/// A recording, an allocator, and the world that it runs in.
#[derive(Debug, Clone)]
pub struct Scenario<'o> {
    /// The recording.
    pub opened: &'o Opened,
    /// The allocator.
    pub choice: Choice,
    /// The world.
    pub setup: Setup,
    pub(super) known: Arc<Known>,
    all: Arc<All>,
}

/// All scenarios of a recording that were asked about, by what they depend on.
type All = Mutex<FxHashMap<String, Arc<Known>>>;

/// What was found out about one scenario.
#[derive(Debug, Default)]
pub(super) struct Known {
    run: OnceLock<Result<RunSummary, RunError>>,
    /// What is held after events, and before the first.
    pub(super) states: Mutex<BTreeMap<Option<usize>, Arc<Peak>>>,
    /// Who had the free segments of the peak last.
    pub(super) left: OnceLock<FxHashMap<u64, usize>>,
}

impl<'o> Scenario<'o> {
    /// A scenario of which nothing is known yet.
    pub fn new(opened: &'o Opened, choice: Choice, setup: Setup) -> Self {
        Self::among(Arc::default(), opened, choice, setup)
    }

    /// A scenario for each of these allocators.
    pub fn each(opened: &'o Opened, choices: &[Choice], setup: &Setup) -> Vec<Self> {
        let all = Arc::<All>::default();
        let one =
            |choice: &Choice| Self::among(Arc::clone(&all), opened, choice.clone(), setup.clone());
        choices.iter().map(one).collect()
    }

    /// The scenario of the allocator that was recorded, with the defaults of its options.
    pub fn recorded(opened: &'o Opened, beside: Option<&Self>, setup: &Setup) -> Option<Self> {
        let choice = Choice { spec: find(opened.recorded_by())?, options: Options::default() };
        Some(match beside {
            Some(other) => other.beside(choice, setup.clone()),
            None => Self::new(opened, choice, setup.clone()),
        })
    }

    /// Whether both are the same question.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.known, &other.known)
    }

    /// The same recording under another allocator or in another world.
    pub fn beside(&self, choice: Choice, setup: Setup) -> Self {
        Self::among(Arc::clone(&self.all), self.opened, choice, setup)
    }

    fn among(all: Arc<All>, opened: &'o Opened, choice: Choice, setup: Setup) -> Self {
        let key = setup.text(&choice);
        let mut scenarios = all.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::clone(scenarios.entry(key).or_default());
        drop(scenarios);
        Self { opened, choice, setup, known, all }
    }

    /// What the run comes to. One that is in the cache of the setup is not made again: then its time on this machine is
    /// not known.
    ///
    /// # Errors
    /// If an option is wrong, or the device fails in another way than by running out of memory.
    pub fn run(&self) -> Result<&RunSummary, RunError> {
        let Self { opened, choice, setup, .. } = self;
        let found = || {
            let Some((cache, key)) = self.cache() else { return run(opened, choice, setup) };
            if let Some(known) = cache.known(&key, opened) {
                return Ok(known);
            }
            let made = run(opened, choice, setup)?;
            cache.keep(key, &made);
            Ok(made)
        };
        self.known.run.get_or_init(found).as_ref().map_err(Clone::clone)
    }

    /// The run with `bytes` of memory, if it is known to go as that without a limit: the allocator holds no more, never
    /// asks how much memory there is, does not follow from PyTorch's settings, and no share of the memory is its limit.
    ///
    /// # Errors
    /// As [`Scenario::run`], of the run without a limit.
    pub(crate) fn unrefused(&self, bytes: Bytes) -> Result<Option<RunSummary>, RunError> {
        if self.choice.spec.role == Role::PyTorch {
            return Ok(None);
        }
        let with = |memory| Setup { memory, ..self.setup.clone() };
        let unlimited = self.beside(self.choice.clone(), with(Memory::Unlimited));
        let run = unlimited.run()?;
        let held = run.reserved_peak_bytes;
        let is_free = with(Memory::Bytes(held)).memory(self.opened) == Some(held);
        let is_same = held <= bytes && is_free && run.memory_inquiries == 0;
        Ok(is_same.then(|| RunSummary { device_memory_bytes: Some(bytes), ..run.clone() }))
    }

    /// The cache, with the key of this run. Where driver time is priced, or the recording began with memory in use,
    /// every run is made.
    fn cache(&self) -> Option<(&RunCache, Key)> {
        let Self { opened, choice, setup, .. } = self;
        let begins_as_recorded =
            !opened.start.is_empty() && choice.spec.name == opened.recorded_by();
        let is_own = setup.profile.is_some() || begins_as_recorded;
        let cache = setup.cache.as_deref().filter(|_| !is_own)?;
        let addresses = setup.recorded_addresses(opened, choice).map(|at| relative_places(&at));
        Some((cache, (opened.program(), format!("{} {addresses:x?}", setup.text(choice)))))
    }
}

/// Runs a trace through an allocator, in no scenario.
///
/// # Errors
/// If an option is wrong, or the device fails in another way than by running out of memory.
pub fn run(opened: &Opened, choice: &Choice, setup: &Setup) -> Result<RunSummary, RunError> {
    let trace = &opened.trace;
    let mut stage = Stage::prepare(opened, choice, setup)?;
    let mut start = stage.replay.outcome.events;
    let mut meter = Meter::new(trace, stage.allocator.usage(), start, setup.profile.is_some());
    let begin = Instant::now();
    while start < trace.events.len() {
        meter.begin(start, stage.allocator.as_ref(), &stage.device);
        let end = meter.stretch_end(start);
        let is_over = stage.measure(end, &mut meter.extremes)?.is_break();
        let done = stage.replay.outcome.events;
        meter.end(start..done, is_over, stage.allocator.as_ref(), &stage.device);
        start = if is_over { trace.events.len() } else { end };
    }
    let host_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(summarize((opened, choice, setup), stage, meter, host_ns))
}

/// All that takes part in a run.
pub(crate) struct Stage<'t> {
    pub(crate) allocator: Box<dyn Allocator>,
    pub(crate) device: Simulated,
    pub(crate) replay: Replay<'t>,
}

impl<'t> Stage<'t> {
    /// The state before the first event: what was live before the recording began is live here too. The allocator that
    /// the recording ran on has it where PyTorch had it, with all that was cached. Another one would not have cached
    /// the same: it gets the requests that stand at the beginning of the trace.
    pub(crate) fn prepare(
        opened: &'t Opened,
        choice: &Choice,
        setup: &Setup,
    ) -> Result<Self, RunError> {
        let mut stage = Self::empty(opened, choice, setup)?;
        setup.runs.began(&setup.conditions(choice));
        let is_own = choice.spec.name == opened.recorded_by() && !setup.is_fresh;
        if opened.start.is_empty() || !is_own {
            return Ok(stage);
        }
        match stage.allocator.restore(&mut stage.device, &opened.start) {
            Ok(Some(blocks)) => stage.replay.adopt(&blocks),
            Ok(None) => {}
            // The device is smaller than that of the recording: let the requests show how far it goes.
            Err(DeviceError::OutOfMemory { .. }) => stage = Self::empty(opened, choice, setup)?,
            Err(source) => return Err(RunError::Device { event: 0, source }),
        }
        let (counted, priced, _) = &mut stage.device.watch;
        (*counted, priced.bill) = (Counted::default(), Bill::default());
        Ok(stage)
    }

    /// Has all that is obtained from the device from now on noted.
    pub(crate) fn watch_segments(&mut self, segments: HeldSegments) {
        self.device.watch.2 = Some(segments);
        self.device.keep_book();
    }

    /// Carries out the events up to number `end`, that one not included, and says whether to go on.
    pub(crate) fn advance(
        &mut self,
        end: usize,
        observer: &mut impl Observer<Simulated>,
    ) -> Result<ControlFlow<()>, RunError> {
        let Self { allocator, device, replay } = self;
        let range = replay.outcome.events..end;
        let flow = replay.advance(range, allocator.as_mut(), device, observer);
        self.judged(flow)
    }

    /// The same, with nothing watched but the usage.
    fn measure(
        &mut self,
        end: usize,
        extremes: &mut Extremes,
    ) -> Result<ControlFlow<()>, RunError> {
        let Self { allocator, device, replay } = self;
        let range = replay.outcome.events..end;
        let flow = replay.simulate(range, allocator.as_mut(), device, extremes);
        self.judged(flow)
    }

    /// How the last events went; a fault of the allocator comes first.
    fn judged(&self, flow: DeviceResult<ControlFlow<()>>) -> Result<ControlFlow<()>, RunError> {
        let event = self.replay.outcome.events;
        match self.allocator.fault() {
            Some(reason) => Err(RunError::Fault { event, reason: reason.to_owned() }),
            None => flow.map_err(|source| RunError::Device { event, source }),
        }
    }

    /// Carries out the events up to number `last`, that one included, and says which block that one got. Where it is an
    /// attempt, it is left with what it got.
    pub(crate) fn run_through(
        &mut self,
        last: usize,
        observer: &mut impl Observer<Simulated>,
    ) -> Result<Option<BlockId>, RunError> {
        let event = self.replay.event(last);
        let is_attempt = event.kind == EventKind::Attempt;
        // A run that ended early did so after its peak.
        let _ = self.advance(last + usize::from(!is_attempt), observer)?;
        let Self { allocator, device, replay } = self;
        if !is_attempt {
            return Ok(replay.block(event.alloc).filter(|_| event.kind == EventKind::Malloc));
        }
        let request = Request { size: event.size, stream: event.stream, pool: event.pool };
        match allocator.malloc(device, request) {
            Ok(given) => Ok(Some(given.block)),
            Err(AllocError::OutOfMemory { .. }) => Ok(None),
            Err(AllocError::Device(source)) => Err(RunError::Device { event: last, source }),
        }
    }

    fn empty(opened: &'t Opened, choice: &Choice, setup: &Setup) -> Result<Self, RunError> {
        setup.check(opened)?;
        let watch = (Counted::default(), Priced::new(setup.profile.clone()), None);
        let allocator = choice.build(&setup.environment(opened), opened.has_private_pools())?;
        Ok(Self {
            allocator: match setup.supervision.covers(choice.spec.role) {
                true => Box::new(Checked::supervised(allocator, choice.spec)),
                false => allocator,
            },
            device: Watched::new(setup.device(opened, choice), watch),
            replay: Replay::new(&opened.trace, setup.on_oom),
        })
    }
}

/// All that a run which is over has come to.
fn summarize(
    (opened, choice, setup): (&Opened, &Choice, &Setup),
    stage: Stage<'_>,
    meter: Meter<'_>,
    host_ns: u64,
) -> RunSummary {
    let trace = &opened.trace;
    let (allocator, outcome) = (stage.allocator, stage.replay.outcome);
    let peak = allocator.peak();
    let owned = |(name, count): Counter| (name.to_owned(), count);
    let memory_inquiries = stage.device.inquiries();
    let (counted, priced, _) = stage.device.watch;
    let prices = setup.profile.as_ref().map(|profile| {
        let is_of_gpu = trace.span_us() > 0 && !opened.records.marks.is_virtual;
        let recorded_wall_ns = is_of_gpu.then(|| trace.span_us() * 1000);
        Prices::new(&profile.name, priced.bill, recorded_wall_ns)
    });
    let first_oom = outcome.ooms.first().map(|oom| oom.event);
    let utilization = utilization(peak.active, peak.reserved);
    RunSummary {
        file: opened.file.clone(),
        device: trace.device,
        allocator: choice.spec.name.to_owned(),
        options: choice.options.rows(),
        device_memory_bytes: setup.memory(opened),
        events: outcome.events as u64,
        certainty: opened.coverage.of_a_run(choice.spec.role == Role::Bound),
        requested_peak_bytes: peak.requested,
        active_peak_bytes: peak.active,
        reserved_peak_bytes: peak.reserved,
        utilization,
        fragmentation: 1.0 - utilization,
        oom_count: outcome.ooms.len() as u64,
        first_oom_event: first_oom.map(|event| event as u64),
        first_oom_step: first_oom.and_then(|event| opened.step_of(event)),
        alloc_retries: allocator.retries(),
        device_calls: counted.calls,
        fence_calls: counted.fences,
        memory_inquiries,
        host_ns: Some(host_ns),
        allocator_counters: allocator.counters().into_iter().map(owned).collect(),
        prices,
        converged_after_step: converged_after(&meter.steps),
        steps: meter.steps,
        timeline: meter.timeline,
        first_oom_us: first_oom.and_then(|event| trace.times_us.get(event).copied()),
        peak_event: meter.extremes.peak_event.map(|event| event as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::{Held, Usage};
    use crate::device::SimDevice;
    use crate::drive::{OnOom, Step as Carried};
    use crate::run::Timeline;
    use crate::sim::setup::UNLIMITED;
    use crate::trace::{AllocId, Event, PoolId, Step, StreamId, Trace};
    use crate::units::MIB;

    fn event(kind: EventKind, alloc: u32, size: Bytes) -> Event {
        let (stream, pool) = (StreamId(0), PoolId::DEFAULT);
        Event { size, alloc: AllocId(alloc), stream, kind, pool }
    }

    /// `count` blocks of 1, 2, 3, ... MiB; each is freed when the next but one has come.
    fn staircase(count: u32, steps: Vec<Step>) -> Trace {
        let mut events = Vec::new();
        for alloc in 0..count {
            events.push(event(EventKind::Malloc, alloc, MIB * u64::from(alloc + 1)));
            if alloc >= 2 {
                events.push(event(EventKind::Free, alloc - 2, MIB * u64::from(alloc - 1)));
            }
        }
        Trace { times_us: vec![0; events.len()], events, allocs: count, steps, ..Trace::default() }
    }

    fn native(trace: &Trace, setup: &Setup) -> RunSummary {
        let opened = Opened { trace: trace.clone(), ..Opened::default() };
        let choice = Choice { spec: find("native").unwrap(), options: Options::default() };
        run(&opened, &choice, setup).unwrap()
    }

    /// The obvious twin of the stretches: looks at the allocator after every single event.
    #[derive(Default)]
    struct EveryEvent(Vec<Usage>);

    impl<D> Observer<D> for EveryEvent {
        fn after(&mut self, carried: &mut Carried<'_, D>) {
            self.0.push(carried.allocator.usage());
        }
    }

    fn after_every_event(trace: &Trace) -> Vec<Usage> {
        let mut allocator = crate::allocator::Native::new();
        let mut device = SimDevice::new(UNLIMITED);
        let mut seen = EveryEvent::default();
        let range = 0..trace.events.len();
        let mut replay = Replay::new(trace, OnOom::Skip);
        let _ = replay.advance(range, &mut allocator, &mut device, &mut seen).unwrap();
        seen.0
    }

    fn highest(usages: &[Usage]) -> Usage {
        usages.iter().copied().fold(Usage::default(), Usage::max)
    }

    /// The obvious twin of the buckets: all events whose places lie in one, and the state that it begins with.
    fn check_buckets(timeline: &Timeline, seen: &[Usage], place: impl Fn(usize) -> u64) {
        let mut before = Held::default();
        for (index, bucket) in timeline.buckets.iter().enumerate() {
            let stretch = timeline.start_of(index)..timeline.start_of(index + 1);
            let inside = (0..seen.len()).filter(|&event| stretch.contains(&place(event)));
            let inside: Vec<Held> = inside.map(|event| Held::of(seen[event])).collect();
            let all = || inside.iter().copied().chain([before]);
            assert_eq!(bucket.high, all().fold(before, Held::max), "bucket {index}");
            assert_eq!(bucket.low, all().fold(before, Held::min), "bucket {index}");
            before = inside.last().copied().unwrap_or(before);
        }
        assert_eq!(timeline.buckets.len() as u64, timeline.end / timeline.width + 1);
    }

    fn first_highest(seen: &[Usage]) -> u64 {
        let most = highest(seen).reserved;
        seen.iter().position(|usage| usage.reserved == most).unwrap() as u64
    }

    #[test]
    fn buckets_are_of_equal_time() {
        let mut trace = staircase(3000, Vec::new());
        // Quick and slow by turns, with a long pause in the middle.
        let pace = |event: usize| if (event / 500).is_multiple_of(2) { 1 } else { 40 };
        let mut time = 0;
        for event in 0..trace.events.len() {
            time += pace(event) + if event == 3000 { 100_000 } else { 0 };
            trace.times_us[event] = time;
        }
        let seen = after_every_event(&trace);
        let summary = native(&trace, &Setup::default());
        check_buckets(&summary.timeline, &seen, |event| trace.times_us[event]);
    }

    #[test]
    fn stretches_see_what_is_seen_after_every_event() {
        let step = |start, end| Step { start, end };
        // The second step begins at once, the third after a pause, and the last event is in none.
        let trace = staircase(3000, vec![step(7, 100), step(100, 2111), step(2500, 5997)]);
        let seen = after_every_event(&trace);
        let summary = native(&trace, &Setup::default());
        check_buckets(&summary.timeline, &seen, |event| event as u64);
        assert!(summary.timeline.width > 1);
        assert_eq!(summary.peak_event, Some(first_highest(&seen)));
        assert_eq!(summary.steps.len(), 3);
        for (found, step) in summary.steps.iter().zip(&trace.steps) {
            let within = highest(&seen[step.start - 1..step.end]);
            assert_eq!(found.active_peak_bytes, within.active, "{step:?}");
            assert_eq!(found.reserved_peak_bytes, within.reserved, "{step:?}");
            let events = &trace.events[step.start..step.end];
            let mallocs = events.iter().filter(|e| e.kind == EventKind::Malloc).count() as u64;
            assert_eq!(found.device_calls.mem_alloc, mallocs, "{step:?}");
        }
        assert_eq!(summary.active_peak_bytes, highest(&seen).active);
    }

    #[test]
    fn a_run_that_stops_closes_its_step_there() {
        let trace = staircase(100, vec![Step { start: 10, end: 198 }]);
        let setup =
            Setup { memory: Memory::Bytes(90 * MIB), on_oom: OnOom::Stop, ..Setup::default() };
        let summary = native(&trace, &setup);
        let oom = summary.first_oom_event.unwrap();
        assert_eq!((summary.oom_count, summary.events), (1, oom + 1));
        assert_eq!(summary.steps[0].end_event, oom + 1);
        assert_eq!((summary.step_of(oom), summary.first_oom_step), (Some(1), Some(1)));
        assert!(summary.reserved_peak_bytes <= 90 * MIB);
    }

    #[test]
    fn a_skipped_request_is_counted_and_the_run_goes_on() {
        let trace = staircase(50, Vec::new());
        let setup = Setup { memory: Memory::Bytes(60 * MIB), ..Setup::default() };
        let summary = native(&trace, &setup);
        assert!(summary.oom_count > 1);
        assert_eq!(summary.events, trace.events.len() as u64);
    }
}
