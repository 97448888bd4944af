//! A second look: the same run once more, up to the event at which most memory was reserved.
//!
//! Which event that is, is known only when a run is over, and to keep every block of every new peak on the way would
//! cost more than the run. So the first pass notes the event and the second one stops there, at twice the price at
//! most; it needs no prices, no timeline and no steps. A run does the same each time, so this is the same peak.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::opened::Opened;
use super::run::{RunError, Scenario, Stage};
use super::setup::Setup;
use super::tenants::Tenants;
use crate::allocator::{Allocation, Allocator, BlockId, BlockKind, BlockUse, BlockView, SMALL_MAX};
use crate::drive::{Observer, Step};
use crate::run::{Causes, Growth, Moment, Peak, PeakBlock};
use crate::simulation::Simulated;
use crate::trace::{Event, EventKind, Trace};

impl<'o> Scenario<'o> {
    /// The event at which most is held; `None`: before the first.
    ///
    /// # Errors
    /// As [`Scenario::run`].
    pub fn peak_event(&self) -> Result<Option<usize>, RunError> {
        Ok(self.run()?.peak_event.map(|event| event as usize))
    }

    /// What is held after event number `event`, or before the first one. Where that is a request that is not served, it
    /// is what the allocator was left with.
    ///
    /// # Errors
    /// As [`Scenario::run`].
    pub fn state_at(&self, event: Option<usize>) -> Result<Arc<Peak>, RunError> {
        if let Some(state) = self.states().get(&event) {
            return Ok(Arc::clone(state));
        }
        let state = Arc::new(self.stage()?.look(self.opened, event, &mut ())?);
        self.states().insert(event, Arc::clone(&state));
        Ok(state)
    }

    /// What is held at the peak.
    ///
    /// # Errors
    /// As [`Scenario::run`].
    pub fn peak(&self) -> Result<Arc<Peak>, RunError> {
        self.state_at(self.peak_event()?)
    }

    /// Of each segment that is wholly free at the peak, by its free block's address, the request that had it last.
    /// Those that were not used since the run began are not there. Errors: as [`Scenario::run`].
    pub(crate) fn left_behind(&self) -> Result<&FxHashMap<u64, usize>, RunError> {
        if self.known.left.get().is_none() {
            self.look_at(&mut self.stage()?, &[], &mut ())?;
        }
        Ok(self.known.left.get_or_init(FxHashMap::default))
    }

    /// A run that has not begun, and that nothing is measured of.
    pub(crate) fn stage(&self) -> Result<Stage<'o>, RunError> {
        let setup = Setup { profile: None, ..self.setup.clone() };
        Stage::prepare(self.opened, &self.choice, &setup)
    }

    /// Carries out a whole run, which `observer` follows, and remembers what is held at the peak and at `events`.
    pub(crate) fn follow(
        &self,
        stage: &mut Stage<'_>,
        events: &[Option<usize>],
        observer: &mut impl Observer<Simulated>,
    ) -> Result<(), RunError> {
        self.look_at(stage, events, observer)?;
        stage.advance(self.opened.trace.events.len(), observer).map(drop)
    }

    fn look_at(
        &self,
        stage: &mut Stage<'_>,
        events: &[Option<usize>],
        observer: &mut impl Observer<Simulated>,
    ) -> Result<(), RunError> {
        let peak_event = self.peak_event()?;
        let mut wanted: Vec<Option<usize>> = events.iter().copied().chain([peak_event]).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut tenants = Tenants::new();
        for event in wanted {
            let state = stage.look(self.opened, event, &mut (&mut tenants, &mut *observer))?;
            if event == peak_event {
                let free = state.blocks.iter().map(|block| &block.view);
                let free = free.filter(|view| view.state == BlockUse::Free).collect::<Vec<_>>();
                let _ = self.known.left.set(tenants.take_last(&free));
            }
            self.states().insert(event, Arc::new(state));
        }
        Ok(())
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<Option<usize>, Arc<Peak>>> {
        self.known.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage<'_> {
    /// What is held after event number `event`, which was not carried out yet, or now.
    pub(super) fn look(
        &mut self,
        opened: &Opened,
        event: Option<usize>,
        observer: &mut impl Observer<Simulated>,
    ) -> Result<Peak, RunError> {
        let trace = &opened.trace;
        let Some(last) = event else {
            return Ok(state(trace, None, None, (self.allocator.as_ref(), &self.since(trace))));
        };
        let is_attempt = trace.events[last].kind == EventKind::Attempt;
        if last > 0 {
            // A run that ended early did so after its peak.
            let _ = self.advance(last, observer)?;
        }
        let since = if is_attempt { self.since(trace) } else { FxHashMap::default() };
        let mut glance = Glance { trace, last, since, seen: None };
        if self.replay.outcome.events == last {
            let _ = self.advance(last + 1, &mut (&mut glance, observer))?;
        }
        let got = self.replay.block(trace.events[last].alloc);
        let got = got.filter(|_| trace.events[last].kind == EventKind::Malloc);
        let now = || state(trace, event, got, (self.allocator.as_ref(), &self.since(trace)));
        Ok(glance.seen.unwrap_or_else(now))
    }

    /// The event that requested each block that is live.
    fn since(&self, trace: &Trace) -> FxHashMap<BlockId, usize> {
        let mut requests = vec![0; trace.allocs as usize];
        for (index, event) in trace.events[..self.replay.outcome.events].iter().enumerate() {
            if event.kind == EventKind::Malloc {
                requests[event.alloc.0 as usize] = index;
            }
        }
        self.replay.live().map(|(alloc, block)| (block, requests[alloc.0 as usize])).collect()
    }
}

/// Looks at what a request holds that is only tried, before it is given back.
struct Glance<'a> {
    trace: &'a Trace,
    last: usize,
    since: FxHashMap<BlockId, usize>,
    seen: Option<Peak>,
}

impl Observer<Simulated> for Glance<'_> {
    fn served(&mut self, step: &mut Step<'_, Simulated>, given: Option<Allocation>) {
        if step.index == self.last && step.event.kind == EventKind::Attempt {
            let got = given.map(|given| given.block);
            let now = (step.allocator, &self.since);
            self.seen = Some(state(self.trace, Some(self.last), got, now));
        }
    }
}

/// What `allocator` holds after event number `last`, which `got` a block; `since` are the requests of live blocks.
fn state(
    trace: &Trace,
    last: Option<usize>,
    got: Option<BlockId>,
    (allocator, since): (&dyn Allocator, &FxHashMap<BlockId, usize>),
) -> Peak {
    let views = allocator.blocks();
    let block = |&view: &BlockView| {
        // That of the last event, if no other is known.
        let request = view.block.and_then(|block| since.get(&block).copied().or(last));
        PeakBlock { view, since: request.map(|event| Moment::of(trace, event)) }
    };
    let blocks = views.iter().map(block).collect();
    let growth = last.map(|event| growth(&trace.events[event], got, &views));
    let causes = Causes::of(&views, growth.as_ref());
    let moment = last.map(|event| Moment::of(trace, event));
    Peak { moment, usage: allocator.usage(), growth, causes, blocks }
}

/// The request of `event`, and what it got.
fn growth(event: &Event, got: Option<BlockId>, views: &[BlockView]) -> Growth {
    let got = views.iter().find(|view| got.is_some() && view.block == got);
    Growth {
        requested: event.size,
        taken: got.map_or(event.size, |view| view.size),
        stream: event.stream,
        pool: event.pool,
        is_small: got.map_or(event.size <= SMALL_MAX, |view| view.kind == BlockKind::Small),
    }
}
