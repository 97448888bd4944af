//! The only event loop: a trace through an allocator on a device.
//!
//! It knows nothing of files, policies or clocks, and it does not hash: an event names its allocation by a dense
//! number, and `live` holds the block of each. Out of memory is a result; the program that we replay is taken to go
//! on without the memory that it did not get.

use std::ops::{ControlFlow, Range};

use crate::allocator::{AllocError, Allocator, BlockId, Request, Usage};
use crate::device::{Device, DeviceError};
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

/// Watches a run from outside; called after each event. It is a type parameter of the loop, so that
/// watching nothing costs nothing.
pub trait Observer {
    /// Event number `index` was carried out.
    fn after(&mut self, index: usize, event: &Event, allocator: &dyn Allocator);
}

/// Watches nothing.
impl Observer for () {
    #[inline]
    fn after(&mut self, _: usize, _: &Event, _: &dyn Allocator) {}
}

/// A replay in progress: which block holds which allocation, and what happened so far.
#[derive(Debug, Clone)]
pub struct Replay<'t> {
    trace: &'t Trace,
    live: Vec<Option<BlockId>>,
    on_oom: OnOom,
    is_hurried: bool,
    /// Who may be using what was let go of: a recording does not say which of them.
    streams: Vec<StreamId>,
    /// What happened so far.
    pub outcome: Outcome,
}

impl<'t> Replay<'t> {
    /// A replay that has not begun.
    #[must_use]
    pub fn new(trace: &'t Trace, on_oom: OnOom) -> Self {
        let live = vec![None; trace.allocs as usize];
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
            *live = Some(block);
        }
        self.outcome.events = self.trace.start_events;
    }

    /// Event number `index` of the trace.
    #[must_use]
    pub fn event(&self, index: usize) -> &'t Event {
        &self.trace.events[index]
    }

    /// The block of an allocation that is live.
    #[must_use]
    pub fn block(&self, alloc: AllocId) -> Option<BlockId> {
        self.live.get(alloc.0 as usize).copied().flatten()
    }

    /// Every live allocation with its block, in order.
    pub fn live(&self) -> impl Iterator<Item = (AllocId, BlockId)> + '_ {
        let all = self.live.iter().zip(0..);
        all.filter_map(|(block, alloc)| block.map(|block| (AllocId(alloc), block)))
    }

    /// Carries out the events in `range`, which begins where the last one ended, and says whether to go on.
    ///
    /// # Errors
    /// If the device fails in another way than by running out of memory.
    pub fn advance<O: Observer>(
        &mut self,
        range: Range<usize>,
        allocator: &mut dyn Allocator,
        device: &mut dyn Device,
        observer: &mut O,
    ) -> Result<ControlFlow<()>, DeviceError> {
        if range.start == 0 {
            allocator.foresee(&|| lifetimes(self.trace));
        }
        for index in range {
            let event = self.trace.events[index];
            match event.kind {
                EventKind::Malloc | EventKind::Attempt => {
                    self.malloc(index, &event, allocator, device)?;
                }
                EventKind::Free => {
                    if let Some(block) = self.live[event.alloc.0 as usize].take() {
                        allocator.free(device, block);
                    }
                }
                EventKind::FreeRequested => {
                    if let Some(block) = self.live[event.alloc.0 as usize] {
                        allocator.free_requested(block, &self.streams);
                    }
                }
                EventKind::FreeCompleted => {
                    if let Some(block) = self.live[event.alloc.0 as usize].take() {
                        allocator.free_completed(device, block);
                    }
                }
                EventKind::Trim if event.pool == PoolId::DEFAULT => allocator.trim(device),
                EventKind::Trim => allocator.release_pool(device, event.pool),
            }
            self.outcome.events = index + 1;
            if index.is_multiple_of(CLOCK) {
                device.elapse(CLOCK as u64, self.recorded_ns(index));
            }
            observer.after(index, &event, allocator);
            if self.on_oom == OnOom::Stop && !self.outcome.ooms.is_empty() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Time that the recorded program took for the last events of the clock.
    fn recorded_ns(&self, index: usize) -> u64 {
        let at = |index: usize| self.trace.times_us.get(index).copied().unwrap_or(0);
        let us = at(index).saturating_sub(at(index.saturating_sub(CLOCK)));
        if self.is_hurried { 0 } else { us * 1000 }
    }

    #[inline]
    fn malloc(
        &mut self,
        index: usize,
        event: &Event,
        allocator: &mut dyn Allocator,
        device: &mut dyn Device,
    ) -> Result<(), DeviceError> {
        let request = Request { size: event.size, stream: event.stream, pool: event.pool };
        match allocator.malloc(device, request) {
            Ok(given) if event.kind == EventKind::Attempt => allocator.free(device, given.block),
            Ok(given) => self.live[event.alloc.0 as usize] = Some(given.block),
            Err(AllocError::Device(error)) => return Err(error),
            Err(AllocError::OutOfMemory { requested, usage }) => {
                self.outcome.ooms.push(Oom { event: index, requested, usage });
            }
        }
        Ok(())
    }
}
