//! What is measured of a run, read between stretches of its events, so that the event loop stays as fast as it can be:
//!
//! ```text
//!   events    ├──────────────────────────────────────────────────────┤
//!   steps          ├───── 1 ─────┤├───── 2 ──────┤├───── 3 ─────┤          calls and counters at the borders
//!   buckets   ├──┤├──┤├──┤├──┤├──┤├──┤├──┤├──┤├──┤├──┤├──┤├──┤├──┤├──┤     highest usage, for the plots
//!   stretches ├──┤├┤├┤├──┤├──┤├─┤├┤ ...
//! ```

use crate::allocator::{Allocator, Counter, Held, Usage};
use crate::device::{Bill, CallCounts, FenceCounts};
use crate::run::{StepSummary, Timeline};
use crate::simulation::{Extremes, Range, Simulated};
use crate::trace::Trace;

/// Calls so far, and what they have cost.
#[derive(Debug, Clone, Copy)]
struct Reading {
    calls: CallCounts,
    fences: FenceCounts,
    bill: Bill,
}

fn reading(device: &Simulated) -> Reading {
    let (counted, priced, _) = &device.watch;
    Reading { calls: counted.calls, fences: counted.fences, bill: priced.bill }
}

/// The step that is under way: where it began, and what stood on the counters then.
struct OpenStep {
    start: usize,
    end: usize,
    highest: Held,
    calls: Reading,
    counters: Vec<Counter>,
}

/// Reads calls, counters and usage between the stretches of a run.
pub(super) struct Meter<'t> {
    trace: &'t Trace,
    pub(super) extremes: Extremes,
    pub(super) timeline: Timeline,
    pub(super) steps: Vec<StepSummary>,
    open: Option<OpenStep>,
    is_priced: bool,
}

impl<'t> Meter<'t> {
    /// A meter for a run in which `before` events count as carried out, with `usage` as their result.
    pub(super) fn new(trace: &'t Trace, usage: Usage, before: usize, is_priced: bool) -> Self {
        let last = trace.events.len().saturating_sub(1) as u64;
        let end = if trace.span_us() > 0 { trace.span_us() } else { last };
        let mut timeline = Timeline::new(end, usage);
        if before > 0 {
            timeline.push(0, Range::of(usage), usage);
        }
        let extremes = Extremes::new(usage);
        Self { trace, extremes, timeline, steps: Vec::new(), open: None, is_priced }
    }

    /// Where an event lies on the timeline's axis.
    fn place(&self, event: usize) -> u64 {
        if self.trace.span_us() > 0 { self.trace.times_us[event] } else { event as u64 }
    }

    /// The first event after `start` that lies in a later bucket.
    fn bucket_end(&self, start: usize) -> usize {
        let border = self.timeline.border_after(self.place(start));
        match self.trace.span_us() {
            0 => border as usize,
            _ => self.trace.first_at(border, start),
        }
    }

    /// Opens the next step, if it begins at event `at`, or began in what was restored before the first event.
    pub(super) fn begin(&mut self, at: usize, allocator: &dyn Allocator, device: &Simulated) {
        let next = self.trace.steps.get(self.steps.len()).filter(|_| self.open.is_none());
        let Some(step) = next.filter(|step| step.start <= at && step.end > at) else { return };
        let (highest, counters) = (Held::of(allocator.usage()), allocator.counters());
        let calls = reading(device);
        self.open = Some(OpenStep { start: step.start, end: step.end, highest, calls, counters });
    }

    /// The next border of a bucket or a step after `start`.
    pub(super) fn stretch_end(&self, start: usize) -> usize {
        let next_step = self.trace.steps.get(self.steps.len()).map(|step| step.start);
        let border = self.open.as_ref().map(|open| open.end).or(next_step);
        let step_border = border.filter(|&at| at > start).unwrap_or(usize::MAX);
        self.bucket_end(start).min(step_border).min(self.trace.events.len())
    }

    /// Takes note of the stretch that was carried out, after which the run may be over.
    pub(super) fn end(
        &mut self,
        stretch: std::ops::Range<usize>,
        is_over: bool,
        allocator: &dyn Allocator,
        device: &Simulated,
    ) {
        let now = allocator.usage();
        let seen = self.extremes.take(now);
        self.timeline.push(self.place(stretch.start), seen, now);
        let Some(mut open) = self.open.take() else { return };
        open.highest = open.highest.max(seen.high);
        if is_over || open.end <= stretch.end {
            self.steps.push(open.close(stretch.end, allocator, reading(device), self.is_priced));
        } else {
            self.open = Some(open);
        }
    }
}

impl OpenStep {
    fn close(
        self,
        end: usize,
        allocator: &dyn Allocator,
        calls: Reading,
        is_priced: bool,
    ) -> StepSummary {
        // The counters come in a fixed order. One that is a level and not a sum may have fallen.
        let before = self.counters.iter().map(|&(_, count)| count).chain(std::iter::repeat(0));
        let since = |((name, count), before): (Counter, u64)| {
            (name.to_owned(), count.saturating_sub(before))
        };
        StepSummary {
            start_event: self.start as u64,
            end_event: end as u64,
            active_peak_bytes: self.highest.active,
            reserved_peak_bytes: self.highest.reserved,
            device_calls: calls.calls - self.calls.calls,
            fence_calls: calls.fences - self.calls.fences,
            predicted_driver_ns: is_priced
                .then(|| (calls.bill.nanos - self.calls.bill.nanos).into()),
            allocator_counters: allocator.counters().into_iter().zip(before).map(since).collect(),
        }
    }
}
