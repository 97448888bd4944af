//! `paddle-v2`: best fit over handles of one size, and free handles that move when memory is short (2026).
//!
//! All memory comes in handles of 2 MiB at the end of an arena; a free block there is extended. A block is cut to size.
//! When the device has no more handles, those that lie free are taken from where they are, and mapped side by
//! side: in the first hole that holds them all, if they serve the whole request; else at the end of the arena, behind
//! what is free there. Nothing is moved unless that is certain to be enough.
//!
//! ```text
//!   request 4, device full    [##|  |##|  |###]             2 free pages twice, and not side by side
//!   moved to the end          [##|- |##|- |###|    ]        the holes have addresses, but no memory
//! ```
//!
//! A handle is moved once: it stays at its new place until an `empty_cache` gives back all pages without a client.
//! Requests that do not fit after that are refused, even if other streams or the small pool hold free memory: they are
//! not asked (`StreamSafeCUDAAllocator::AllocateImpl`). Holes left by moves are backed anew only after an
//! `empty_cache`.
//!
//! Free memory is moved only if its stream is known to be done with it. Where the first attempt finds that it is not, a
//! request waits for up to ten seconds in Paddle (`FLAGS_gpu_allocator_retry_time`), and here until the GPU is idle.
//!
//! Not the same, or not seen: the default of `FLAGS_vmm_v2_large_pool_handle_size_in_mb` (here 2 MiB, as in the
//! last `allocator_facade.cc` that we could read); the lines that choose between hole and end, known from the review of
//! #79514, which says that scattered holes are no longer used; `ReleaseFreeHandleRanges`, known by its callers. A hole
//! that begins where a growth began whose handles were moved in part is an error of Paddle's own (`AlreadyExists`), and
//! an ordinary target here. Addresses that run out end a program there, and are out of memory here. Processes do not
//! share memory here (IPC).

use std::cmp::Reverse;

use super::blocks::{Block, Blocks, State};
use super::pages::{Pages, Short, Span};
use super::{Arena, Arenas, UNIT};
use crate::allocator::pool::{Place, Policy};
use crate::allocator::spec::settings;
use crate::allocator::{BlockView, Counter};
use crate::device::{Device, DeviceError, DevicePtr, GRANULE, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, round_up};

/// Addresses of a large pool, in times the card's memory; a small one has them once.
const LARGE_TIMES: u64 = 4;

settings! {
    PaddleV2Options {
        handle: Bytes = chunk("handle", "2MiB"), "size of the handles of a large pool";
        small_pool: Bytes = size("small_pool", "1MiB"),
            "requests below this have a pool of their own; 0: below 2 MiB";
        remap: bool = switch("remap", "on"), "move free handles together when memory is short";
    }
}

/// Paddle's second allocator over virtual memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct PaddleV2 {
    options: PaddleV2Options,
    arenas: Arenas<Pages>,
    moves: u64,
    moved: u64,
    waits: u64,
}

/// A request that could not be served, and what the growth for it found.
type Attempt = Result<u64, Short>;

impl PaddleV2 {
    pub(crate) fn new(options: PaddleV2Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Serves a request after free handles were moved, if that helps.
    fn recover(
        &mut self,
        device: &mut dyn Device,
        (number, size): (usize, Bytes),
        short: Short,
    ) -> Result<Attempt> {
        let arena = &mut self.arenas.list[number];
        if !self.options.remap || arena.is_small {
            return Ok(Err(short));
        }
        let moved = remap(arena, device, size, short)?;
        if moved == 0 {
            return Ok(Err(short));
        }
        self.moves += 1;
        self.moved += moved as u64;
        attempt(arena, device, size)
    }
}

/// Serves a request from a free block, from a hole that may be backed, or by growth.
fn attempt(arena: &mut Arena<Pages>, device: &mut dyn Device, size: Bytes) -> Result<Attempt> {
    if let Some((at, _)) = arena.blocks.best_fit(size) {
        arena.blocks.activate(at, size);
        return Ok(Ok(at));
    }
    if let Some(at) = back_hole(arena, device, size)? {
        return Ok(Ok(at));
    }
    let bytes = round_up(size - arena.blocks.tail_free(), arena.page);
    let end = arena.room(bytes)?;
    if let Err(short) = arena.backing.back(device, span(arena, end, bytes))? {
        return Ok(Err(short));
    }
    arena.blocks.add_merged(end, Block::fresh(bytes));
    let (at, _) = arena.blocks.tail().expect("it was extended");
    arena.blocks.activate(at, size);
    Ok(Ok(at))
}

fn span(arena: &Arena<Pages>, at: u64, size: Bytes) -> Span {
    let page = arena.page;
    let first = ((at - arena.at.0) / page) as usize;
    Span { base: arena.at, page, first, count: (size / page) as usize }
}

/// New memory in the smallest hole that holds a request, and is no part of a growth.
fn back_hole(
    arena: &mut Arena<Pages>,
    device: &mut dyn Device,
    size: Bytes,
) -> Result<Option<u64>> {
    let bytes = round_up(size, arena.page);
    let mut holes = arena.blocks.holes_from(bytes);
    let is_vacant = |at: &u64| {
        let Span { first, count, .. } = span(arena, *at, bytes);
        !arena.backing.is_claimed(first, count)
    };
    let Some(at) = holes.find(is_vacant) else { return Ok(None) };
    drop(holes);
    if arena.backing.back(device, span(arena, at, bytes))?.is_err() {
        return Ok(None);
    }
    arena.blocks.fill(at, bytes);
    arena.blocks.activate(at, size);
    Ok(Some(at))
}

/// Moves as many free handles together as a growth lacked: how many. None, if there are not enough.
fn remap(
    arena: &mut Arena<Pages>,
    device: &mut dyn Device,
    size: Bytes,
    short: Short,
) -> Result<usize> {
    let (page, count) = (arena.page, short.wanted - short.created);
    settle(arena, device);
    let sources = sources(arena, count);
    if count == 0 || sources.len() < count {
        return Ok(0);
    }
    let Some(at) = target(arena, count as u64 * page, round_up(size, page)) else { return Ok(0) };
    let to = span(arena, at, count as u64 * page);
    let address = |number: usize| arena.at.0 + number as u64 * page;
    if let Err((error, lost)) = arena.backing.move_to(device, &sources, to) {
        for number in lost {
            arena.blocks.punch(address(number), address(number + 1));
        }
        let is_short = matches!(error, DeviceError::OutOfMemory { .. });
        return if is_short { Ok(0) } else { Err(error) };
    }
    let is_end = at == arena.end();
    for &number in &sources {
        arena.blocks.punch(address(number), address(number + 1));
    }
    let bytes = count as u64 * page;
    if is_end {
        arena.blocks.add_merged(at, Block::fresh(bytes));
    } else {
        fill_hole(&mut arena.blocks, at, bytes);
    }
    arena.blocks.normalize();
    Ok(count)
}

/// Puts memory into a hole, which may have become part of a larger one.
fn fill_hole(blocks: &mut Blocks, at: u64, size: Bytes) {
    let (start, hole) = blocks.iter().take_while(|&(start, _)| start <= at).last().expect("a hole");
    if start < at {
        blocks.remove(start);
        blocks.add(start, Block::hole(at - start));
        blocks.add(at, Block::hole(start + hole.size - at));
    }
    blocks.fill(at, size);
}

/// Finds out whether the stream is done with free memory.
fn settle(arena: &mut Arena<Pages>, device: &mut dyn Device) {
    if arena.blocks.iter_free().any(|(_, block)| block.is_used) {
        let fence = device.fence(arena.stream);
        let is_idle = device.reached(fence);
        device.drop_fence(fence);
        if is_idle {
            arena.blocks.forget_users();
        }
    }
}

/// Up to `count` pages that are free as a whole and may be moved, from as few blocks as possible; in order of address.
/// The tail is not among them: a request can have it where it is.
fn sources(arena: &Arena<Pages>, count: usize) -> Vec<usize> {
    let page = arena.page;
    let tail = arena.blocks.tail().map(|(at, _)| at);
    let inside = |at: u64, size: Bytes| {
        let (start, end) = (at - arena.at.0, at + size - arena.at.0);
        start.div_ceil(page) as usize..(end / page) as usize
    };
    let free = arena.blocks.iter_free().filter(|&(at, block)| !block.is_used && Some(at) != tail);
    let mut ranges: Vec<_> = free.map(|(at, block)| inside(at, block.size)).collect();
    ranges.sort_by_key(|range| Reverse(range.len()));
    let pages = ranges.into_iter().flatten().filter(|&page| arena.backing.is_movable(page));
    let mut sources: Vec<usize> = pages.take(count).collect();
    sources.sort_unstable();
    sources
}

/// Where handles go: if they hold the whole request, the first hole that holds them, else the end of the arena.
fn target(arena: &Arena<Pages>, bytes: Bytes, request: Bytes) -> Option<u64> {
    let holes = arena.blocks.iter().filter(|(_, block)| block.state == State::Hole);
    let mut fitting = holes.filter(|(_, block)| bytes >= request && block.size >= bytes);
    fitting.next().map(|(at, _)| at).or_else(|| arena.room(bytes).ok())
}

/// Gives back every page that no client has anything of, and with the last one the addresses.
fn release_idle(arena: &mut Arena<Pages>, device: &mut dyn Device) {
    let page = arena.page;
    arena.blocks.normalize();
    let free: Vec<_> = arena.blocks.iter_free().map(|(at, block)| (at, block.size)).collect();
    for (at, size) in free {
        let start = arena.at.0 + round_up(at - arena.at.0, page);
        let end = arena.at.0 + (at + size - arena.at.0) / page * page;
        if start < end {
            arena.backing.release(device, span(arena, start, end - start));
            arena.blocks.punch(start, end);
        }
    }
    while let Some((at, block)) = arena.blocks.tail().filter(|(_, it)| it.state == State::Hole) {
        arena.backing.release(device, span(arena, at, block.size));
        arena.blocks.remove(at);
    }
}

impl Policy for PaddleV2 {
    fn round(&self, size: Bytes) -> Bytes {
        round_up(size, UNIT)
    }

    fn take(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place> {
        let PaddleV2Options { handle, small_pool, .. } = self.options;
        let is_small = size < if small_pool > 0 { small_pool } else { GRANULE };
        let (times, page) = if is_small { (1, GRANULE) } else { (LARGE_TIMES, handle) };
        let number = self.arenas.obtain(device, (stream, is_small), times, page)?;
        let mut answer = attempt(&mut self.arenas.list[number], device, size)?;
        if let Err(short) = answer {
            answer = self.recover(device, (number, size), short)?;
        }
        let blocks = &mut self.arenas.list[number].blocks;
        if let Err(short) = answer
            && self.options.remap
            && blocks.iter_free().any(|(_, block)| block.is_used)
        {
            device.synchronize();
            self.waits += 1;
            blocks.forget_users();
            answer = self.recover(device, (number, size), short)?;
        }
        let free = device.memory_info().free;
        let at = answer.map_err(|_| DeviceError::OutOfMemory { requested: size, free })?;
        Ok(Place { at: DevicePtr(at), size })
    }

    fn give(&mut self, _device: &mut dyn Device, place: Place, _stream: StreamId) {
        self.arenas.of(place.at).blocks.release(place.at.0);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        if self.held() > 0 {
            device.synchronize();
        }
        self.arenas.list.iter_mut().for_each(|arena| release_idle(arena, device));
        self.arenas.list.retain(|arena| {
            let is_empty = arena.blocks.tail().is_none();
            if is_empty {
                device.unreserve(arena.at, arena.size);
            }
            !is_empty
        });
    }

    fn held(&self) -> Bytes {
        self.arenas.list.iter().map(|arena| arena.backing.mapped * arena.page).sum()
    }

    fn segment(&self, at: DevicePtr) -> DevicePtr {
        self.arenas.segment(at)
    }

    fn free(&self) -> Vec<BlockView> {
        self.arenas.free()
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("remaps", self.moves), ("handles moved", self.moved), ("waits", self.waits)]
    }
}
