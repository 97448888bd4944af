//! Timeline: streams, events, and the moment at which an event completes.
//!
//! PyTorch asks about events when memory that another stream uses was freed: only when the GPU has got there may the
//! memory be used again. A virtual GPU gets nowhere, so when an event completes is a choice:
//!
//! ```text
//!   early    at once: the GPU is never behind
//!   late     when the program waits: for the event, for its stream or for the device
//!   clock    when the host's clock has passed the event's; the GPU's runs on estimated times (duration.rs)
//!
//!   host   ──launch──launch──record e──────query e ...      what the program needs of a processor, what calls of a
//!                                                           real GPU take (duration.rs), and its waits
//!   stream   ├─ kernel ─┤├─ kernel ─────┤e                  kernels run one after the other
//! ```
//!
//! *fast* and *slow* are the clock with a GPU that takes 1/3 and 7/5 of the estimated time.
//!
//! Every moment is known on all three clocks. A query to which they give different answers is *contested*: a run in
//! which none was would have gone the same way on the faster and on the slower GPU.

use rustc_hash::FxHashMap;

/// When events complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completion {
    /// At once.
    Early,
    /// When the program waits for them.
    Late,
    /// When the host's clock has passed theirs.
    #[default]
    Clock,
    /// The same, if all work took the GPU 1/3 of the estimated time.
    Fast,
    /// The same, if it took 7/5 of it.
    Slow,
}

/// The thread that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// It has queued work: the answer may decide which memory it takes next.
    Worker,
    /// It only looks on, as the watchdog of PyTorch's groups does.
    Watcher,
}

/// A point in time on three clocks, in nanoseconds: with the GPU as estimated, a fast one and a slow one.
#[derive(Debug, Clone, Copy, Default)]
struct Moment([u64; 3]);

impl Moment {
    /// When work is done that begins here and is estimated to take `ns`.
    fn after(self, ns: u64) -> Self {
        let Self([clock, fast, slow]) = self;
        Self([clock + ns, fast + ns / 3, slow + ns * 7 / 5])
    }

    /// When the host has gone on for `ns`, which is the same on all clocks.
    fn later(self, ns: u64) -> Self {
        Self(self.0.map(|at| at + ns))
    }

    fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|clock| self.0[clock].max(other.0[clock])))
    }

    /// On each clock, whether this is now or past.
    fn passed(self, now: Self) -> [bool; 3] {
        std::array::from_fn(|clock| self.0[clock] <= now.0[clock])
    }
}

/// Positions that were reached in several streams.
type Marks = Vec<(u64, u64)>;

#[derive(Debug, Default, Clone)]
struct Stream {
    /// How much was queued on it.
    position: u64,
    /// When it will have done all that.
    busy_until: Moment,
    /// Positions of other streams that it has waited for.
    seen: Marks,
}

#[derive(Debug, Clone)]
struct Event {
    marks: Marks,
    at: Moment,
}

/// The streams and events of all devices. Streams and events are named by numbers.
#[derive(Debug, Default)]
pub struct Timeline {
    completion: Completion,
    /// Where the host is.
    host: Moment,
    /// Processor time that `host` counts.
    processor_ns: u64,
    /// How long the host of a real GPU would need for a nanosecond of this processor.
    host_pace: f64,
    streams: FxHashMap<u64, Stream>,
    events: FxHashMap<u64, Event>,
    /// Position up to which each stream is known to be done, since the program waited for it.
    done: FxHashMap<u64, u64>,
    contested: u64,
}

/// Keeps the furthest position for each stream.
fn merge(into: &mut Marks, from: &[(u64, u64)]) {
    for &(stream, position) in from {
        match into.iter_mut().find(|(known, _)| *known == stream) {
            Some((_, reached)) => *reached = position.max(*reached),
            None => into.push((stream, position)),
        }
    }
}

impl Timeline {
    /// No streams and no events yet.
    pub fn new(completion: Completion) -> Self {
        Self { completion, host_pace: 1.0, ..Self::default() }
    }

    /// Queries of workers whose answer depends on how fast the GPU is.
    pub fn contested(&self) -> u64 {
        self.contested
    }

    /// Time by the host's clock, in nanoseconds.
    pub fn host_ns(&self) -> u64 {
        self.host.0[0]
    }

    /// When the host is through with what it did so far, and every stream with what was queued: in nanoseconds, by the
    /// host's clock. Only ever grows.
    pub fn all_done_ns(&self) -> u64 {
        let streams = self.streams.values().map(|stream| stream.busy_until.0[0]);
        streams.fold(self.host_ns(), u64::max)
    }

    /// The host of a real GPU needs `pace` times as long as this machine's processor.
    pub fn set_host_pace(&mut self, pace: f64) {
        self.host_pace = pace;
    }

    /// The program has used so much of the processor in all, in nanoseconds.
    pub fn work_until(&mut self, processor_ns: u64) {
        let used = processor_ns.saturating_sub(self.processor_ns) as f64;
        self.host = self.host.later((used * self.host_pace) as u64);
        self.processor_ns = self.processor_ns.max(processor_ns);
    }

    /// So much of the processor's time, in nanoseconds, was used for what the host of a real GPU does not do.
    pub fn leave_out(&mut self, processor_ns: u64) {
        self.processor_ns += processor_ns;
    }

    /// The host of a real GPU is busy for `ns`, with what takes none of this machine's processor.
    pub fn spend(&mut self, ns: u64) {
        self.host = self.host.later(ns);
    }

    /// Work that takes the GPU `ns` is queued on a stream.
    pub fn queue(&mut self, stream: u64, ns: u64) {
        let stream = self.streams.entry(stream).or_default();
        stream.position += 1;
        stream.busy_until = stream.busy_until.max(self.host).after(ns);
    }

    /// `cudaEventRecord`
    pub fn record(&mut self, event: u64, stream: u64) {
        self.queue(stream, 0);
        let queued = &self.streams[&stream];
        let mut marks = queued.seen.clone();
        merge(&mut marks, &[(stream, queued.position)]);
        self.events.insert(event, Event { marks, at: queued.busy_until });
    }

    /// `cudaStreamWaitEvent`
    pub fn wait(&mut self, stream: u64, event: u64) {
        self.queue(stream, 0);
        if let (Some(event), Some(stream)) =
            (self.events.get(&event), self.streams.get_mut(&stream))
        {
            merge(&mut stream.seen, &event.marks);
            stream.busy_until = stream.busy_until.max(event.at);
        }
    }

    /// `cudaEventQuery`: whether the event has completed. One that was never recorded has.
    pub fn is_reached(&mut self, event: u64, asker: Asker) -> bool {
        let Some(event) = self.events.get(&event) else { return true };
        if self.is_done(&event.marks) {
            return true;
        }
        let at = event.at;
        self.choose(at, asker)
    }

    /// `cudaStreamQuery`: whether all that was queued is done.
    pub fn is_idle(&mut self, stream: u64, asker: Asker) -> bool {
        let Some(found) = self.streams.get(&stream) else { return true };
        let (done, at) = (self.is_done(&[(stream, found.position)]), found.busy_until);
        done || self.choose(at, asker)
    }

    /// `cudaEventSynchronize`
    pub fn wait_for_event(&mut self, event: u64) {
        if let Some(Event { marks, at }) = self.events.get(&event).cloned() {
            self.reach(&marks, at);
        }
    }

    /// `cudaStreamSynchronize`
    pub fn wait_for_stream(&mut self, stream: u64) {
        if let Some(found) = self.streams.get(&stream) {
            let mut marks = found.seen.clone();
            merge(&mut marks, &[(stream, found.position)]);
            self.reach(&marks, found.busy_until);
        }
    }

    /// `cudaDeviceSynchronize`, for all devices.
    pub fn wait_for_all(&mut self) {
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        for stream in streams {
            self.wait_for_stream(stream);
        }
    }

    /// `cudaEventElapsedTime`: milliseconds from one event to another, by the clock.
    pub fn elapsed_ms(&self, from: u64, to: u64) -> f32 {
        let at = |event| self.events.get(&event).map_or(0, |event: &Event| event.at.0[0]);
        ((at(to) as f64 - at(from) as f64) / 1e6) as f32
    }

    /// `cudaEventDestroy`
    pub fn forget_event(&mut self, event: u64) {
        self.events.remove(&event);
    }

    fn is_done(&self, marks: &[(u64, u64)]) -> bool {
        let done = |&(stream, position): &(u64, u64)| {
            self.done.get(&stream).is_some_and(|&done| position <= done)
        };
        marks.iter().all(done)
    }

    /// Whether a moment that was not waited for counts as past.
    fn choose(&mut self, at: Moment, asker: Asker) -> bool {
        let [clock, fast, slow] = at.passed(self.host);
        let differ = fast != clock || slow != clock;
        self.contested += u64::from(differ && asker == Asker::Worker);
        match self.completion {
            Completion::Early => true,
            Completion::Late => false,
            Completion::Clock => clock,
            Completion::Fast => fast,
            Completion::Slow => slow,
        }
    }

    fn reach(&mut self, marks: &[(u64, u64)], at: Moment) {
        self.host = self.host.max(at);
        for &(stream, position) in marks {
            let done = self.done.entry(stream).or_default();
            *done = position.max(*done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Asker::{Watcher, Worker};
    use super::*;

    const LONG: u64 = 1_000_000_000;

    fn after_a_kernel(completion: Completion) -> Timeline {
        let mut timeline = Timeline::new(completion);
        timeline.queue(1, LONG);
        timeline.record(7, 1);
        timeline
    }

    #[test]
    fn the_clock_lies_between_early_and_late() {
        assert!(after_a_kernel(Completion::Early).is_reached(7, Worker));
        assert!(!after_a_kernel(Completion::Late).is_reached(7, Worker));
        let mut timeline = after_a_kernel(Completion::Clock);
        assert!(!timeline.is_reached(7, Worker));
        timeline.work_until(LONG);
        timeline.work_until(LONG / 2);
        assert_eq!(timeline.host_ns(), LONG);
        assert!(timeline.is_reached(7, Worker));
        timeline.set_host_pace(0.5);
        timeline.work_until(3 * LONG);
        assert_eq!(timeline.host_ns(), 2 * LONG);
    }

    #[test]
    fn what_a_real_host_does_not_do_takes_it_no_time() {
        let mut timeline = Timeline::new(Completion::Clock);
        timeline.work_until(10);
        timeline.leave_out(25);
        timeline.work_until(40);
        assert_eq!(timeline.host_ns(), 15);
        timeline.work_until(50);
        timeline.spend(100);
        assert_eq!(timeline.host_ns(), 125, "a call of a real GPU takes none of this processor");
    }

    #[test]
    fn a_query_is_contested_if_a_faster_or_slower_gpu_would_answer_otherwise() {
        for (host, contested) in
            [(LONG / 3 - 1, 0), (LONG / 3, 1), (LONG * 7 / 5 - 1, 1), (LONG * 7 / 5, 0)]
        {
            let mut timeline = after_a_kernel(Completion::Clock);
            timeline.work_until(host);
            timeline.is_reached(7, Watcher);
            assert_eq!(timeline.contested(), 0);
            timeline.is_reached(7, Worker);
            assert_eq!(timeline.contested(), contested, "{host}");
        }
    }

    #[test]
    fn what_the_program_waited_for_is_not_contested() {
        for wait in [
            Timeline::wait_for_event as fn(&mut Timeline, u64),
            |timeline, _| timeline.wait_for_stream(1),
            |timeline, _| timeline.wait_for_all(),
        ] {
            let mut timeline = after_a_kernel(Completion::Late);
            wait(&mut timeline, 7);
            assert!(timeline.is_reached(7, Worker) && timeline.contested() == 0);
            assert!(timeline.host_ns() >= LONG);
        }
    }

    #[test]
    fn a_wait_for_a_stream_covers_what_the_stream_waited_for() {
        let mut timeline = after_a_kernel(Completion::Late);
        timeline.wait(2, 7);
        timeline.wait_for_stream(2);
        assert!(timeline.is_reached(7, Worker) && timeline.host_ns() >= LONG);
        timeline.queue(1, LONG);
        timeline.record(8, 1);
        assert!(!timeline.is_reached(8, Worker), "what came later is still open");
    }

    #[test]
    fn a_fast_gpu_needs_less_time_and_a_slow_one_more() {
        let reached = |completion, host| {
            let mut timeline = after_a_kernel(completion);
            timeline.work_until(host);
            timeline.is_reached(7, Worker)
        };
        let paces = [(Completion::Fast, LONG / 3), (Completion::Slow, LONG * 7 / 5)];
        for (completion, ns) in paces {
            assert!(!reached(completion, ns - 1) && reached(completion, ns));
        }
    }

    #[test]
    fn all_is_done_when_the_host_and_the_slowest_stream_are() {
        let mut timeline = after_a_kernel(Completion::Early);
        timeline.queue(2, 3 * LONG);
        assert_eq!(timeline.all_done_ns(), 3 * LONG);
        timeline.work_until(2 * LONG);
        assert_eq!(timeline.all_done_ns(), 3 * LONG, "the host is ahead");
        timeline.work_until(5 * LONG);
        assert_eq!(timeline.all_done_ns(), 5 * LONG, "the GPU waits for the host");
    }

    #[test]
    fn time_between_events_is_that_of_the_work_between_them() {
        let mut timeline = after_a_kernel(Completion::Clock);
        timeline.queue(1, 5_000_000);
        timeline.record(8, 1);
        assert!((timeline.elapsed_ms(7, 8) - 5.0).abs() < 0.01);
        assert!(timeline.is_reached(99, Worker), "an event that was never recorded");
    }
}
