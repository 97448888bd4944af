//! The only event loop: a trace through an allocator on a device.
//!
//! It knows nothing of files, policies or clocks, and it does not hash: an event names its allocation by a dense
//! number, and `live` holds the block of each. Out of memory is a result; the program that we replay is taken to go
//! on without the memory that it did not get.

use std::ops::{ControlFlow, Range};

use crate::allocator::{AllocError, Allocation, Allocator, BlockId, NIL, Request, Usage};
use crate::device::{Device, Result};
use gmlake_core::program::{AllocId, Event, EventKind, PoolId, StreamId, Trace, lifetimes};
use gmlake_core::units::Bytes;

/// The device's clock advances by many events at a time: advancing by each would cost more than most events.
const CLOCK: usize = 32;

/// What to do when the allocator has no memory for a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnOom {
    /// Go on without it; its free is skipped.
    #[default]
    Skip,
    /// End the run there.
    Stop,
}

/// One request that was not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oom {
    /// Index of the event.
    pub event: usize,
    /// Bytes asked for.
    pub requested: Bytes,
    /// The allocator's usage at that moment.
    pub usage: Usage,
}

/// What happened in a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Requests that were not served, in order.
    pub ooms: Vec<Oom>,
    /// Events that were carried out.
    pub events: usize,
}

/// Watches a run from outside. It is a type parameter of the loop, so that watching nothing costs nothing.
///
/// Which driver calls an event led to is known to those who watch the device ([`Watched`](crate::device::Watched)):
/// they are at hand here.
pub trait Observer<D> {
    /// The event is about to be carried out.
    #[inline]
    fn before(&mut self, _step: &mut Step<'_, D>) {}

    /// A request was served, or not. What one that is only tried got is given back after this.
    #[inline]
    fn served(&mut self, _step: &mut Step<'_, D>, _given: Option<Allocation>) {}

    /// The event was carried out.
    #[inline]
    fn after(&mut self, _step: &mut Step<'_, D>) {}
}

/// An event that is carried out.
pub struct Step<'a, D> {
    /// Its index.
    pub index: usize,
    /// The event itself.
    pub event: &'a Event,
    /// The block that it lets go of, or that was just served.
    pub block: Option<BlockId>,
    /// The allocator.
    pub allocator: &'a dyn Allocator,
    /// The device, with those who watch it.
    pub device: &'a mut D,
}

/// Watches nothing.
impl<D> Observer<D> for () {}

/// Watches if there is somebody.
impl<D, O: Observer<D>> Observer<D> for Option<O> {
    fn before(&mut self, step: &mut Step<'_, D>) {
        self.iter_mut().for_each(|observer| observer.before(step));
    }

    fn served(&mut self, step: &mut Step<'_, D>, given: Option<Allocation>) {
        self.iter_mut().for_each(|observer| observer.served(step, given));
    }

    fn after(&mut self, step: &mut Step<'_, D>) {
        self.iter_mut().for_each(|observer| observer.after(step));
    }
}

/// Two watch, the first one first.
impl<D, A: Observer<D>, B: Observer<D>> Observer<D> for (&mut A, &mut B) {
    fn before(&mut self, step: &mut Step<'_, D>) {
        self.0.before(step);
        self.1.before(step);
    }

    fn served(&mut self, step: &mut Step<'_, D>, given: Option<Allocation>) {
        self.0.served(step, given);
        self.1.served(step, given);
    }

    fn after(&mut self, step: &mut Step<'_, D>) {
        self.0.after(step);
        self.1.after(step);
    }
}

/// The block of an allocation that is not live, in two thirds of the bytes of an `Option`.
const NO_BLOCK: BlockId = BlockId { index: NIL, generation: 0 };

#[inline]
fn known(block: BlockId) -> Option<BlockId> {
    (block.index != NIL).then_some(block)
}

/// A replay in progress: which block holds which allocation, and what happened so far.
#[derive(Debug, Clone)]
pub struct Replay<'t> {
    trace: &'t Trace,
    live: Vec<BlockId>,
    on_oom: OnOom,
    is_hurried: bool,
    /// Who may be using what was let go of: a recording does not say which of them.
    streams: Vec<StreamId>,
    /// What happened so far.
    pub outcome: Outcome,
}

impl<'t> Replay<'t> {
    /// A replay that has not begun.
    pub fn new(trace: &'t Trace, on_oom: OnOom) -> Self {
        let live = vec![NO_BLOCK; trace.allocs as usize];
        let streams = (0..trace.streams.len()).map(|place| StreamId(place as u16)).collect();
        Self { trace, live, on_oom, is_hurried: false, streams, outcome: Outcome::default() }
    }

    /// The same replay, one event right after the other: no time passes on the device in between.
    #[must_use]
    pub fn hurried(self) -> Self {
        Self { is_hurried: true, ..self }
    }

    /// Takes the first events of the trace as carried out, since the allocator holds the blocks that they ask for
    /// already (see [`Allocator::restore`]): `blocks` in the order of the allocation ids.
    ///
    /// # Panics
    /// If there are more blocks than allocations.
    pub fn adopt(&mut self, blocks: &[BlockId]) {
        for (live, &block) in self.live[..blocks.len()].iter_mut().zip(blocks) {
            *live = block;
        }
        self.outcome.events = self.trace.start_events;
    }

    /// Event number `index` of the trace.
    pub fn event(&self, index: usize) -> &'t Event {
        &self.trace.events[index]
    }

    /// The block of an allocation that is live.
    pub fn block(&self, alloc: AllocId) -> Option<BlockId> {
        self.live.get(alloc.0 as usize).copied().and_then(known)
    }

    /// Every live allocation with its block, in order.
    pub fn live(&self) -> impl Iterator<Item = (AllocId, BlockId)> + '_ {
        let all = self.live.iter().zip(0..);
        all.filter_map(|(&block, alloc)| known(block).map(|block| (AllocId(alloc), block)))
    }

    /// Carries out the events in `range`, which begins where the last one ended, and says whether to go on.
    ///
    /// # Errors
    /// If the device fails in another way than by running out of memory.
    pub fn advance<D: Device, O: Observer<D>>(
        &mut self,
        range: Range<usize>,
        allocator: &mut dyn Allocator,
        device: &mut D,
        observer: &mut O,
    ) -> Result<ControlFlow<()>> {
        if range.start == 0 {
            allocator.foresee(&|| lifetimes(self.trace));
        }
        let stops = self.on_oom == OnOom::Stop;
        let numbered = range.clone().zip(&self.trace.events[range]);
        for (index, event) in numbered {
            let numbered = (index, event);
            let block = match event.kind {
                EventKind::Malloc | EventKind::Attempt => {
                    self.malloc(numbered, allocator, device, observer)?;
                    None
                }
                EventKind::Free => self.free(numbered, allocator, device, observer),
                _ => self.carry_out(numbered, allocator, device, observer),
            };
            self.outcome.events = index + 1;
            if index.is_multiple_of(CLOCK) {
                self.tick(index, device);
            }
            observer.after(&mut Step { index, event, block, allocator, device });
            if stops && !self.outcome.ooms.is_empty() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The device's clock advances by as much as the recorded program took for the last events.
    #[inline(never)]
    fn tick<D: Device>(&self, index: usize, device: &mut D) {
        let at = |index: usize| self.trace.times_us.get(index).copied().unwrap_or(0);
        let us = at(index).saturating_sub(at(index.saturating_sub(CLOCK)));
        device.elapse(CLOCK as u64, if self.is_hurried { 0 } else { us * 1000 });
    }

    #[inline]
    fn free<D: Device, O: Observer<D>>(
        &mut self,
        (index, event): (usize, &Event),
        allocator: &mut dyn Allocator,
        device: &mut D,
        observer: &mut O,
    ) -> Option<BlockId> {
        let live = &mut self.live[event.alloc.0 as usize];
        let block = known(std::mem::replace(live, NO_BLOCK));
        observer.before(&mut Step { index, event, block, allocator, device });
        if let Some(block) = block {
            allocator.free(device, block);
        }
        block
    }

    /// What is neither a request nor a plain free. Apart from those, the loop needs no table of jumps.
    #[inline(never)]
    fn carry_out<D: Device, O: Observer<D>>(
        &mut self,
        (index, event): (usize, &Event),
        allocator: &mut dyn Allocator,
        device: &mut D,
        observer: &mut O,
    ) -> Option<BlockId> {
        let alloc = event.alloc.0 as usize;
        let block = match event.kind {
            EventKind::FreeRequested => known(self.live[alloc]),
            EventKind::FreeCompleted => known(std::mem::replace(&mut self.live[alloc], NO_BLOCK)),
            _ => None,
        };
        observer.before(&mut Step { index, event, block, allocator, device });
        match (event.kind, block) {
            (EventKind::FreeRequested, Some(block)) => {
                allocator.free_requested(block, &self.streams);
            }
            (EventKind::FreeCompleted, Some(block)) => allocator.free_completed(device, block),
            (EventKind::Trim, _) if event.pool == PoolId::DEFAULT => allocator.trim(device),
            (EventKind::Trim, _) => allocator.release_pool(device, event.pool),
            _ => {}
        }
        block
    }

    #[inline]
    fn malloc<D: Device, O: Observer<D>>(
        &mut self,
        (index, event): (usize, &Event),
        allocator: &mut dyn Allocator,
        device: &mut D,
        observer: &mut O,
    ) -> Result<()> {
        let block = None;
        observer.before(&mut Step { index, event, block, allocator, device });
        let request = Request { size: event.size, stream: event.stream, pool: event.pool };
        match allocator.malloc(device, request) {
            Ok(given) => {
                let block = Some(given.block);
                observer.served(&mut Step { index, event, block, allocator, device }, Some(given));
                if event.kind == EventKind::Attempt {
                    allocator.free(device, given.block);
                } else {
                    self.live[event.alloc.0 as usize] = given.block;
                }
            }
            Err(AllocError::Device(error)) => return Err(error),
            Err(AllocError::OutOfMemory { requested, usage }) => {
                self.outcome.ooms.push(Oom { event: index, requested, usage });
                observer.served(&mut Step { index, event, block: None, allocator, device }, None);
            }
        }
        Ok(())
    }
}
