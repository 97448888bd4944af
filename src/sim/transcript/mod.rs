//! A simulated run, written down as PyTorch would have recorded it.
//!
//! ```text
//!   Replay ──malloc──▶ the allocator ──cuMemAlloc──▶ Watched ──▶ the simulated device
//!     │ alloc, free_requested, ...                     │ HeldSegments: segment_alloc, segment_map, ...
//!     └──▶ Scribe ──▶ entries, in PyTorch's order ◀────┘
//! ```
//!
//! The result is [`Records`], as if read from a file: written as a snapshot, PyTorch's viewer shows what another
//! allocator would have done. PyTorch's own allocator, simulated, gives a recording that `gmlake-sim verify` accepts.
//!
//! For allocators that stitch, a segment is a *mapped range of addresses*. Memory that is mapped twice is shown twice,
//! and as free where a tensor uses it through the other range: the segments add up to more than the memory held. Such a
//! snapshot is marked: only its requests are read.

mod tracks;

pub use tracks::{TracksError, write_tracks};

use std::ops::Range;

use super::opened::Opened;
use super::run::RunError;
use super::setup::Setup;
use crate::alloc_conf::AllocConf;
use crate::allocator::Choice;
use crate::allocator::{Allocation, Allocator, BlockId, BlockUse, BlockView, round_request};
use crate::device::{AddressPolicy, Device, SimDevice, Watched};
use crate::drive::{Observer, Replay, Step};
use crate::simulation::HeldSegments;
use crate::trace::{Action, Entry, EventKind, Marks, PoolId, Records, StreamId, Writer};
use crate::units::Bytes;
use rustc_hash::FxHashMap;

/// Runs a trace through an allocator, and returns what PyTorch would have recorded of it. Where the recording began in
/// the middle, what was live then is requested first.
///
/// # Errors
/// If an option is wrong, or the device fails in another way than by running out of memory.
pub fn transcribe(opened: &Opened, choice: &Choice, setup: &Setup) -> Result<Records, RunError> {
    let environment = setup.environment(opened);
    let is_pytorchs = ["caching", "expandable"].contains(&choice.spec.name);
    let conf = match is_pytorchs {
        true => settings(choice, &environment.conf, environment.version),
        false => AllocConf::default(),
    };
    let mut scribe = Scribe {
        opened,
        entries: Vec::with_capacity(2 * opened.trace.events.len()),
        given: FxHashMap::default(),
        pending: Vec::new(),
        origin_us: opened.records.entries.first().map_or(0, |entry| entry.time_us),
        now_us: 0,
        stack: Entry::NO_STACK,
        conf,
        is_pytorchs,
    };
    let (allocator, device) = follow(opened, choice, setup, &mut scribe)?;
    let written_by = Some(Writer::exactly(environment.version));
    Ok(Records { written_by, ..scribe.finish(allocator.as_ref(), &device.watch) })
}

/// A whole run, which `observer` follows.
fn follow(
    opened: &Opened,
    choice: &Choice,
    setup: &Setup,
    observer: &mut impl Observer<Watching>,
) -> Result<(Box<dyn Allocator>, Watching), RunError> {
    let mut setup = setup.clone();
    if !opened.start.is_empty() {
        setup.addresses.get_or_insert(AddressPolicy::Driver);
    }
    let mut allocator = choice.build(&setup.environment(opened), opened.has_private_pools())?;
    let mut device = Watched::new(setup.device(opened, choice), HeldSegments::default());
    let mut replay = Replay::new(&opened.trace, setup.on_oom);
    let range = 0..opened.trace.events.len();
    let flow = replay.advance(range, allocator.as_mut(), &mut device, observer);
    let _ = flow.map_err(|source| RunError::Device { event: replay.outcome.events, source })?;
    Ok((allocator, device))
}

/// The settings that a run of PyTorch's allocator had, as its snapshot should tell.
fn settings(
    choice: &Choice,
    conf: &AllocConf,
    version: crate::alloc_conf::TorchVersion,
) -> AllocConf {
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

/// Writes a run down.
struct Scribe<'o> {
    opened: &'o Opened,
    entries: Vec<Entry>,
    given: FxHashMap<BlockId, Given>,
    /// Freed by the program, and not yet by the streams.
    pending: Vec<BlockId>,
    /// When the recording began.
    origin_us: u64,
    /// When the event at hand was.
    now_us: u64,
    /// Call stack of the event at hand.
    stack: u32,
    conf: AllocConf,
    /// Whether PyTorch's own allocator is simulated.
    is_pytorchs: bool,
}

impl Scribe<'_> {
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
    fn write_calls(&mut self, step: &mut Step<'_, Watching>) {
        let calls = step.device.watch.take_calls();
        if calls.has_waited && !self.pending.is_empty() {
            self.write_completed(step.allocator);
        }
        for (action, range, place) in calls.made {
            self.write(action, range, place.stream, place.pool);
        }
    }

    fn write_completed(&mut self, allocator: &dyn Allocator) {
        let blocks = allocator.blocks().into_iter();
        let waiting = blocks.filter(|view| view.state == BlockUse::Pending);
        let waiting: Vec<_> = waiting.filter_map(|view| view.block).collect();
        let pending = std::mem::take(&mut self.pending);
        let (left, completed) = pending.into_iter().partition(|block| waiting.contains(block));
        self.pending = left;
        let completed: Vec<BlockId> = completed;
        completed.into_iter().for_each(|block| self.write_free_completed(block));
    }

    fn write_free(&mut self, block: BlockId) {
        if let Some(given) = self.given.remove(&block) {
            self.write_given(Action::FreeRequested, given);
            self.write_given(Action::FreeCompleted, given);
        }
    }

    fn write_free_completed(&mut self, block: BlockId) {
        if let Some(given) = self.given.remove(&block) {
            self.write_given(Action::FreeCompleted, given);
        }
    }

    fn finish(self, allocator: &dyn Allocator, held: &HeldSegments) -> Records {
        let opened = self.opened;
        let views = allocator.blocks();
        let stack_of = |view: &BlockView| {
            let given = self.given.get(&view.block?)?;
            Some((view.at.0, given.stack)).filter(|&(_, stack)| stack != Entry::NO_STACK)
        };
        let live_stacks = views.iter().filter_map(stack_of).collect();
        Records {
            device: opened.trace.device,
            has_pools: self.entries.iter().any(|entry| entry.pool != PoolId::DEFAULT),
            segments: held.segments(&views),
            entries: self.entries,
            has_segments: true,
            annotations: opened.records.annotations.clone(),
            stacks: opened.records.stacks.clone(),
            live_stacks,
            settings: Some(self.conf),
            streams: opened.trace.streams.clone(),
            pools: opened.records.pools.clone(),
            marks: Marks {
                is_virtual: opened.records.marks.is_virtual,
                is_partial: opened.coverage.is_partial(),
                is_simulated: !self.is_pytorchs,
            },
            ..Records::default()
        }
    }
}

/// The simulated device, with what is obtained from it.
type Watching = Watched<SimDevice, HeldSegments>;

impl Observer<Watching> for Scribe<'_> {
    fn before(&mut self, step: &mut Step<'_, Watching>) {
        let trace = &self.opened.trace;
        let elapsed_us = trace.times_us.get(step.index).copied().unwrap_or(0);
        self.now_us = self.origin_us + elapsed_us;
        self.stack = trace.stack_of(step.index);
        step.device.watch.begin(step.event.stream, step.event.pool);
    }

    fn served(&mut self, step: &mut Step<'_, Watching>, given: Option<Allocation>) {
        self.write_calls(step);
        let (size, stream, pool) = (step.event.size, step.event.stream, step.event.pool);
        let Some(served) = given else {
            let free = step.device.memory_info().free;
            let range = free..free + round_request(size, &self.conf);
            return self.write(Action::Oom, range, stream, pool);
        };
        step.device.watch.hand_out(served.at.0, served.size);
        let given = Given { at: served.at.0, requested: size, stream, pool, stack: self.stack };
        self.given.insert(served.block, given);
        self.write_given(Action::Alloc, given);
        if step.event.kind == EventKind::Attempt {
            self.write_free(served.block);
        }
    }

    fn after(&mut self, step: &mut Step<'_, Watching>) {
        match (step.event.kind, step.block) {
            (EventKind::Free, Some(block)) => self.write_free(block),
            (EventKind::FreeRequested, Some(block)) => {
                if let Some(&given) = self.given.get(&block) {
                    self.write_given(Action::FreeRequested, given);
                }
                self.pending.push(block);
            }
            (EventKind::FreeCompleted, Some(block)) => {
                self.pending.retain(|&other| other != block);
                self.write_free_completed(block);
            }
            _ => {}
        }
        self.write_calls(step);
    }
}
