//! Ingest: from recorded entries to events with dense ids, saying what had to be assumed.
//!
//! PyTorch's own decisions (segments, addresses) are left behind here; what stays is what the program did. A free is
//! matched with its request by address, once, so that the event loop never hashes:
//!
//! ```text
//!   alloc 0xa000 512     ──▶  Malloc  #0 512        the only use of an address is to match a free with its request
//!   alloc 0xb000 4096    ──▶  Malloc  #1 4096
//!   free_requested 0xa000 ┐
//!   free_completed 0xa000 ┴▶  Free    #0            side by side: nothing had to be waited for
//!   free_requested 0xb000 ──▶  FreeRequested #1     apart: another stream still used the memory
//!   free_completed 0xb000 ──▶  FreeCompleted #1
//! ```

use rustc_hash::FxHashMap;

use super::origins::Origins;
use super::{Action, AllocId, Entry, Event, EventKind, PoolId, Records, StreamId, steps};
use crate::alloc_conf::AllocConf;
use crate::units::Bytes;

/// What was assumed about a trace, how often, and where first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What it is about.
    pub kind: WarningKind,
    /// How many entries it concerns.
    pub count: u64,
    /// The first of them, in words: position and values.
    pub first: String,
}

/// The kinds of assumption that ingest makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WarningKind {
    /// A free of an address at which nothing is live.
    UnknownFree,
    /// An `alloc` at an address that is still live: its free is missing.
    DoubleAlloc,
    /// A `free_requested` of a block that was freed already.
    DoubleFree,
    /// Blocks were live before the recording began.
    LiveBefore,
    /// An entry of a kind that we do not know.
    UnknownAction,
    /// A size of zero or above 2^47 bytes; the entry was left out.
    AbsurdSize,
    /// The configuration text of the recorded allocator is not understood.
    Settings,
    /// A column of a table that we do not know.
    UnknownColumn,
}

impl WarningKind {
    /// What was assumed, and what to do about it.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::UnknownFree => {
                "free of an address at which nothing is live: ignored (the recording began late?)"
            }
            Self::DoubleAlloc => {
                "alloc at an address that is still live: the older block was freed first (its free is missing)"
            }
            Self::DoubleFree => "block freed twice: the second free was ignored",
            Self::LiveBefore => {
                "block was live before the recording began: it is requested before the first event"
            }
            Self::UnknownAction => "entry of an unknown kind: ignored",
            Self::AbsurdSize => "size of zero or beyond any GPU: entry ignored",
            Self::Settings => {
                "recorded allocator settings not understood: options that only they name are defaults"
            }
            Self::UnknownColumn => "column that we do not know: left out",
        }
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {}; first: {}", self.count, self.kind.explanation(), self.first)
    }
}

/// A block that was live before the first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartBlock {
    /// Its address.
    pub address: u64,
    /// What the program had asked for.
    pub requested: Bytes,
    /// Its stream.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolId,
    /// Freed already, but still in use by another stream.
    pub is_pending: bool,
}

/// What the entries alone do not say; found out by replaying the recording (see `sim::verify`).
#[derive(Debug, Clone, Default)]
pub struct Labels {
    /// Blocks that were live before the first entry.
    pub start: Vec<StartBlock>,
    /// Entries before which the program emptied the cache, ascending, with the private pool that it released.
    pub trims: Vec<(usize, PoolId)>,
    /// Pool of each `alloc` entry that was not served from the default pool, ascending by entry.
    pub pools: Vec<(usize, PoolId)>,
}

/// One training step: a range of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// First event.
    pub start: usize,
    /// One past the last event.
    pub end: usize,
}

/// What one program did on one device, ready to be replayed.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Index of the device.
    pub device: u32,
    /// All that the program did, in order.
    pub events: Vec<Event>,
    /// The moment of each event in microseconds since the first entry.
    pub times_us: Vec<u64>,
    /// How many of the first events stand for blocks that were live before the recording began.
    pub start_events: usize,
    /// How many allocation ids there are.
    pub allocs: u32,
    /// Handle of each [`StreamId`].
    pub streams: Vec<u64>,
    /// Number of each allocation's call stack ([`Records::stacks`]), or [`Entry::NO_STACK`]; empty if there are none.
    pub alloc_stacks: Vec<u32>,
    /// Event and stack of each request that failed in the recording and has one, ascending.
    pub attempt_stacks: Vec<(usize, u32)>,
    /// Training steps in order, if they could be told; see [`crate::trace`].
    pub steps: Vec<Step>,
    /// The allocator settings that the program ran with, if known.
    pub settings: Option<AllocConf>,
    /// What was assumed, in a fixed order.
    pub warnings: Vec<Warning>,
}

impl Trace {
    /// Requests in the trace, those that failed in the recording included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let is_request = |e: &&Event| matches!(e.kind, EventKind::Malloc | EventKind::Attempt);
        self.events.iter().filter(is_request).count() as u64
    }

    /// Number of the call stack of the request that event number `event` is, or is the free of.
    #[must_use]
    pub fn stack_of(&self, event: usize) -> u32 {
        let Some(&Event { kind, alloc, .. }) = self.events.get(event) else {
            return Entry::NO_STACK;
        };
        let found = match kind {
            EventKind::Attempt => {
                let place = self.attempt_stacks.binary_search_by_key(&event, |&(at, _)| at);
                place.ok().map(|place| self.attempt_stacks[place].1)
            }
            _ => self.alloc_stacks.get(alloc.0 as usize).copied(),
        };
        found.unwrap_or(Entry::NO_STACK)
    }

    /// Time between the first and the last event in microseconds; 0 if the file has no times.
    #[must_use]
    pub fn span_us(&self) -> u64 {
        self.times_us.last().copied().unwrap_or(0)
    }
}

/// Sizes above this are no requests, but damage: 2^47 bytes are the whole address space of a process.
const ABSURD_SIZE: Bytes = 1 << 47;

/// Turns the records of one device into a trace.
#[must_use]
pub fn ingest(records: &Records, labels: &Labels) -> Trace {
    let mut ingest = Ingest::new(records, labels);
    ingest.start_blocks(&labels.start);
    ingest.entries(labels);
    ingest.finish()
}

#[derive(Clone, Copy)]
struct Live {
    alloc: AllocId,
    stream: StreamId,
    pool: PoolId,
    size: Bytes,
    is_pending: bool,
}

struct Ingest<'a> {
    records: &'a Records,
    trace: Trace,
    live: FxHashMap<u64, Live>,
    origin_us: u64,
    last_us: u64,
    origins: Origins<'a>,
}

impl<'a> Ingest<'a> {
    fn new(records: &'a Records, labels: &Labels) -> Self {
        let capacity = records.entries.len() + labels.start.len();
        let trace = Trace {
            device: records.device,
            events: Vec::with_capacity(capacity),
            times_us: Vec::with_capacity(capacity),
            streams: records.streams.clone(),
            settings: records.settings.clone(),
            ..Trace::default()
        };
        let origin_us = records.entries.first().map_or(0, |entry| entry.time_us);
        let origins = Origins::new(records);
        Self { records, trace, live: FxHashMap::default(), origin_us, last_us: 0, origins }
    }

    fn start_blocks(&mut self, start: &[StartBlock]) {
        for block in start {
            let alloc = self.next_alloc();
            let live = Live {
                alloc,
                stream: block.stream,
                pool: block.pool,
                size: block.requested,
                is_pending: block.is_pending,
            };
            self.live.insert(block.address, live);
            self.origins.start_block(block.address);
            self.push(EventKind::Malloc, &live);
        }
        for block in start.iter().filter(|block| block.is_pending) {
            let live = self.live[&block.address];
            self.push(EventKind::FreeRequested, &live);
        }
        self.trace.start_events = self.trace.events.len();
        if let Some(first) = start.first() {
            let text = format!("{:#x}, {} bytes", first.address, first.requested);
            let count = start.len() as u64;
            self.trace.warnings.push(Warning { kind: WarningKind::LiveBefore, count, first: text });
        }
    }

    fn entries(&mut self, labels: &Labels) {
        let entries = &self.records.entries;
        let recorded = self.records.trims.iter().map(|&at| (at, PoolId::DEFAULT));
        let mut trims: Vec<(usize, PoolId)> =
            labels.trims.iter().copied().chain(recorded).collect();
        trims.sort_by_key(|&(at, _)| at);
        let mut trims = trims.into_iter().peekable();
        let mut pools = labels.pools.iter().peekable();
        let mut index = 0;
        while index < entries.len() {
            let entry = entries[index];
            self.last_us = self.last_us.max(entry.time_us.saturating_sub(self.origin_us));
            while let Some((_, pool)) = trims.next_if(|&(at, _)| at == index) {
                self.push_other(EventKind::Trim, 0, StreamId(0), pool);
            }
            let labelled = pools.next_if(|&&(at, _)| at == index).map(|&(_, pool)| pool);
            let is_fused = entry.action == Action::FreeRequested
                && entries.get(index + 1).is_some_and(|next| completes(&entry, next));
            match entry.action {
                Action::Alloc => self.alloc(index, &entry, labelled.unwrap_or(entry.pool)),
                Action::FreeRequested if is_fused => self.free(index, &entry),
                Action::FreeRequested => self.free_requested(index, &entry),
                Action::FreeCompleted => self.free_completed(index, &entry),
                Action::Oom => self.attempt(index, &entry),
                _ => {}
            }
            index += if is_fused { 2 } else { 1 };
        }
        for (_, pool) in trims {
            self.push_other(EventKind::Trim, 0, StreamId(0), pool);
        }
    }

    fn alloc(&mut self, index: usize, entry: &Entry, pool: PoolId) {
        if self.is_absurd(index, entry) {
            return;
        }
        if let Some(old) = self.live.remove(&entry.addr) {
            self.warn(WarningKind::DoubleAlloc, index, entry);
            self.push(
                if old.is_pending { EventKind::FreeCompleted } else { EventKind::Free },
                &old,
            );
        }
        let alloc = self.next_alloc();
        let live = Live { alloc, stream: entry.stream, pool, size: entry.size, is_pending: false };
        self.live.insert(entry.addr, live);
        self.origins.alloc(entry);
        self.push(EventKind::Malloc, &live);
    }

    fn free(&mut self, index: usize, entry: &Entry) {
        match self.live.remove(&entry.addr) {
            Some(live) if live.is_pending => {
                self.warn(WarningKind::DoubleFree, index, entry);
                self.push(EventKind::FreeCompleted, &live);
            }
            Some(live) => {
                self.origins.free(entry, live.alloc);
                self.push(EventKind::Free, &live);
            }
            None => self.warn(WarningKind::UnknownFree, index, entry),
        }
    }

    fn free_requested(&mut self, index: usize, entry: &Entry) {
        match self.live.get_mut(&entry.addr) {
            Some(live) if live.is_pending => self.warn(WarningKind::DoubleFree, index, entry),
            Some(live) => {
                live.is_pending = true;
                let live = *live;
                self.origins.free(entry, live.alloc);
                self.push(EventKind::FreeRequested, &live);
            }
            None => self.warn(WarningKind::UnknownFree, index, entry),
        }
    }

    fn free_completed(&mut self, index: usize, entry: &Entry) {
        match self.live.remove(&entry.addr) {
            Some(live) if live.is_pending => self.push(EventKind::FreeCompleted, &live),
            // Formats without `free_requested` free in one entry.
            Some(live) => self.push(EventKind::Free, &live),
            None => self.warn(WarningKind::UnknownFree, index, entry),
        }
    }

    fn attempt(&mut self, index: usize, entry: &Entry) {
        if !self.is_absurd(index, entry) {
            if entry.stack != Entry::NO_STACK {
                self.trace.attempt_stacks.push((self.trace.events.len(), entry.stack));
            }
            self.push_other(EventKind::Attempt, entry.size, entry.stream, entry.pool);
        }
    }

    fn is_absurd(&mut self, index: usize, entry: &Entry) -> bool {
        let absurd = entry.size == 0 || entry.size > ABSURD_SIZE;
        if absurd {
            self.warn(WarningKind::AbsurdSize, index, entry);
        }
        absurd
    }

    fn next_alloc(&mut self) -> AllocId {
        let alloc = AllocId(self.trace.allocs);
        self.trace.allocs += 1;
        alloc
    }

    fn push(&mut self, kind: EventKind, live: &Live) {
        let Live { alloc, stream, pool, size, .. } = *live;
        self.trace.events.push(Event { size, alloc, stream, kind, pool });
        self.trace.times_us.push(self.last_us);
    }

    fn push_other(&mut self, kind: EventKind, size: Bytes, stream: StreamId, pool: PoolId) {
        self.trace.events.push(Event { size, alloc: AllocId(u32::MAX), stream, kind, pool });
        self.trace.times_us.push(self.last_us);
    }

    fn warn(&mut self, kind: WarningKind, index: usize, entry: &Entry) {
        if let Some(warning) = self.trace.warnings.iter_mut().find(|w| w.kind == kind) {
            warning.count += 1;
            return;
        }
        let name = entry.action.name();
        let first = format!("entry {index}: {name} of {} bytes at {:#x}", entry.size, entry.addr);
        self.trace.warnings.push(Warning { kind, count: 1, first });
    }

    fn finish(mut self) -> Trace {
        self.trace.alloc_stacks = self.origins.finish();
        self.trace.warnings.extend(self.records.warnings.iter().cloned());
        self.trace.steps = steps::find(self.records, &self.trace);
        self.trace.warnings.sort_by_key(|warning| warning.kind);
        self.trace
    }
}

/// Whether `next` is the immediate completion of the free `entry`.
fn completes(entry: &Entry, next: &Entry) -> bool {
    next.action == Action::FreeCompleted && next.addr == entry.addr
}
