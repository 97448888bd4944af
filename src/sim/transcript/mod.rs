//! A simulated run, written down as PyTorch would have recorded it.
//!
//! ```text
//!   Replay ──malloc──▶ Scribe ──malloc──▶ the allocator ──cuMemAlloc──▶ Tap ──▶ the simulated device
//!                        │ alloc, free_requested, ...                    │ segment_alloc, segment_map, ...
//!                        └──────────────▶ entries, in PyTorch's order ◀──┘
//! ```
//!
//! The result is [`Records`], as if read from a file: written as a snapshot, PyTorch's viewer shows what another
//! allocator would have done. PyTorch's own allocator, simulated, gives a recording that `gmlake-sim verify` accepts.
//!
//! For allocators that stitch, a segment is a *mapped range of addresses*. Memory that is mapped twice is shown twice,
//! and as free where a tensor uses it through the other range: the segments add up to more than the memory held.

mod tracks;

pub use tracks::{TracksError, write_tracks};

use std::ops::Range;

use super::ground::{Ground, Tap};
use super::opened::Opened;
use super::run::RunError;
use super::setup::Setup;
use crate::alloc_conf::AllocConf;
use crate::allocator::Choice;
use crate::allocator::{
    AllocError, Allocation, Allocator, BlockId, BlockUse, BlockView, Request, Usage, round_request,
};
use crate::device::{AddressPolicy, Device};
use crate::drive::Replay;
use crate::trace::{Action, Entry, Lifetime, PoolId, Records, StreamId, Writer};
use crate::units::Bytes;
use rustc_hash::FxHashMap;

/// Runs a trace through an allocator, and returns what PyTorch would have recorded of it. Where the recording began in
/// the middle, what was live then is requested first.
///
/// # Errors
/// If an option is wrong, or the device fails in another way than by running out of memory.
pub fn transcribe(opened: &Opened, choice: &Choice, setup: &Setup) -> Result<Records, RunError> {
    let mut setup = setup.clone();
    if !opened.start.is_empty() {
        setup.addresses.get_or_insert(AddressPolicy::Driver);
    }
    let environment = setup.environment(opened);
    let conf = settings(choice, &environment.conf, environment.version);
    let origin_us = opened.records.entries.first().map_or(0, |entry| entry.time_us);
    let mut scribe = Scribe {
        inner: choice.spec.build(&choice.options, &environment)?,
        ground: Ground::default(),
        entries: Vec::with_capacity(2 * opened.trace.events.len()),
        given: FxHashMap::default(),
        pending: Vec::new(),
        now_us: origin_us,
        stack: Entry::NO_STACK,
        conf,
    };
    let mut device = setup.device(opened, choice);
    let mut replay = Replay::new(&opened.trace, setup.on_oom);
    for event in 0..opened.trace.events.len() {
        scribe.now_us = origin_us + opened.trace.times_us.get(event).copied().unwrap_or(0);
        scribe.stack = opened.trace.stack_of(event);
        let next = replay.advance(event..event + 1, &mut scribe, &mut device, &mut ());
        if next.map_err(|source| RunError::Device { event, source })?.is_break() {
            break;
        }
    }
    let written_by = Some(Writer::exactly(environment.version));
    Ok(Records { written_by, ..scribe.finish(opened) })
}

/// The settings that the run had, as its snapshot should tell.
fn settings(
    choice: &Choice,
    conf: &AllocConf,
    version: crate::alloc_conf::TorchVersion,
) -> AllocConf {
    let is_pytorch = ["caching", "expandable"].contains(&choice.spec.name);
    if !is_pytorch {
        return AllocConf::default();
    }
    let options = choice.options.rows().join(",").replace('=', ":");
    let mut conf = conf.with(&options, version).unwrap_or_else(|_| conf.clone());
    conf.expandable_segments = choice.spec.name == "expandable";
    conf
}

/// A block in the program's hands.
#[derive(Debug, Clone, Copy)]
struct Given {
    at: u64,
    requested: Bytes,
    stream: StreamId,
    pool: PoolId,
    stack: u32,
}

/// An allocator whose doings are written down.
struct Scribe {
    inner: Box<dyn Allocator>,
    ground: Ground,
    entries: Vec<Entry>,
    given: FxHashMap<BlockId, Given>,
    /// Freed by the program, and not yet by the streams.
    pending: Vec<BlockId>,
    now_us: u64,
    /// Call stack of the event at hand.
    stack: u32,
    conf: AllocConf,
}

impl Scribe {
    fn write(&mut self, action: Action, range: Range<u64>, stream: StreamId, pool: PoolId) {
        let (time_us, stack) = (self.now_us, self.stack);
        let (addr, size) = (range.start, range.end - range.start);
        self.entries.push(Entry { addr, size, time_us, stack, stream, action, pool });
    }

    fn write_given(&mut self, action: Action, given: Given) {
        let range = given.at..given.at + given.requested;
        // Without a stack of its own, a free has that of the request, as in PyTorch.
        let stack = std::mem::replace(&mut self.stack, given.stack);
        self.write(action, range, given.stream, given.pool);
        self.stack = stack;
    }

    /// Writes what the allocator asked of the device, after the frees that it completed by waiting for the GPU.
    fn write_calls(&mut self) {
        let calls = self.ground.take_calls();
        if calls.has_waited && !self.pending.is_empty() {
            self.write_completed();
        }
        for (action, range, place) in calls.made {
            self.write(action, range, place.stream, place.pool);
        }
    }

    fn write_completed(&mut self) {
        let mut waiting = Vec::new();
        self.inner.walk(&mut |view| {
            waiting.extend(view.block.filter(|_| view.state == BlockUse::Pending));
        });
        let pending = std::mem::take(&mut self.pending);
        let (left, completed) = pending.into_iter().partition(|block| waiting.contains(block));
        self.pending = left;
        let completed: Vec<BlockId> = completed;
        completed.into_iter().for_each(|block| self.write_free_completed(block));
    }

    fn write_free_completed(&mut self, block: BlockId) {
        if let Some(given) = self.given.remove(&block) {
            self.write_given(Action::FreeCompleted, given);
        }
    }

    fn finish(self, opened: &Opened) -> Records {
        let mut views = Vec::new();
        self.inner.walk(&mut |view| views.push(view));
        let stack_of = |view: &BlockView| {
            let given = self.given.get(&view.block?)?;
            Some((view.at.0, given.stack)).filter(|&(_, stack)| stack != Entry::NO_STACK)
        };
        let live_stacks = views.iter().filter_map(stack_of).collect();
        Records {
            device: opened.trace.device,
            has_pools: self.entries.iter().any(|entry| entry.pool != PoolId::DEFAULT),
            segments: self.ground.segments(&views),
            entries: self.entries,
            has_segments: true,
            annotations: opened.records.annotations.clone(),
            stacks: opened.records.stacks.clone(),
            live_stacks,
            settings: Some(self.conf),
            streams: opened.trace.streams.clone(),
            pools: opened.records.pools.clone(),
            is_virtual: opened.records.is_virtual,
            ..Records::default()
        }
    }
}

impl Allocator for Scribe {
    fn malloc(
        &mut self,
        device: &mut dyn Device,
        request: Request,
    ) -> Result<Allocation, AllocError> {
        let Request { size, stream, pool } = request;
        self.ground.begin(stream, pool);
        let result = self.inner.malloc(&mut Tap::new(device, &mut self.ground), request);
        self.write_calls();
        match &result {
            Ok(given) => {
                self.ground.hand_out(given.at.0, given.size);
                let stack = self.stack;
                let given_out = Given { at: given.at.0, requested: size, stream, pool, stack };
                self.given.insert(given.block, given_out);
                self.write_given(Action::Alloc, given_out);
            }
            Err(AllocError::OutOfMemory { .. }) => {
                let free = device.memory_info().free;
                let range = free..free + round_request(size, &self.conf);
                self.write(Action::Oom, range, stream, pool);
            }
            Err(AllocError::Device(_)) => {}
        }
        result
    }

    fn free_requested(&mut self, block: BlockId, users: &[StreamId]) {
        if let Some(&given) = self.given.get(&block) {
            self.write_given(Action::FreeRequested, given);
        }
        self.pending.push(block);
        self.inner.free_requested(block, users);
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        self.inner.free_completed(&mut Tap::new(device, &mut self.ground), block);
        self.pending.retain(|&other| other != block);
        self.write_free_completed(block);
        self.write_calls();
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        if let Some(given) = self.given.remove(&block) {
            self.write_given(Action::FreeRequested, given);
            self.write_given(Action::FreeCompleted, given);
        }
        self.inner.free(&mut Tap::new(device, &mut self.ground), block);
        self.write_calls();
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.inner.trim(&mut Tap::new(device, &mut self.ground));
        self.write_calls();
    }

    fn release_pool(&mut self, device: &mut dyn Device, pool: PoolId) {
        self.inner.release_pool(&mut Tap::new(device, &mut self.ground), pool);
        self.write_calls();
    }

    fn foresee(&mut self, lifetimes: &dyn Fn() -> Vec<Lifetime>) {
        self.inner.foresee(lifetimes);
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn peak(&self) -> Usage {
        self.inner.peak()
    }

    fn walk(&self, visit: &mut dyn FnMut(BlockView)) {
        self.inner.walk(visit);
    }
}
