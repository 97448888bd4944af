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
use super::{
    Action, AllocId, Entry, Event, EventKind, Labels, PoolId, Records, StartBlock, StreamId, Trace,
    Warning, WarningKind, steps,
};
use gmlake_core::units::Bytes;

/// Sizes above this are no requests, but damage: 2^47 bytes are the whole address space of a process.
const ABSURD_SIZE: Bytes = 1 << 47;

/// Whether a program may request so many bytes.
pub(super) fn is_request(size: Bytes) -> bool {
    (1..=ABSURD_SIZE).contains(&size)
}

/// Turns the records of one device into a trace.
pub fn ingest(records: &Records, labels: &Labels) -> Trace {
    let mut ingest = Ingest::new(records, labels);
    ingest.start_blocks(&labels.start);
    ingest.entries(labels);
    ingest.finish(None)
}

#[derive(Clone, Copy)]
struct Live {
    alloc: AllocId,
    stream: StreamId,
    pool: PoolId,
    size: Bytes,
    is_pending: bool,
}

/// A trace in the making.
pub(super) struct Ingest<'a> {
    records: &'a Records,
    pub(super) trace: Trace,
    live: FxHashMap<u64, Live>,
    origin_us: u64,
    last_us: u64,
    origins: Origins<'a>,
}

impl<'a> Ingest<'a> {
    pub(super) fn new(records: &'a Records, labels: &Labels) -> Self {
        let capacity = records.entries.len() + labels.start.len();
        let trace = Trace {
            device: records.device,
            events: Vec::with_capacity(capacity),
            times_us: Vec::with_capacity(capacity),
            streams: records.streams.clone(),
            settings: records.settings.clone(),
            no_split: labels.no_split.clone(),
            version: records.written_by.map(|writer| writer.taken()),
            ..Trace::default()
        };
        let origin_us = records.entries.first().map_or(0, |entry| entry.time_us);
        let origins = Origins::new(records);
        Self { records, trace, live: FxHashMap::default(), origin_us, last_us: 0, origins }
    }

    fn start_blocks(&mut self, start: &[StartBlock]) {
        for block in start.iter().filter(|block| is_request(block.requested)) {
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
            if let Some(live) = self.live.get(&block.address).copied() {
                self.push(EventKind::FreeRequested, &live);
            }
        }
        self.trace.start_events = self.trace.events.len();
        if let Some(first) = start.first() {
            let text = format!("{:#x}, {} bytes", first.address, first.requested);
            let count = start.len() as u64;
            self.trace.warnings.push(Warning { kind: WarningKind::LiveBefore, count, first: text });
        }
    }

    pub(super) fn entries(&mut self, labels: &Labels) {
        let entries = &self.records.entries;
        let recorded = self.records.trims.iter().map(|&at| (at, PoolId::DEFAULT));
        let mut trims: Vec<(usize, PoolId)> =
            labels.trims.iter().copied().chain(recorded).collect();
        trims.sort_by_key(|&(at, _)| at);
        let mut trims = trims.into_iter().peekable();
        let mut pools = labels.pools.iter().peekable();
        let mut failures = self.records.unsized_failures.iter().peekable();
        let mut index = 0;
        while index < entries.len() {
            let entry = entries[index];
            self.last_us = self.last_us.max(entry.time_us.saturating_sub(self.origin_us));
            while let Some((_, pool)) = trims.next_if(|&(at, _)| at == index) {
                self.push_other(EventKind::Trim, 0, StreamId(0), pool);
            }
            while failures.next_if(|&&at| at == index).is_some() {
                self.fail_unsized(index);
            }
            let labelled = pools.next_if(|&&(at, _)| at == index).map(|&(_, pool)| pool);
            let is_fused = completes(&entry, entries.get(index + 1));
            match entry.action {
                Action::Alloc => self.alloc(index, &entry, labelled.unwrap_or(entry.pool)),
                Action::FreeRequested if is_fused => self.free(index, &entry),
                Action::FreeRequested => self.free_requested(index, &entry),
                Action::FreeCompleted => self.free_completed(index, &entry),
                Action::Oom => self.attempt(index, &entry, labelled.unwrap_or(entry.pool)),
                _ => {}
            }
            index += if is_fused { 2 } else { 1 };
        }
        for (_, pool) in trims {
            self.push_other(EventKind::Trim, 0, StreamId(0), pool);
        }
        failures.for_each(|&at| self.fail_unsized(at));
    }

    /// Memory ran out before this entry, for a request whose size the file does not tell.
    fn fail_unsized(&mut self, index: usize) {
        self.trace.unsized_failures.push(self.trace.events.len());
        self.note(WarningKind::UnsizedFailure, || format!("before entry {index}"));
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

    fn attempt(&mut self, index: usize, entry: &Entry, pool: PoolId) {
        if !self.is_absurd(index, entry) {
            if entry.stack != Entry::NO_STACK {
                self.trace.attempt_stacks.push((self.trace.events.len(), entry.stack));
            }
            self.push_other(EventKind::Attempt, entry.size, entry.stream, pool);
        }
    }

    fn is_absurd(&mut self, index: usize, entry: &Entry) -> bool {
        let is_absurd = !is_request(entry.size);
        if is_absurd {
            self.warn(WarningKind::AbsurdSize, index, entry);
        }
        is_absurd
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
        self.note(kind, || {
            let name = entry.action.name();
            format!("entry {index}: {name} of {} bytes at {:#x}", entry.size, entry.addr)
        });
    }

    /// Counts what had to be assumed; the first time with where it was.
    fn note(&mut self, kind: WarningKind, first: impl FnOnce() -> String) {
        if let Some(warning) = self.trace.warnings.iter_mut().find(|w| w.kind == kind) {
            warning.count += 1;
            return;
        }
        self.trace.warnings.push(Warning { kind, count: 1, first: first() });
    }

    /// Whether something had to be assumed so far: otherwise each request, free and failure is an event.
    pub(super) fn has_warnings(&self) -> bool {
        !self.trace.warnings.is_empty()
    }

    /// The trace. `starts` are those of its steps by [`steps::periodic_starts`], if they are known.
    pub(super) fn finish(mut self, starts: Option<Vec<usize>>) -> Trace {
        let live = self.live.iter().map(|(&address, live)| (address, live.alloc));
        self.trace.alloc_stacks = self.origins.finish(live);
        self.trace.warnings.extend(self.records.warnings.iter().cloned());
        // A state without a history has no steps, whatever its annotations say.
        if !self.records.entries.is_empty() {
            self.trace.steps = steps::find(self.records, &self.trace, starts);
        }
        self.trace.warnings.sort_by_key(|warning| warning.kind);
        self.trace
    }
}

/// Whether `next` is the immediate completion of the free `entry`.
pub(super) fn completes(entry: &Entry, next: Option<&Entry>) -> bool {
    let is_same = |next: &Entry| next.action == Action::FreeCompleted && next.addr == entry.addr;
    entry.action == Action::FreeRequested && next.is_some_and(is_same)
}
