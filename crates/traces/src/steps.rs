//! Steps: where one iteration of the training ends and the next begins.
//!
//! PyTorch's optimizers leave annotations in the recording, and so does the profiler; these are believed. Without them
//! the requests are looked at: training repeats itself, so some runs of request sizes come once in every iteration.
//!
//! ```text
//!   requests    setup..., A B C C C D, A B C C C D, A B C C C D
//!   run "B C"             ▲             ▲             ▲           evenly spaced: once per step
//!   run "C C"               ▲ ▲           ▲ ▲           ▲ ▲       not evenly: repeats inside a step
//! ```
//!
//! Of the runs that come once per step, the one at which least memory is live is taken for the boundary: between two
//! steps the activations are gone. The layers of one forward pass repeat as evenly, but keep nothing for a
//! backward pass. If nothing repeats convincingly, there are no steps.

use rustc_hash::FxHashMap;

use super::{Annotation, Event, EventKind, Records, Step, Trace};

/// The training steps of a trace, in order; events before the first or after the last belong to none. Where only the
/// ends of steps are known, the first step begins with the trace, so that it contains the set-up. `starts` are
/// [`periodic_starts`], if these are known.
pub(super) fn find(records: &Records, trace: &Trace, starts: Option<Vec<usize>>) -> Vec<Step> {
    let steps = annotated(records, &trace.times_us);
    let mut steps = steps.unwrap_or_else(|| {
        let starts = starts.unwrap_or_else(|| periodic_starts(&trace.events));
        periodic_steps(&trace.events, starts)
    });
    steps.retain(|step| step.start < step.end);
    steps
}

/// The steps that PyTorch's optimizers or its profiler noted, if they did; `times_us` are those of the events.
pub(super) fn annotated(records: &Records, times_us: &[u64]) -> Option<Vec<Step>> {
    let origin_us = records.entries.first().map_or(0, |entry| entry.time_us);
    let clock = Clock { times_us, origin_us };
    profiler_steps(&records.annotations, &clock)
        .or_else(|| optimizer_steps(&records.annotations, &clock))
}

/// From moments to events.
struct Clock<'a> {
    times_us: &'a [u64],
    origin_us: u64,
}

impl Clock<'_> {
    /// The first event after a moment. A moment before the recording is its beginning.
    fn event_after(&self, time_us: u64) -> usize {
        match time_us.checked_sub(self.origin_us) {
            Some(time) => self.times_us.partition_point(|&at| at <= time),
            None => 0,
        }
    }
}

/// `ProfilerStep#7` spans a step exactly.
fn profiler_steps(annotations: &[Annotation], clock: &Clock) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut open = None;
    for annotation in annotations.iter().filter(|a| a.name.starts_with("ProfilerStep#")) {
        let at = clock.event_after(annotation.time_us);
        match (annotation.is_start, open.take()) {
            (true, _) => open = Some(at),
            (false, Some(start)) => steps.push(Step { start, end: at }),
            (false, None) => {}
        }
    }
    (steps.len() >= 2).then_some(steps)
}

/// A step ends with its optimizer, and with the freeing of the gradients if that comes next.
fn optimizer_steps(annotations: &[Annotation], clock: &Clock) -> Option<Vec<Step>> {
    let name = step_optimizer(annotations)?;
    let mut calls: Vec<Step> = Vec::new();
    let mut open = None;
    for annotation in annotations {
        let at = clock.event_after(annotation.time_us);
        let (is_step, is_zero) = (annotation.name == name, annotation.name.starts_with(ZERO_GRAD));
        match (annotation.is_start, open) {
            (true, _) if is_step || is_zero => open = Some(at),
            (false, start) if is_step => {
                calls.push(Step { start: start.unwrap_or(at), end: at });
            }
            (false, Some(start)) if is_zero => match calls.last_mut() {
                Some(last) if last.end == start => last.end = at,
                _ => {}
            },
            _ => {}
        }
    }
    // What was recorded before the trace begins (the two have rings of their own) ends at event 0.
    calls.retain(|call| call.end > 0);
    let calls = join_neighbours(calls);
    let starts = std::iter::once(0).chain(calls.iter().map(|call| call.end));
    Some(starts.zip(&calls).map(|(start, call)| Step { start, end: call.end }).collect())
}

const STEP: &str = "Optimizer.step#";
const ZERO_GRAD: &str = "Optimizer.zero_grad#";

/// Of several optimizers that run in every step, the name of the one that ends it: the last.
fn step_optimizer(annotations: &[Annotation]) -> Option<&str> {
    let ends = || annotations.iter().filter(|a| !a.is_start && a.name.starts_with(STEP));
    let count = |name: &str| ends().filter(|end| end.name == name).count();
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for end in ends() {
        if !counts.iter().any(|(name, _)| *name == end.name) && counts.len() < 16 {
            counts.push((&end.name, count(&end.name)));
        }
    }
    let most = counts.iter().map(|&(_, count)| count).max()?;
    let runs_in_every_step = |name: &str| counts.iter().any(|&(n, c)| n == name && 2 * c >= most);
    ends().map(|end| end.name.as_str()).rfind(|name| runs_in_every_step(name))
}

/// Calls with next to nothing between them belong to one step that has several optimizers. What is little is measured
/// against the mean, again after each joining, until nothing changes.
fn join_neighbours(mut calls: Vec<Step>) -> Vec<Step> {
    loop {
        let gap = |pair: &[Step]| pair[1].start.saturating_sub(pair[0].end);
        let total: usize = calls.windows(2).map(gap).sum();
        let little = total / calls.len().saturating_sub(1).max(1) / 10;
        let before = calls.len();
        let mut joined: Vec<Step> = Vec::with_capacity(before);
        for call in calls {
            match joined.last_mut() {
                Some(last) if call.start.saturating_sub(last.end) <= little => last.end = call.end,
                _ => joined.push(call),
            }
        }
        if joined.len() == before {
            return joined;
        }
        calls = joined;
    }
}

/// Requests in a run.
const RUN: usize = 48;
/// A run that comes less often than this proves nothing.
const MIN_REPEATS: usize = 3;
/// This many runs must agree.
const MIN_AGREEING: usize = 16;

/// One request: its event, and the bytes live before it.
struct Mark {
    event: usize,
    live: u64,
    size: u64,
}

/// All occurrences of one run of sizes.
#[derive(Clone, Copy)]
struct Repeats {
    count: usize,
    first: usize,
    last: usize,
    min_gap: usize,
    max_gap: usize,
    min_live: u64,
    max_live: u64,
}

impl Repeats {
    fn new(at: usize, live: u64) -> Self {
        let (min_gap, max_gap) = (usize::MAX, 0);
        Self { count: 1, first: at, last: at, min_gap, max_gap, min_live: live, max_live: live }
    }

    fn again(&mut self, at: usize, live: u64) {
        let gap = at - self.last;
        (self.min_gap, self.max_gap) = (self.min_gap.min(gap), self.max_gap.max(gap));
        (self.min_live, self.max_live) = (self.min_live.min(live), self.max_live.max(live));
        (self.count, self.last) = (self.count + 1, at);
    }

    /// Whether the occurrences are evenly spaced, cover most of the trace, and come back to the same live memory. (The
    /// layers of a model are evenly spaced too, but memory grows from each to the next.)
    fn is_periodic(&self, whole: &Whole) -> bool {
        let span = self.last - self.first;
        self.count >= MIN_REPEATS
            && self.max_gap <= 2 * self.min_gap
            && 2 * (span + span / (self.count - 1)) >= whole.marks
            && self.max_live - self.min_live <= whole.live_range / 8
    }
}

/// What a run is measured against.
struct Whole {
    marks: usize,
    /// Highest live memory less the lowest.
    live_range: u64,
}

/// The events with which the run of requests begins that comes once in every step; none if nothing repeats
/// convincingly. Only requests and frees count.
pub(super) fn periodic_starts(events: &[Event]) -> Vec<usize> {
    let marks = marks(events);
    let runs = runs(&marks);
    let Some(hash) = boundary_run(&runs, &marks) else { return Vec::new() };
    let all = runs.hashes.iter().zip(&marks);
    all.filter(|(run, _)| **run == hash).map(|(_, mark)| mark.event).collect()
}

fn periodic_steps(events: &[Event], starts: Vec<usize>) -> Vec<Step> {
    let Some(&last) = starts.last() else { return Vec::new() };
    let shortest = starts.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(0);
    let tail = events.len() - last;
    // A boundary shortly before the end of the trace ends the last step. Then the first one ends the first step, and
    // what lies before it is not just the set-up.
    let bounds: Vec<usize> = match 2 * tail >= shortest {
        true => starts.into_iter().chain([events.len()]).collect(),
        false => std::iter::once(0).chain(starts).collect(),
    };
    let steps: Vec<Step> =
        bounds.windows(2).map(|pair| Step { start: pair[0], end: pair[1] }).collect();
    if keep_for_backward(events, &steps) { steps } else { Vec::new() }
}

/// Blocks of a training step, at least, that are freed before one that was there before them: those of three layers.
const REVERSED: usize = 3;

/// Whether the steps keep blocks from their first half to their second, as a forward pass does for its backward pass,
/// which needs the last one first. A layer that only computes keeps little, and lets go of it in order.
fn keep_for_backward(events: &[Event], steps: &[Step]) -> bool {
    let reversed = |step: &Step| {
        let begins = kept_over_middle(events, step);
        begins.windows(2).filter(|pair| pair[1] < pair[0]).count()
    };
    steps.iter().map(reversed).sum::<usize>() >= REVERSED * steps.len()
}

/// Where the blocks of a step begin that are live in the middle of it, in the order in which they are freed.
fn kept_over_middle(events: &[Event], step: &Step) -> Vec<usize> {
    let middle = step.start.midpoint(step.end);
    // Requests are numbered one after another.
    let first = events[step.start..middle].iter().find(|event| event.kind == EventKind::Malloc);
    let Some(first) = first.map(|event| event.alloc.0) else { return Vec::new() };
    let mut begins: Vec<Option<usize>> = Vec::new();
    let freed = |begins: &mut [Option<usize>], event: &Event| {
        let is_free = matches!(event.kind, EventKind::Free | EventKind::FreeRequested);
        let place = event.alloc.0.checked_sub(first).filter(|_| is_free)?;
        begins.get_mut(place as usize)?.take()
    };
    for (index, event) in events[step.start..middle].iter().enumerate() {
        match event.kind {
            EventKind::Malloc => begins.push(Some(index)),
            _ => drop(freed(&mut begins, event)),
        }
    }
    events[middle..step.end].iter().filter_map(|event| freed(&mut begins, event)).collect()
}

fn marks(events: &[Event]) -> Vec<Mark> {
    let (mut marks, mut live) = (Vec::new(), 0_u64);
    for (index, event) in events.iter().enumerate() {
        match event.kind {
            EventKind::Malloc => {
                marks.push(Mark { event: index, live, size: event.size });
                live = live.saturating_add(event.size);
            }
            EventKind::Free | EventKind::FreeRequested => live = live.saturating_sub(event.size),
            _ => {}
        }
    }
    marks
}

/// Every run of [`RUN`] sizes in the trace, by its hash.
struct Runs {
    /// Hash of the run that begins at each mark.
    hashes: Vec<u64>,
    repeats: FxHashMap<u64, Repeats>,
}

fn runs(marks: &[Mark]) -> Runs {
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
    let leaving = (0..RUN).fold(1_u64, |power, _| power.wrapping_mul(BASE));
    let digit = |mark: &Mark| mark.size.wrapping_mul(BASE).rotate_left(29) ^ mark.size;
    let mut runs = Runs { hashes: Vec::new(), repeats: FxHashMap::default() };
    let mut hash = 0_u64;
    for (index, mark) in marks.iter().enumerate() {
        hash = hash.wrapping_mul(BASE).wrapping_add(digit(mark));
        if index >= RUN {
            hash = hash.wrapping_sub(digit(&marks[index - RUN]).wrapping_mul(leaving));
        }
        let Some(at) = (index + 1).checked_sub(RUN) else { continue };
        let live = marks[at].live;
        runs.hashes.push(hash);
        let known = runs.repeats.entry(hash);
        known.and_modify(|r| r.again(at, live)).or_insert_with(|| Repeats::new(at, live));
    }
    runs
}

/// The hash of the boundary's run.
fn boundary_run(runs: &Runs, marks: &[Mark]) -> Option<u64> {
    let lives = || marks.iter().map(|mark| mark.live);
    let live_range = lives().max()? - lives().min()?;
    let whole = Whole { marks: marks.len(), live_range };
    let mut votes: FxHashMap<usize, usize> = FxHashMap::default();
    for repeats in runs.repeats.values().filter(|repeats| repeats.is_periodic(&whole)) {
        *votes.entry(repeats.count).or_default() += 1;
    }
    let mut votes: Vec<(usize, usize)> = votes.into_iter().collect();
    votes.retain(|&(_, agreeing)| agreeing >= MIN_AGREEING);
    votes.sort_unstable();
    // Accumulated gradients repeat a part of each step; what comes at most half as often is the step itself.
    let &(best, _) = votes.iter().max_by_key(|&&(count, agreeing)| count * agreeing)?;
    let rarer = votes.iter().filter(|&&(count, _)| 2 * count <= best);
    let count = rarer.max_by_key(|&&(count, agreeing)| count * agreeing).map_or(best, |&(c, _)| c);
    let of_count =
        |(_, repeats): &(&u64, &Repeats)| repeats.count == count && repeats.is_periodic(&whole);
    let all = runs.repeats.iter().filter(of_count);
    all.min_by_key(|(_, repeats)| (repeats.max_live, repeats.first)).map(|(&hash, _)| hash)
}
