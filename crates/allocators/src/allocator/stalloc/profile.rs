//! From a profile to a plan: three iterations of a job, each request in the class that its lifetime puts it in.
//!
//! ```text
//!   requested in    freed in     class              place
//!   set-up          the end      weights            stacked from the bottom
//!   iteration 0     the end      optimizer states   stacked on those
//!   set-up          set-up       initialisation     stacked where the optimizer states come later
//!   set-up          iterations   unreleased         not in the plan
//!   iteration 0, 1  other        activations        planned (layers), on top
//! ```
//!
//! From `Synthesizer/trace_parser.py` and `plan_generator.py`.

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::layers::{Block, Period, place};
use crate::holes::gaps;
use gmlake_core::program::Lifetime;
use gmlake_core::units::{Bytes, round_up};

/// Requests up to this have an allocator of their own; everything is aligned to it.
pub(super) const UNIT: Bytes = 512;
/// Iterations that are profiled.
const ITERATIONS: usize = 3;

/// Where the requests above 512 bytes go, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    /// Of the set-up and iteration 0, and then of iteration 1, which is repeated.
    pub(super) entries: Vec<Entry>,
    /// Number of the first entry of iteration 1.
    pub(super) first: usize,
    /// Numbers of requests, counted from the beginning of the job, that are not in the plan.
    pub(super) unreleased: FxHashSet<usize>,
    /// Bytes that the plan takes.
    pub(super) size: Bytes,
    /// The most bytes in use by small requests, in blocks.
    pub(super) small: Bytes,
}

/// One request of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// Its place, and the size that it must have.
    Fixed { offset: Bytes, size: Bytes },
    /// A request whose size changes: what the plan leaves free for as long as it lived in the profile.
    Varied { spare: Vec<Range<Bytes>> },
}

/// A request of the profile; the tail is iteration `usize::MAX`, the set-up `None`.
#[derive(Debug, Clone, Copy)]
struct Tensor {
    /// Its number among those above 512 bytes.
    number: usize,
    size: Bytes,
    start: usize,
    end: usize,
    from: Option<usize>,
    to: Option<usize>,
    class: Class,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Weight,
    Optimizer,
    Initial,
    Unreleased,
    Activation,
    Varied,
}

const TAIL: Option<usize> = Some(usize::MAX);

/// The plan for a job, from its set-up and first three iterations; none if it has fewer than two.
pub(super) fn plan(lives: &[Lifetime]) -> Option<Plan> {
    let steps = lives.iter().map(|life| life.step).max().unwrap_or(0);
    // The last step that a request is in may be what comes after the last whole one.
    let end = ITERATIONS.min(steps.saturating_sub(1));
    if end < 2 {
        return None;
    }
    let profile: Vec<&Lifetime> = lives.iter().take_while(|life| life.step <= end).collect();
    let mut tensors = tensors(&profile, lives[profile.len()..].first());
    mark_varied(&mut tensors);
    let mut plan = Plan { small: small_usage(&profile), ..Plan::default() };
    let offsets = offsets(&tensors, &mut plan.size);
    let spares = Spares { tensors: &tensors, offsets: &offsets, size: plan.size };
    for tensor in tensors.iter().filter(|tensor| tensor.from < Some(2)) {
        if tensor.class == Class::Unreleased {
            plan.unreleased.insert(tensor.number);
            continue;
        }
        plan.first += usize::from(tensor.from < Some(1));
        plan.entries.push(match offsets[tensor.number] {
            Some(offset) => Entry::Fixed { offset, size: tensor.size },
            None => Entry::Varied { spare: spares.during(tensor) },
        });
    }
    (plan.first < plan.entries.len()).then_some(plan)
}

/// The requests above 512 bytes, by their iterations. What lives on after the profile is freed in its tail.
fn tensors(profile: &[&Lifetime], next: Option<&Lifetime>) -> Vec<Tensor> {
    let last = profile.last().map_or(0, |life| life.lower);
    let tail = next.map_or(last + 1, |life| life.lower);
    let iteration = |event: usize| {
        let begun = profile.partition_point(|life| life.lower <= event);
        begun.checked_sub(1).and_then(|last| profile[last].step.checked_sub(1))
    };
    let tensor = |(number, life): (usize, &&Lifetime)| {
        let from = life.step.checked_sub(1);
        let to = if life.upper >= tail { TAIL } else { iteration(life.upper) };
        // Moments begin with 1. What failed in the recording is tried, and given back at once.
        let end = life.upper.min(tail).max(life.lower + 1) + 1;
        let class = class(from, to);
        Tensor { number, size: life.size, start: life.lower + 1, end, from, to, class }
    };
    profile.iter().filter(|life| life.size > UNIT).enumerate().map(tensor).collect()
}

fn class(from: Option<usize>, to: Option<usize>) -> Class {
    match (from, to) {
        (None, TAIL) => Class::Weight,
        (None, None) => Class::Initial,
        (None, _) => Class::Unreleased,
        (Some(0), TAIL) => Class::Optimizer,
        _ => Class::Activation,
    }
}

/// Requests of iteration 1 that have another size in iteration 2, if both have equally many.
fn mark_varied(tensors: &mut [Tensor]) {
    let of = |iteration: usize| {
        let all = tensors.iter().enumerate();
        all.filter(move |(_, tensor)| tensor.from == Some(iteration)).map(|(at, _)| at)
    };
    let (ones, twos): (Vec<usize>, Vec<usize>) = (of(1).collect(), of(2).collect());
    if ones.len() == twos.len() {
        for (one, two) in ones.into_iter().zip(twos) {
            if tensors[one].size != tensors[two].size {
                tensors[one].class = Class::Varied;
            }
        }
    }
}

/// The offset of each tensor that has one, by its number.
fn offsets(tensors: &[Tensor], size: &mut Bytes) -> Vec<Option<Bytes>> {
    let mut offsets = vec![None; tensors.len()];
    let mut stack = |class: Class, mut at: Bytes| {
        for tensor in tensors.iter().filter(|tensor| tensor.class == class) {
            offsets[tensor.number] = Some(at);
            at += round_up(tensor.size, UNIT);
        }
        at
    };
    let weights = stack(Class::Weight, 0);
    let resident = stack(Class::Optimizer, weights);
    stack(Class::Initial, weights);
    let planned = |tensor: &&Tensor| tensor.class == Class::Activation && tensor.from < Some(2);
    let activations: Vec<&Tensor> = tensors.iter().filter(planned).collect();
    let blocks: Vec<Block> = activations
        .iter()
        .map(|&&Tensor { start, end, size, .. }| Block { start, end, size: round_up(size, UNIT) })
        .collect();
    let (places, height) = place(&blocks, period(&activations));
    for (tensor, at) in activations.iter().zip(places) {
        offsets[tensor.number] = Some(resident + at);
    }
    *size = resident + height;
    offsets
}

/// Iteration 1: from its first request to its last free.
fn period(activations: &[&Tensor]) -> Period {
    let from = activations.iter().filter(|tensor| tensor.from == Some(1));
    let to = activations.iter().filter(|tensor| tensor.to == Some(1));
    let start = from.map(|tensor| tensor.start).min().unwrap_or(0);
    let end = to.map(|tensor| tensor.end).max().unwrap_or(start);
    Period { start, length: end.saturating_sub(start) }
}

/// What a plan leaves free.
struct Spares<'t> {
    tensors: &'t [Tensor],
    offsets: &'t [Option<Bytes>],
    size: Bytes,
}

impl Spares<'_> {
    /// Ranges that nothing of the plan is in while a tensor lives (`get_spare_addr`).
    fn during(&self, tensor: &Tensor) -> Vec<Range<Bytes>> {
        let lives = |other: &&Tensor| other.start < tensor.end && other.end > tensor.start;
        let taken = self.tensors.iter().filter(lives).filter_map(|other| {
            let at = self.offsets[other.number]?;
            Some((at, round_up(other.size, UNIT)))
        });
        let mut taken: Vec<_> = taken.collect();
        taken.sort_unstable();
        gaps(0..self.size, taken)
    }
}

/// The most bytes that small requests hold at a time, each in a block of 512.
fn small_usage(profile: &[&Lifetime]) -> Bytes {
    let small = profile.iter().filter(|life| life.size <= UNIT);
    let mut changes: Vec<(usize, i64)> =
        small.flat_map(|life| [(life.lower, 1), (life.upper.max(life.lower + 1), -1)]).collect();
    changes.sort_unstable();
    let mut now = 0;
    let most = changes.iter().map(|(_, change)| {
        now += change;
        now
    });
    most.max().unwrap_or(0) as Bytes * UNIT
}
