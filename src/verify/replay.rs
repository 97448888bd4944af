//! Verification: the model does all again, and every decision is compared with PyTorch's own.
//!
//! Only requests and frees go in, one operation at a time. An operation is a run of entries that one call of PyTorch
//! wrote:
//!
//! ```text
//!   free_completed 0xa…    ┐ streams that were done by now
//!   segment_free   0xb…    │ memory given back, if there was too little         one malloc
//!   segment_alloc  0xc…    │ the driver's answer: handed to the model
//!   alloc          0xc…    ┘ compared with where the model puts it
//! ```
//!
//! After a difference the model is set to the recorded state (see [`state_at`](super::start::state_at)) and goes on
//! behind the operation, so that one slip is counted once.

use std::time::Instant;

use rustc_hash::FxHashMap;

use super::device::{Problem, RecordedDevice};
use super::ending::differing_segments;
use super::entries::{describe, ends_operation, first_growth};
use super::flusher::{Flushers, flushers};
use super::lifetimes::{Lifetimes, MemPools, inferred_pool};
use super::limits::Bounds;
use super::start::{StartState, state_at};
use super::verification::{Difference, HOPELESS, Refused, Verification};
use crate::allocator::{AllocError, Allocator, BlockId, Caching, Environment, Request, Usage};
use crate::device::{Counted, Watched};
use crate::run::Timeline;
use crate::simulation::Range;
use crate::trace::{Action, BlockState, Entry, Layout, PoolId, Records, Segment, StartBlock};
use crate::units::Bytes;

/// A recording with what it says by itself, worked out once for all replays of it.
pub(super) struct Recorded<'a> {
    /// The recording.
    pub records: &'a Records,
    /// What it ran under.
    pub environment: &'a Environment,
    /// What was held when it began.
    pub start: StartState,
    /// What a memory limit lies between.
    pub bounds: Bounds,
    /// Who emptied the cache, where that is proven.
    pub flushers: Flushers,
}

impl<'a> Recorded<'a> {
    pub(super) fn new(records: &'a Records, environment: &'a Environment) -> Self {
        let start = state_at(records, 0, &environment.conf);
        let held = start.layout.segments.iter().map(|segment| segment.size).sum();
        let bounds = Bounds::new(&records.entries, environment, held);
        Self { records, environment, start, bounds, flushers: flushers(records) }
    }
}

/// What is assumed about a recording while it is replayed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Assumed<'a> {
    /// The memory limit.
    pub limit: Option<Bytes>,
    /// The pools of segments.
    pub lifetimes: &'a Lifetimes<'a>,
    /// Options of the program's own pools.
    pub mempools: &'a MemPools,
    /// Differences after which the replay ends; 0 to learn only where the first one is.
    pub patience: u64,
}

impl Assumed<'_> {
    /// The entry at which the recording first contradicts this, if it does.
    pub(super) fn contradiction(self, recorded: &Recorded<'_>) -> Option<usize> {
        let trial = replay(recorded, Self { patience: 0, ..self });
        trial.differences.first().map(|difference| difference.entry)
    }
}

/// Replays the recording on the model.
pub(super) fn replay(recorded: &Recorded<'_>, assumed: Assumed<'_>) -> Verification {
    let begin = Instant::now();
    let mut verifier = Verifier::new(recorded, assumed);
    verifier.start(recorded.start.clone());
    verifier.run();
    verifier.finish(begin)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    block: BlockId,
    is_pending: bool,
}

pub(super) struct Verifier<'a> {
    records: &'a Records,
    pub(super) entries: &'a [Entry],
    pub(super) environment: Environment,
    /// Who emptied the cache, where that is proven.
    pub(super) flushers: &'a Flushers,
    pub(super) assumed: Assumed<'a>,
    pub(super) model: Caching,
    pub(super) gpu: Watched<RecordedDevice<'a>, Counted>,
    pub(super) live: FxHashMap<u64, Live>,
    /// The most that was ever held, where a request was refused.
    pub(super) most_held: Option<Bytes>,
    pub(super) pending: usize,
    /// Whether the request at hand is taken to be one of a private pool, though nothing says so.
    pub(super) is_diverted: bool,
    /// Peaks of the models before the present one.
    pub(super) peak: Usage,
    pub(super) report: Verification,
}

impl<'a> Verifier<'a> {
    fn new(recorded: &'a Recorded<'a>, assumed: Assumed<'a>) -> Self {
        let &Recorded { records, environment, bounds, ref flushers, .. } = recorded;
        let limit = assumed.limit;
        // The limit is what was assumed, whatever share the settings name.
        let memory_fraction = environment.conf.memory_fraction.map(|_| 1.0);
        let mut environment = Environment { limit, memory_fraction, ..environment.clone() };
        environment.no_split = assumed.mempools.no_split.iter().copied().collect();
        let entries = &records.entries[..];
        let most_held = bounds.has_failed().then_some(bounds.least);
        let report = Verification { limit: assumed.limit, ..Verification::default() };
        let recorded = RecordedDevice::new(entries, &assumed.mempools.elsewhere);
        Self {
            records,
            entries,
            model: new_model(records, &environment),
            environment,
            flushers,
            assumed,
            gpu: Watched::new(recorded, Counted::default()),
            live: FxHashMap::default(),
            most_held,
            pending: 0,
            is_diverted: false,
            peak: Usage::default(),
            report,
        }
    }

    fn start(&mut self, start: StartState) {
        self.restore(&start.layout);
        self.report.timeline = Timeline::new(self.records.axis_end(), self.model.usage());
        self.gpu.device.resume(0, self.model.usage().reserved);
        self.report.labels.start = start_blocks(&start.layout);
        self.report.start = start;
        if let Some(on) = first_growth(self.entries) {
            self.model.set_expandable(on);
        }
    }

    /// Sets the model to a recorded state.
    fn restore(&mut self, layout: &Layout) {
        let expandable = self.model.is_expandable();
        self.peak = self.peak.max(self.model.peak());
        self.model = new_model(self.records, &self.environment);
        self.model.set_expandable(expandable);
        let plain = layout.segments.iter().filter(|segment| !segment.is_expandable);
        let addresses = plain.map(|segment| segment.address);
        let addresses: Vec<u64> = addresses.chain(layout.reservations.iter().copied()).collect();
        self.gpu.device.restoring = Some(addresses.into_iter());
        let restored = self.model.restore(&mut self.gpu, layout);
        self.gpu.device.restoring = None;
        let blocks = restored.ok().flatten().expect("a recorded device does not run out of memory");
        self.live.clear();
        self.pending = 0;
        for ((_, block), id) in layout.active().zip(blocks) {
            let is_pending = block.state == BlockState::PendingFree;
            self.live.insert(block.address, Live { block: id, is_pending });
            self.pending += usize::from(is_pending);
        }
    }

    fn run(&mut self) {
        while let Some(entry) = self.entries.get(self.gpu.device.next) {
            let first = self.gpu.device.next;
            match entry.action {
                Action::Alloc => self.malloc(first, entry),
                Action::FreeRequested => self.free(entry),
                Action::Snapshot => self.snapshot(entry),
                _ => self.operation(first),
            }
            if self.gpu.device.problem.is_some() {
                self.differ_and_resume(first);
            }
            let usage = self.model.usage();
            let at = self.records.place_of(first);
            self.report.timeline.push(at, Range::of(usage), usage);
        }
        if self.report.difference_count <= self.assumed.patience {
            self.compare_end();
        }
    }

    #[inline]
    fn accept(&mut self, entry: &Entry) {
        self.report.compared[entry.action as usize] += 1;
        self.gpu.device.next += 1;
    }

    #[inline]
    fn free(&mut self, entry: &Entry) {
        let Some(live) = self.live.get(&entry.addr).copied().filter(|live| !live.is_pending) else {
            return self.gpu.device.differ("nothing is allocated there".to_owned());
        };
        self.accept(entry);
        match self.entries.get(self.gpu.device.next) {
            Some(next)
                if next.action == Action::FreeCompleted
                    && next.addr == entry.addr
                    && !self.may_flush_next(self.gpu.device.next) =>
            {
                self.live.remove(&entry.addr);
                self.model.free(&mut self.gpu, live.block);
                self.accept(next);
            }
            _ => {
                self.live.insert(entry.addr, Live { is_pending: true, ..live });
                self.pending += 1;
                self.model.free_requested(live.block, &[]);
            }
        }
    }

    pub(super) fn complete(&mut self, entry: &Entry) {
        match self.live.remove(&entry.addr).filter(|live| live.is_pending) {
            Some(live) => {
                self.pending -= 1;
                self.model.free_completed(&mut self.gpu, live.block);
                self.accept(entry);
            }
            None => self.gpu.device.differ("no free is pending there".to_owned()),
        }
    }

    fn snapshot(&mut self, entry: &Entry) {
        let active = self.model.usage().active;
        if active == entry.size {
            self.accept(entry);
        } else {
            self.gpu.device.differ(format!("{active} bytes are active"));
        }
    }

    /// The program emptied the cache, or a private pool was released.
    pub(super) fn empty_cache(&mut self) {
        let first = self.gpu.device.next;
        let pool = match self.entries.get(first) {
            Some(entry) if entry.action != Action::FreeCompleted => {
                self.assumed.lifetimes.pool_at(first, entry)
            }
            _ => PoolId::DEFAULT,
        };
        if pool == PoolId::DEFAULT {
            self.model.trim(&mut self.gpu);
        } else {
            self.model.release_pool(&mut self.gpu, pool);
        }
        self.settle(first);
        if self.gpu.device.next == first {
            self.gpu.device.differ("emptying the cache gives nothing back".to_owned());
        } else {
            self.report.labels.trims.push((first, pool));
        }
    }

    /// Counts what an operation took from the recording, and the frees that waiting for the GPU completed.
    fn settle(&mut self, first: usize) {
        for entry in &self.entries[first..self.gpu.device.next] {
            self.report.compared[entry.action as usize] += 1;
        }
        for addr in std::mem::take(&mut self.gpu.device.synchronized) {
            match self.live.remove(&addr).filter(|live| live.is_pending) {
                Some(_) => self.pending -= 1,
                None => self.gpu.device.differ(format!("no free is pending at {addr:#x}")),
            }
        }
    }

    pub(super) fn request(&self, index: usize, entry: &Entry) -> Request {
        let pool = match entry.action {
            Action::Alloc if self.assumed.mempools.elsewhere.contains_key(&index) => {
                PoolId::DEFAULT
            }
            Action::Alloc => self.assumed.lifetimes.pool_at(index, entry),
            _ if self.is_diverted => inferred_pool(self.records),
            _ => entry.pool,
        };
        Request { size: entry.size, stream: entry.stream, pool }
    }

    /// The malloc whose last entry is number `last`: an `alloc` or an `oom`.
    #[inline]
    pub(super) fn malloc(&mut self, last: usize, entry: &Entry) {
        let first = self.gpu.device.next;
        let request = self.request(last, entry);
        if first != last {
            self.follow_option(first, last, request.pool);
            self.disown_pools(first, last, request.pool);
        }
        if let Some(&pool) = self.assumed.mempools.elsewhere.get(&last) {
            self.model.set_use_on_oom(pool);
        }
        let outcome = self.model.malloc(&mut self.gpu, request);
        if first != self.gpu.device.next {
            self.settle(first);
        }
        if self.gpu.device.problem.is_some() {
            return;
        }
        match outcome {
            Ok(given) if entry.action == Action::Alloc && self.gpu.device.next == last => {
                if given.at.0 != entry.addr {
                    return self.gpu.device.differ(format!("alloc at {}", given.at));
                }
                self.live.insert(entry.addr, Live { block: given.block, is_pending: false });
                self.accept(entry);
                if request.pool != entry.pool {
                    self.report.labels.pools.push((last, request.pool));
                }
            }
            Err(AllocError::OutOfMemory { .. })
                if entry.action == Action::Oom && self.gpu.device.next == last =>
            {
                self.accept(entry);
                let needed = self.model.segment_for(request.size);
                // 0 is what a file says that does not know.
                let device_free = Some(entry.addr).filter(|&free| free > 0);
                let usage = self.model.usage();
                let (held, free) = (usage.reserved, usage.reserved.saturating_sub(usage.active));
                let refused = Refused { held, free, device_free, needed };
                self.report.refused.get_or_insert(refused);
                if request.pool != entry.pool {
                    self.report.labels.pools.push((last, request.pool));
                }
            }
            Ok(given) => self.gpu.device.differ(format!("alloc at {}", given.at)),
            Err(error) => self.gpu.device.differ(error.to_string()),
        }
    }

    /// Expandable segments can be switched at run time; how memory grows tells whether they were on.
    /// Up to 2.4 private pools grow by plain segments in any case.
    fn follow_option(&mut self, first: usize, last: usize, pool: PoolId) {
        if pool != PoolId::DEFAULT && !self.environment.version.is_at_least(5) {
            return;
        }
        if let Some(on) = first_growth(&self.entries[first..last]) {
            self.model.set_expandable(on);
        }
    }

    #[cold]
    fn differ_and_resume(&mut self, first: usize) {
        let Some(Problem { entry, model }) = self.gpu.device.problem.clone() else { return };
        self.note(entry, model);
        let from = entry.max(first);
        let length = self.entries[from.min(self.entries.len())..].iter().position(ends_operation);
        let resume = length.map_or(self.entries.len(), |length| from + length + 1);
        if self.report.difference_count > self.assumed.patience {
            self.gpu.device.resume(self.entries.len(), 0);
            return;
        }
        let state = state_at(self.records, resume, &self.environment.conf);
        self.restore(&state.layout);
        self.gpu.device.resume(resume, self.model.usage().reserved);
    }

    fn note(&mut self, entry: usize, model: String) {
        let recorded = self.entries.get(entry).map_or("the end".to_owned(), describe);
        self.keep(Difference { entry, recorded, model });
    }

    fn keep(&mut self, difference: Difference) {
        self.report.difference_count += 1;
        if self.report.difference_count <= HOPELESS {
            self.report.differences.push(difference);
        }
    }

    fn compare_end(&mut self) {
        if !self.records.has_segments {
            return;
        }
        self.report.segments = self.records.segments.len() as u64;
        self.report.blocks = self.records.segments.iter().map(|s| s.blocks.len() as u64).sum();
        for (recorded, model) in differing_segments(&self.records.segments, &self.model.segments())
        {
            self.keep(Difference { entry: self.entries.len(), recorded, model });
        }
    }

    /// The memory of the device, as its refusals tell.
    fn find_capacity(&mut self) {
        let (device, most_held) = (&self.gpu.device, self.report.peak.reserved);
        let page = device.least_page_refused.filter(|&least| least > most_held);
        let least_refused = device.least_refused.into_iter().chain(page).min();
        let are_pages = device.least_page_refused.is_some() && least_refused.is_none();
        self.report.least_refused = least_refused;
        let Some(refused) = self.report.refused else {
            let least = least_refused.filter(|&least| least > most_held);
            self.report.capacity = least.map(|_| most_held);
            return;
        };
        if refused.was_there() {
            return;
        }
        // What the driver had left when it refused was there to be had, for a smaller request.
        let there = refused.held + refused.device_free.unwrap_or(0);
        self.report.capacity = match least_refused.filter(|&least| least > most_held) {
            Some(least) => Some(there.clamp(most_held, least - 1)),
            None => (are_pages && refused.device_free.is_some()).then(|| there.max(most_held)),
        };
    }

    fn finish(mut self, begin: Instant) -> Verification {
        self.report.peak = self.peak.max(self.model.peak());
        self.report.usage = self.model.usage();
        self.find_capacity();
        self.report.retries = self.model.retries();
        self.report.device_calls = self.gpu.watch.calls;
        self.report.inferred_private = self.assumed.lifetimes.inferred();
        self.report.labels.no_split = self.environment.no_split;
        self.report.served_elsewhere = self.assumed.mempools.elsewhere.len();
        self.report.elapsed_ns = begin.elapsed().as_nanos() as u64;
        self.report
    }
}

/// PyTorch's ids of pools are (0, n) for those of the user and (n, 0) for those of graphs, in this order.
fn new_model(records: &Records, environment: &Environment) -> Caching {
    let mut model = Caching::new(environment);
    let first_graph = records.pools.partition_point(|&(of_graph, _)| of_graph == 0);
    model.set_first_graph_pool(PoolId(u8::try_from(first_graph).unwrap_or(u8::MAX)));
    model
}

fn start_blocks(layout: &Layout) -> Vec<StartBlock> {
    let block = |(segment, block): (&Segment, &crate::trace::SegmentBlock)| StartBlock {
        address: block.address,
        requested: block.requested,
        stream: segment.stream,
        pool: segment.pool,
        is_pending: block.state == BlockState::PendingFree,
    };
    layout.active().map(block).collect()
}
