//! Made-up traces: scripts of random operations, and three kinds of program, each determined by its seed.
//!
//! A [`Script`] is how tests, the fuzz target and the generators here write a trace: it knows which allocations are
//! live, so that any sequence of [`Op`]s, drawn by whatever means, becomes a trace in which every free is of something
//! live. The generators imitate three programs:
//!
//! ```text
//!   training       churn            adversarial
//!     ▁▃▅▇▅▃▁        random sizes      █ █ █ █      a comb of frees, then requests that
//!     steps of       and lifetimes,    ███████      are a little larger than any tooth;
//!     forward and    streams           █ █ █ █      sizes that creep upwards
//!     backward
//! ```

use super::{AllocId, Event, EventKind, PoolId, Step, StreamId, Trace};
use crate::units::{Bytes, GIB, KIB, MIB};

/// SplitMix64 (Steele, Lea, Flood 2014): a small generator of random numbers that any seed starts well.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Every seed is as good as any other.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be zero. (The bias of the remainder is far below what matters here.)
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// A size between `low` and about `high`, every power of two as likely as any other.
    pub fn size(&mut self, low: Bytes, high: Bytes) -> Bytes {
        let shift = self.below(u64::from((high / low).max(1).ilog2()) + 1);
        low.saturating_mul(1 << shift) + self.below(low << shift)
    }
}

/// One operation of a random script. Numbers pick one of what is there, modulo how much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// A request.
    Malloc(Bytes, StreamId, PoolId),
    /// A request that is given back at once if it is served.
    Attempt(Bytes, StreamId),
    /// A free of a live allocation.
    Free(u32),
    /// A free of a live allocation that other streams still use.
    FreeRequested(u32),
    /// Its completion.
    FreeCompleted(u32),
    /// `empty_cache`.
    Trim,
    /// The release of a private pool.
    ReleasePool(PoolId),
}

/// A trace under construction.
#[derive(Debug, Clone, Default)]
pub struct Script {
    trace: Trace,
    held: Vec<Event>,
    pending: Vec<Event>,
    pools: Vec<PoolId>,
    released: Vec<PoolId>,
}

impl Script {
    /// A trace of these operations in which everything is given back in the end.
    pub fn trace_of(ops: &[Op]) -> Trace {
        let mut script = Self::default();
        ops.iter().for_each(|&op| script.apply(op));
        script.finish()
    }

    /// Adds an operation. One that has nothing to pick from is left out; a request from a pool that was released goes
    /// to the default one, since programs do not use a pool after its release.
    pub fn apply(&mut self, op: Op) {
        match op {
            Op::Malloc(size, stream, pool) => {
                self.malloc(size, stream, pool);
            }
            Op::Attempt(size, stream) => {
                let (kind, pool) = (EventKind::Attempt, PoolId::DEFAULT);
                self.push(Event { size, alloc: AllocId(u32::MAX), stream, kind, pool });
            }
            Op::Free(pick) => self.release(pick, EventKind::Free),
            Op::FreeRequested(pick) => self.release(pick, EventKind::FreeRequested),
            Op::FreeCompleted(pick) => {
                if !self.pending.is_empty() {
                    let event = self.pending.remove(pick as usize % self.pending.len());
                    self.push(Event { kind: EventKind::FreeCompleted, ..event });
                }
            }
            Op::Trim => self.trim(PoolId::DEFAULT),
            Op::ReleasePool(pool) => {
                if let Some(at) = self.pools.iter().position(|&known| known == pool) {
                    self.released.push(self.pools.swap_remove(at));
                    self.trim(pool);
                }
            }
        }
    }

    /// A request; the number can be given to [`Script::free`].
    pub fn malloc(&mut self, size: Bytes, stream: StreamId, pool: PoolId) -> AllocId {
        let pool = if self.released.contains(&pool) { PoolId::DEFAULT } else { pool };
        if pool != PoolId::DEFAULT && !self.pools.contains(&pool) {
            self.pools.push(pool);
        }
        let alloc = AllocId(self.trace.allocs);
        self.trace.allocs += 1;
        let event = Event { size, alloc, stream, kind: EventKind::Malloc, pool };
        self.held.push(event);
        self.push(event);
        alloc
    }

    /// A free of the allocation with this number, if it is live. The most recent are found fastest.
    pub fn free(&mut self, alloc: AllocId) {
        if let Some(at) = self.held.iter().rposition(|event| event.alloc == alloc) {
            let event = self.held.remove(at);
            self.push(Event { kind: EventKind::Free, ..event });
        }
    }

    /// Gives everything back, and ends the trace.
    pub fn finish(mut self) -> Trace {
        while !self.pending.is_empty() {
            self.apply(Op::FreeCompleted(0));
        }
        while !self.held.is_empty() {
            self.apply(Op::Free(0));
        }
        for pool in std::mem::take(&mut self.pools) {
            self.trim(pool);
        }
        self.trim(PoolId::DEFAULT);
        let streams = self.trace.events.iter().map(|event| event.stream.0).max();
        self.trace.streams = (0..=u64::from(streams.unwrap_or(0))).collect();
        self.trace
    }

    /// Events so far.
    pub fn len(&self) -> usize {
        self.trace.events.len()
    }

    /// Whether there are no events yet.
    pub fn is_empty(&self) -> bool {
        self.trace.events.is_empty()
    }

    /// Live allocations, those with a free under way not counted.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    fn release(&mut self, pick: u32, kind: EventKind) {
        if self.held.is_empty() {
            return;
        }
        let event = self.held.remove(pick as usize % self.held.len());
        if kind == EventKind::FreeRequested {
            self.pending.push(event);
        }
        self.push(Event { kind, ..event });
    }

    fn trim(&mut self, pool: PoolId) {
        let (kind, stream) = (EventKind::Trim, StreamId(0));
        self.push(Event { size: 0, alloc: AllocId(u32::MAX), stream, kind, pool });
    }

    fn push(&mut self, event: Event) {
        self.trace.times_us.push(self.trace.events.len() as u64);
        self.trace.events.push(event);
    }
}

/// Kinds of made-up program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Fine-tuning of a transformer with sequences of varying length.
    Training,
    /// Random sizes and lifetimes on a few streams.
    Churn,
    /// Made to fragment.
    Adversarial,
}

impl Program {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Training, Self::Churn, Self::Adversarial];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Churn => "churn",
            Self::Adversarial => "adversarial",
        }
    }

    /// A trace of at least `events` events. The same seed makes the same trace.
    pub fn generate(self, seed: u64, events: usize) -> Trace {
        let mut random = SplitMix64::new(seed);
        match self {
            Self::Training => training(&mut random, events),
            Self::Churn => churn(&mut random, events),
            Self::Adversarial => adversarial(&mut random, events),
        }
    }
}

const MAIN: StreamId = StreamId(0);
const SIDE: StreamId = StreamId(1);

/// Weights that stay; in each step activations that pile up over the layers and go in reverse, short-lived work
/// space, and one gradient bucket in flight on a side stream.
fn training(random: &mut SplitMix64, events: usize) -> Trace {
    const LAYERS: u64 = 24;
    let mut script = Script::default();
    let hidden = 1024 << random.below(3);
    for _ in 0..LAYERS {
        for share in [4, 4, 1, 3] {
            script.malloc(share * hidden * hidden * 2, MAIN, PoolId::DEFAULT);
        }
        script.malloc(hidden * 2, MAIN, PoolId::DEFAULT);
    }
    let mut steps = Vec::new();
    while script.len() < events {
        let start = script.len();
        let tokens = 8 * (128 + random.below(1920));
        let activations: Vec<_> =
            (0..LAYERS).map(|_| forward(&mut script, tokens, hidden)).collect();
        for saved in activations.into_iter().rev() {
            backward(&mut script, saved, tokens, hidden);
        }
        script.apply(Op::FreeCompleted(0));
        steps.push(Step { start, end: script.len() });
    }
    Trace { steps, ..script.finish() }
}

/// One layer forwards: what the backward pass needs is kept, the rest goes.
fn forward(script: &mut Script, tokens: u64, hidden: u64) -> Vec<AllocId> {
    let mut get = |size| script.malloc(size, MAIN, PoolId::DEFAULT);
    let kept = vec![get(tokens * hidden * 2), get(tokens * hidden * 6), get(tokens * 4)];
    let scores = get(tokens * 128);
    let wide = get(tokens * hidden * 8);
    script.free(scores);
    script.free(wide);
    kept
}

/// One layer backwards: gradients, then a bucket that the side stream reduces while the next layer runs.
fn backward(script: &mut Script, saved: Vec<AllocId>, tokens: u64, hidden: u64) {
    let gradient = script.malloc(tokens * hidden * 2, MAIN, PoolId::DEFAULT);
    let wide = script.malloc(tokens * hidden * 8, MAIN, PoolId::DEFAULT);
    saved.into_iter().for_each(|alloc| script.free(alloc));
    script.free(wide);
    script.free(gradient);
    script.apply(Op::FreeCompleted(0));
    script.malloc(4 * hidden * hidden, SIDE, PoolId::DEFAULT);
    let newest = script.held() as u32 - 1;
    script.apply(Op::FreeRequested(newest));
}

/// Sizes from 1 byte to 256 MiB, about two hundred live at a time, a tenth of the frees deferred, rare flushes.
fn churn(random: &mut SplitMix64, events: usize) -> Trace {
    let mut script = Script::default();
    while script.len() < events {
        let pick = random.bits() as u32;
        let stream = StreamId(random.below(3) as u16);
        match random.below(1000) {
            0 => script.apply(Op::Trim),
            1..60 => script.apply(Op::FreeRequested(pick)),
            60..120 => script.apply(Op::FreeCompleted(pick)),
            roll if script.held() < 100 || (roll < 560 && script.held() < 300) => {
                let size = random.size(1, 256 * MIB);
                script.apply(Op::Malloc(size, stream, PoolId::DEFAULT));
            }
            _ => script.apply(Op::Free(pick)),
        }
    }
    script.finish()
}

/// Rounds of: fill with teeth of one size, free every other one, ask for more than a tooth; sizes creep upwards.
fn adversarial(random: &mut SplitMix64, events: usize) -> Trace {
    let mut script = Script::default();
    let mut tooth = random.size(2 * MIB, 8 * MIB);
    while script.len() < events {
        let get = |script: &mut Script, size| script.malloc(size, MAIN, PoolId::DEFAULT);
        let comb: Vec<_> = (0..64).map(|_| get(&mut script, tooth)).collect();
        comb.iter().step_by(2).for_each(|&alloc| script.free(alloc));
        let larger: Vec<_> = (1..=24)
            .map(|n| get(&mut script, tooth + n * (512 + random.below(64 * KIB))))
            .collect();
        comb.iter().skip(1).step_by(2).for_each(|&alloc| script.free(alloc));
        let whole = get(&mut script, tooth * 48);
        larger.into_iter().chain([whole]).for_each(|alloc| script.free(alloc));
        tooth = if tooth > GIB / 4 { 2 * MIB } else { tooth + tooth / 7 + random.below(MIB) };
    }
    script.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each free is of something live, and nothing is live in the end.
    fn assert_closed(trace: &Trace) {
        let mut state = vec![None; trace.allocs as usize];
        for event in &trace.events {
            let id = event.alloc.0 as usize;
            let (expected, next) = match event.kind {
                EventKind::Malloc => (None, Some(EventKind::Malloc)),
                EventKind::Free => (Some(EventKind::Malloc), Some(EventKind::Free)),
                EventKind::FreeRequested => {
                    (Some(EventKind::Malloc), Some(EventKind::FreeRequested))
                }
                EventKind::FreeCompleted => (Some(EventKind::FreeRequested), Some(EventKind::Free)),
                EventKind::Attempt | EventKind::Trim => continue,
            };
            assert_eq!(state[id], expected, "{event:?}");
            state[id] = next;
        }
        assert!(state.iter().all(|&last| last == Some(EventKind::Free)));
        assert_eq!(trace.times_us.len(), trace.events.len());
    }

    #[test]
    fn programs_are_closed_and_follow_from_their_seed() {
        for program in Program::ALL {
            let trace = program.generate(1, 5000);
            assert!((5000..20_000).contains(&trace.events.len()), "{program:?}");
            assert_closed(&trace);
            assert_eq!(trace.events, program.generate(1, 5000).events);
            assert_ne!(trace.events, program.generate(2, 5000).events);
        }
    }

    #[test]
    fn training_has_steps_one_after_the_other() {
        let steps = Program::Training.generate(3, 5000).steps;
        assert!(steps.len() > 3 && steps.windows(2).all(|pair| pair[0].end == pair[1].start));
    }

    #[test]
    fn operations_without_an_object_are_left_out() {
        let pool = PoolId(1);
        let trace = Script::trace_of(&[
            Op::Free(7),
            Op::FreeCompleted(0),
            Op::ReleasePool(pool),
            Op::Malloc(1, MAIN, pool),
            Op::ReleasePool(pool),
            Op::Malloc(2, MAIN, pool),
        ]);
        assert_closed(&trace);
        let kinds: Vec<_> = trace.events.iter().map(|event| (event.kind, event.pool.0)).collect();
        use EventKind::{Free, Malloc, Trim};
        let expected = [(Malloc, 1), (Trim, 1), (Malloc, 0), (Free, 1), (Free, 0), (Trim, 0)];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn splitmix_gives_the_published_numbers() {
        let mut random = SplitMix64::new(1_234_567);
        let first = [(); 3].map(|()| random.bits());
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first, published);
    }
}
