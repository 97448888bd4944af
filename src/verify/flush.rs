//! The flush inside a malloc: what it completed and gave back, found from what was so before.
//!
//! A recording does not say where a malloc began. Frees that other streams held up complete when a malloc begins, or
//! when it runs short and waits for the GPU; and PyTorch does not search its cache again after that:
//!
//! ```text
//!   free_requested 0xa…
//!   free_completed 0xa…    as it was freed?  Then the malloc could have taken it.
//!   oom                    Or in the flush of the malloc, too late for it.
//! ```
//!
//! Nor does it say whether the program emptied the cache or the malloc did. So all are tried, and what makes the
//! recorded decisions is taken; what both explain, the program did.
//!
//! A malloc that ran out although the cache had whole segments gave nothing back because it was not allowed to: while a
//! CUDA graph is captured, and up to 2.12 while a `MemPool` is in use, PyTorch keeps the cache of all pools.

use super::device::RecordedDevice;
use super::entries::end_of_operation;
use super::flusher::Flusher;
use super::replay::{Live, Verifier};
use crate::allocator::{Allocator, Caching};
use crate::device::{Counted, Watched};
use crate::trace::{Action, Entry, PoolId};
use crate::units::Bytes;
use rustc_hash::FxHashMap;

/// When the frees complete with which the entries of an operation begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completion {
    Before,
    /// In a flush: the program's or the malloc's, by what the model knows of the memory that was left.
    InFlush,
    /// In the flush of the malloc, though it seemed to have enough memory.
    InMalloc,
}

/// What a malloc changes, to take it back.
#[derive(Clone)]
struct Before<'a> {
    model: Caching,
    gpu: Watched<RecordedDevice<'a>, Counted>,
    live: FxHashMap<u64, Live>,
    pending: usize,
    compared: [u64; Action::ALL.len()],
    /// Labels so far: caches emptied, and pools inferred.
    labels: (usize, usize),
}

impl<'a> Verifier<'a> {
    /// A run of entries that is not a plain malloc or free.
    #[cold]
    pub(super) fn operation(&mut self, first: usize) {
        let (may_flush, may_divert) = (self.may_flush_next(first), self.runs_out_next(first));
        let before = (may_flush || may_divert).then(|| self.remember());
        self.attempt(first, Completion::Before);
        let Some(before) = before.filter(|_| self.gpu.device.problem.is_some()) else { return };
        let differing = self.remember();
        let flushes = [Completion::InFlush, Completion::InMalloc].map(|at| (at, false));
        let flushes = flushes.into_iter().filter(|_| may_flush);
        let diverted = Some((Completion::Before, true)).filter(|_| may_divert);
        for (completion, is_diverted) in flushes.chain(diverted) {
            self.take_back(before.clone());
            self.is_diverted = is_diverted;
            self.attempt(first, completion);
            self.is_diverted = false;
            if self.gpu.device.problem.is_none() {
                self.report.diverted += usize::from(is_diverted);
                return;
            }
        }
        self.take_back(differing);
    }

    /// Whether the operation that has the entry `first` is a malloc that ran out, of a pool that is not known.
    fn runs_out_next(&self, first: usize) -> bool {
        let last = self.entries.get(end_of_operation(self.entries, first));
        last.is_some_and(|entry| entry.action == Action::Oom && entry.pool == PoolId::DEFAULT)
    }

    /// Goes through the operation that has the entry `first`, which begins with frees that complete.
    fn attempt(&mut self, first: usize, completion: Completion) {
        let last = end_of_operation(self.entries, first);
        while let Some(entry) = self.next_before(last).filter(|entry| {
            completion == Completion::Before && entry.action == Action::FreeCompleted
        }) {
            self.complete(entry);
            if self.gpu.device.problem.is_some() {
                return;
            }
        }
        match self.entries.get(last) {
            Some(entry) if matches!(entry.action, Action::Alloc | Action::Oom) => {
                while completion != Completion::InMalloc
                    && self.gives_back_before(last)
                    && self.is_empty_cache(last, entry)
                {
                    self.empty_cache();
                }
                if self.gpu.device.problem.is_none() {
                    self.malloc(last, entry);
                }
            }
            _ => {
                while self.next_before(last).is_some() && self.gpu.device.problem.is_none() {
                    self.empty_cache();
                }
            }
        }
    }

    /// Whether memory given back before a malloc was given back by the program (`empty_cache`) and not by the malloc:
    /// if a block fits, the malloc needed none; if the limit was reached, it did. Stacks and times may prove either.
    fn is_empty_cache(&mut self, last: usize, entry: &Entry) -> bool {
        let request = self.request(last, entry);
        if self.model.would_fit(request) {
            return true;
        }
        if let Some(flusher) = self.proven_flusher(last) {
            return flusher == Flusher::Program;
        }
        let needed = self.model.usage().reserved + self.model.segment_for(request.size);
        let is_by_program = entry.action != Action::Oom && !self.must_refuse(needed);
        is_by_program && (self.environment.conf.max_split_size.is_none() || self.gives_all_back())
    }

    /// Who gave memory back next, by what the recording proves.
    fn proven_flusher(&self, last: usize) -> Option<Flusher> {
        (self.gpu.device.next..last).find_map(|entry| self.flushers.get(&entry).copied())
    }

    /// Whether the limit, or the driver by what it refused, would not let this much be held; or garbage is collected.
    fn must_refuse(&self, needed: Bytes) -> bool {
        let threshold = self.environment.conf.garbage_collection_threshold;
        let reserved = self.model.usage().reserved;
        let is_limited = self.assumed.limit.is_some_and(|limit| {
            let collects = threshold > 0.0 && reserved > (threshold * limit as f64) as Bytes;
            collects || needed > limit
        });
        let most_so_far = self.peak.reserved.max(self.model.peak().reserved);
        let least_refused = self.gpu.device.least_refused.filter(|&least| least > most_so_far);
        is_limited
            || self.most_held.is_some_and(|most| needed > most)
            || least_refused.is_some_and(|least| needed >= least)
    }

    /// Whether what comes next is all that emptying the cache gives back. With `max_split_size` a malloc may release
    /// only as much as it needs, which a program cannot.
    fn gives_all_back(&mut self) -> bool {
        let before = self.remember();
        self.empty_cache();
        let gives_all_back = self.gpu.device.problem.is_none();
        self.take_back(before);
        gives_all_back
    }

    fn next_before(&self, last: usize) -> Option<&'a Entry> {
        self.entries[..last].get(self.gpu.device.next)
    }

    fn gives_back_before(&self, last: usize) -> bool {
        let mut entries = self.entries[self.gpu.device.next.min(last)..last].iter();
        let grows =
            |entry: &&Entry| matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap);
        // What grew first, in vain, was the malloc.
        self.gpu.device.problem.is_none()
            && entries.clone().next().filter(grows).is_none()
            && entries.any(|e| matches!(e.action, Action::SegmentFree | Action::SegmentUnmap))
    }

    /// Whether the entries from `first` on are those of a malloc that may have flushed, and begin with frees that
    /// complete.
    pub(super) fn may_flush_next(&self, first: usize) -> bool {
        let is = |at: usize, wanted: &[Action]| {
            self.entries.get(at).is_some_and(|entry| wanted.contains(&entry.action))
        };
        if !is(first, &[Action::FreeCompleted]) {
            return false;
        }
        let last = end_of_operation(self.entries, first);
        let gives_back =
            |entry: &Entry| matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap);
        is(last, &[Action::Oom])
            || self.assumed.mempools.elsewhere.contains_key(&last)
            || is(last, &[Action::Alloc]) && self.entries[first..last].iter().any(gives_back)
    }

    fn remember(&self) -> Before<'a> {
        Before {
            model: self.model.clone(),
            gpu: self.gpu.clone(),
            live: self.live.clone(),
            pending: self.pending,
            compared: self.report.compared,
            labels: (self.report.labels.trims.len(), self.report.labels.pools.len()),
        }
    }

    fn take_back(&mut self, before: Before<'a>) {
        let Before { model, gpu, live, pending, compared, labels } = before;
        (self.model, self.gpu, self.live, self.pending) = (model, gpu, live, pending);
        self.report.compared = compared;
        self.report.labels.trims.truncate(labels.0);
        self.report.labels.pools.truncate(labels.1);
    }

    /// Private pools of which a malloc gave something back have no owner any more, though no entry said so.
    pub(super) fn disown_pools(&mut self, first: usize, last: usize, requested: PoolId) {
        for index in first..last {
            let entry = &self.entries[index];
            if matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap) {
                let pool = self.assumed.lifetimes.pool_at(index, entry);
                if pool != PoolId::DEFAULT && pool != requested {
                    self.model.disown_pool(pool);
                }
            }
        }
    }
}
