//! `lake`: our own allocator. GMLake's idea, that free memory from here and there can be put together by mapping it
//! side by side, used as rarely as possible, since a driver call costs more than a search.
//!
//! Physical memory is held in *handles* of 8 to 32 MiB, not in chunks of 2 MiB: the driver charges for mapping by the
//! handle, whatever its size. All handles lie in one range of addresses, the [`arena`], so that free neighbours are
//! contiguous without any stitching. A request of more than 32 KiB goes to the first of these that has room:
//!
//! 1. where its like went when the program was last here ([`history`]);
//! 2. the smallest free block of the arena, or a part of a stitched range, a [view](views), that was in use not long
//!    ago;
//! 3. new memory, while reserved memory stays within the budget: the most bytes that were ever live, and 0.3 %
//!    ([`policy`]);
//! 4. the same as 2, in memory that other streams still use: the stream waits for them, on the GPU ([`streams`]);
//! 5. a new view, stitched of what is free, and of new memory if that is too little: the only way beyond the budget.
//!
//! ```text
//!   arena    ├──── h0 ────┼──── h1 ────┼──── h2 ────┼──── h3 ────┼──── h4 ────┤ ...grows to the right
//!            │   A    │░░░│░░░░░░░░░░░░│░░│   B    │   C    │░░░│░░░░│    D   │      ░ free
//!   E is longer than any free block, but not than all of them:
//!   view     ├──── h3 ────┼──── h1 ────┼──── h4 ────┤  the same memory, mapped a second time
//!                     │E E E E E E E E E E E E│
//! ```
//!
//! Only 3 and 5 make driver calls that cost anything; a free makes none. Nothing is unmapped for a request: handles may
//! be mapped any number of times, so that no one waits for the GPU.
//!
//! Four objects do this. The [`policy`] says how much may be held. The [`arena`] holds handles and cuts them into
//! blocks, [`views`] map them once more, and [`streams`] know who may use what was freed. [`Lake`] asks them in turn.
//!
//! *Tiny requests* share slabs of 2 MiB, which lie in the arena like tensors.
//!
//! *Out of memory.* The host waits for the GPU once, completes what was pending, gives back all idle handles, and tries
//! again. Nothing else gives memory back, except `empty_cache`.
//!
//! Sources: GMLake (ASPLOS 2024) for stitching, expandable segments (PyTorch) for the arena, measurements of the memory
//! calls on an H200 (`reports/vmm`). What it reaches, on which jobs: `reports/lake.md`.

mod addresses;
mod arena;
mod history;
mod policy;
mod streams;
mod views;
mod walk;

pub use policy::LakeOptions;

use rustc_hash::FxHashMap;

use self::arena::{Arena, Span};
use self::history::{Asked, History, Spot};
use self::policy::{Policy, STEP};
use self::streams::{Gate, Streams};
use self::views::{Placement, Recipe, Views};
use super::caching::{SMALL_SEGMENT, round_plain};
use super::live::{Live, LiveBlock};
use super::small_pool::SmallPool;
use super::{AllocResult, Allocator, BlockId, BlockView, Counter, NIL, Request, SlabIndex, Usage};
use crate::device::{Device, DeviceError, DevicePtr, GRANULE, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, KIB, round_up};

/// The largest request that is served from a slab: what comes in thousands.
const TINY: Bytes = 32 * KIB;

/// How often something was done.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    repeated: u64,
    growths: u64,
    borrowed: u64,
    handles_released: u64,
    host_waits: u64,
    ooms: u64,
}

/// Memory in use.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// The first block; the others are linked to it.
    block: SlabIndex,
    /// The view at whose addresses they are contiguous; `NIL`: in the arena.
    view: SlabIndex,
}

/// Where a tensor lives.
#[derive(Debug, Clone, Copy)]
enum Place {
    Small(SlabIndex),
    /// By itself.
    Large(Room),
}

/// The allocator.
#[derive(Debug, Clone, Default)]
pub struct Lake {
    policy: Policy,
    arena: Arena,
    views: Views,
    streams: Streams,
    small: SmallPool,
    /// Slabs of the small pool by address.
    slabs: FxHashMap<DevicePtr, Room>,
    live: Live<Place>,
    history: History,
    tally: Tally,
}

impl Lake {
    /// An allocator that holds nothing, and may come to hold `limit` bytes.
    pub fn new(options: LakeOptions, limit: Bytes) -> Self {
        Self { policy: Policy::new(options, limit), ..Self::default() }
    }

    /// A place for a request that is not tiny, taken into use.
    fn malloc_large(
        &mut self,
        device: &mut dyn Device,
        asked: Asked,
    ) -> Result<(DevicePtr, Place)> {
        let repeats = self.policy.repeats();
        let again = if repeats { self.place_again(asked) } else { None };
        let placement = match again {
            Some(placement) => placement,
            None => self.place_or_give_back(device, asked)?,
        };
        if repeats {
            let view = (placement.view != NIL).then(|| self.views.all.id(placement.view));
            self.history.note(asked, Spot { at: placement.at, view });
        }
        Ok((placement.at, Place::Large(self.occupy(device, asked, &placement))))
    }

    /// Where the same request went when the program was last here, if that is free.
    fn place_again(&mut self, asked: Asked) -> Option<Placement> {
        let Spot { at, view } = self.history.expect(asked)?;
        let Asked { stream, size } = asked;
        let placement = match view {
            None => Placement::in_arena(at.0..at.0 + size),
            Some(id) => {
                let view = self.views.all.find(id)?;
                let entry = &self.views.all[view];
                let begin = at.0 - entry.at.0;
                (!entry.is_broken)
                    .then(|| self.views.part(&self.arena, view, begin..begin + size))?
            }
        };
        let gate = self.widest(stream);
        let is_free = |span| self.arena.is_free(span) && self.arena.may_use(span, gate);
        let is_free = placement.spans.iter().all(is_free);
        self.tally.repeated += u64::from(is_free);
        is_free.then_some(placement)
    }

    /// Any place; if the device has no more memory, all that is idle is given back first.
    fn place_or_give_back(&mut self, device: &mut dyn Device, asked: Asked) -> Result<Placement> {
        match self.place(device, asked) {
            Err(DeviceError::OutOfMemory { .. }) => {
                self.policy.is_short = true;
                self.give_back(device);
                self.place(device, asked)
            }
            other => other,
        }
    }

    #[inline]
    fn place(&mut self, device: &mut dyn Device, asked: Asked) -> Result<Placement> {
        if let Some(placement) = self.fit(asked.size, self.streams.gate(asked.stream, false)) {
            return Ok(placement);
        }
        if let Some(placement) = self.grow_within(device, asked)? {
            return Ok(placement);
        }
        if self.streams.count() > 1
            && let Some(placement) = self.borrow(device, asked)
        {
            return Ok(placement);
        }
        self.place_stitched(device, asked)
    }

    /// Room that is mapped already: the smallest free block, or else part of a view. Finding it makes no driver call.
    #[inline]
    fn fit(&self, size: Bytes, gate: Gate<'_>) -> Option<Placement> {
        let found = self.arena.fit(size, gate).map(Placement::in_arena);
        found.or_else(|| self.views.fit(&self.arena, size, gate))
    }

    /// New memory within the budget, or `None`. What is free in front of it counts.
    #[cold]
    fn grow_within(
        &mut self,
        device: &mut dyn Device,
        Asked { stream, size }: Asked,
    ) -> Result<Option<Placement>> {
        let left = self.policy.left_in_budget(self.live.ledger.now().reserved);
        if left == 0 {
            return Ok(None);
        }
        let at = self.arena.addresses.place(device, round_up(size, GRANULE).max(STEP))?;
        let gate = self.streams.gate(stream, false);
        let is_usable =
            |free: &&Span| free.end - free.start < size && self.arena.may_use(free, gate);
        let begin = self.arena.tail(at).filter(is_usable).map_or(at.0, |free| free.start);
        let missing = round_up(begin + size - at.0, GRANULE);
        let Some(amount) = Policy::growth(missing, left) else { return Ok(None) };
        match self.create(device, at, (amount, size)) {
            Err(DeviceError::OutOfMemory { .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => {
                self.tally.growths += 1;
                Ok(Some(Placement::in_arena(begin..begin + size)))
            }
        }
    }

    /// New handles of nearly equal sizes from `at` on, `amount` bytes for a request of `size` bytes. After an error
    /// nothing has changed.
    fn create(
        &mut self,
        device: &mut dyn Device,
        at: DevicePtr,
        (amount, size): (Bytes, Bytes),
    ) -> Result<()> {
        let allowed = self.policy.left(self.live.ledger.now().reserved);
        let free = device.memory_info().free.min(allowed);
        if amount > free {
            return Err(DeviceError::OutOfMemory { requested: amount, free });
        }
        let count = amount.div_ceil(self.policy.handle_size(size, free));
        let each = round_up(amount.div_ceil(count), GRANULE);
        self.arena.create(device, at, (amount, each))?;
        self.live.ledger.grow(amount);
        Ok(())
    }

    /// A place where other streams were a moment ago, or that the stream has to wait for.
    #[cold]
    fn borrow(&mut self, device: &mut dyn Device, asked: Asked) -> Option<Placement> {
        self.streams.poll(device);
        let settled = self.fit(asked.size, self.streams.gate(asked.stream, false));
        let placement = settled.or_else(|| self.fit(asked.size, self.widest(asked.stream)))?;
        self.tally.borrowed += 1;
        Some(placement)
    }

    /// A place put together of what is free, and of new memory if that is too little.
    #[cold]
    fn place_stitched(&mut self, device: &mut dyn Device, asked: Asked) -> Result<Placement> {
        let mut recipe = Recipe::of(&self.arena, asked.size, self.widest(asked.stream));
        if recipe.size < asked.size {
            let missing = round_up(asked.size - recipe.size, GRANULE);
            let at = self.arena.addresses.place(device, missing)?;
            self.create(device, at, (missing, asked.size))?;
            recipe.add(self.arena.handles_in(&(at.0..at.0 + missing)));
        }
        let most = self.policy.options.views;
        if recipe.is_stitched() && self.views.count >= most {
            self.streams.mark(device);
            self.streams.poll(device);
            self.views.drop_idle(device, &mut self.arena, (&self.streams, most * 7 / 8));
        }
        self.views.stitch(device, &mut self.arena, &recipe, asked.size)
    }

    /// All that a stream may use, if need be after a wait.
    fn widest(&self, stream: StreamId) -> Gate<'_> {
        self.streams.gate(stream, self.policy.options.waits)
    }

    /// Takes a placement into use. The stream waits for others where it must.
    #[inline]
    fn occupy(&mut self, device: &mut dyn Device, asked: Asked, placement: &Placement) -> Room {
        let (mut first, mut last) = (NIL, NIL);
        for span in &placement.spans {
            if self.streams.count() > 1 {
                let users = self.arena.users_in(span);
                self.streams.wait_for_all(device, asked.stream, users);
            }
            let taken = self.arena.take(span);
            match last {
                NIL => first = taken,
                last => self.arena.blocks[last].link = taken,
            }
            last = taken;
        }
        if placement.view != NIL {
            self.views.note_use(placement.view);
        }
        Room { block: first, view: placement.view }
    }

    /// A block in a slab.
    #[inline]
    fn malloc_tiny(&mut self, device: &mut dyn Device, asked: Asked) -> Result<(DevicePtr, Place)> {
        if let Some(block) = self.small.malloc(asked.size, asked.stream) {
            return Ok((self.small.block(block).at, Place::Small(block)));
        }
        match self.add_slab(device, asked.stream) {
            Ok(()) => self.malloc_tiny(device, asked),
            Err(DeviceError::OutOfMemory { .. }) => self.malloc_large(device, asked),
            Err(error) => Err(error),
        }
    }

    /// One more slab, wherever it fits.
    #[cold]
    fn add_slab(&mut self, device: &mut dyn Device, stream: StreamId) -> Result<()> {
        let slab = Asked { stream, size: SMALL_SEGMENT };
        let placement = self.place_or_give_back(device, slab)?;
        let room = self.occupy(device, slab, &placement);
        self.slabs.insert(placement.at, room);
        self.small.adopt(placement.at, stream);
        Ok(())
    }

    /// Gives back slabs that are empty.
    fn drop_idle_slabs(&mut self) {
        for (at, stream) in self.small.take_idle() {
            let room = self.slabs.remove(&at).expect("a slab has its room");
            self.return_room(room, stream);
        }
    }

    /// Waits for the GPU, and gives back all memory that is idle.
    fn give_back(&mut self, device: &mut dyn Device) {
        device.synchronize();
        self.tally.host_waits += 1;
        self.live.take_pending().into_iter().for_each(|block| self.take_back(&block));
        self.drop_idle_slabs();
        self.streams.finish(device);
        let Self { arena, views, streams, live, tally, .. } = self;
        views.drop_idle(device, arena, (streams, 0));
        for handle in arena.held() {
            let entry = &arena.handles[handle];
            if arena.is_free(&entry.span) {
                live.ledger.shrink(entry.size());
                views.unmap_handle(device, arena, handle);
                arena.release(device, handle);
                tally.handles_released += 1;
            }
        }
        arena.addresses.drop_empty(device);
    }

    /// Takes back the memory of a block that no one uses any more.
    #[inline]
    fn take_back(&mut self, block: &LiveBlock<Place>) {
        match block.place {
            Place::Small(small) => self.small.free(small),
            Place::Large(room) => self.return_room(room, block.stream),
        }
    }

    #[inline]
    fn return_room(&mut self, room: Room, stream: StreamId) {
        let epoch = self.streams.note_free(stream);
        if room.view != NIL {
            self.views.note_free(&mut self.arena, room.view, (stream, epoch));
        }
        let mut block = room.block;
        while block != NIL {
            let next = self.arena.blocks[block].link;
            self.views.lift_bounds(self.arena.give(block, stream, epoch));
            block = next;
        }
    }
}

impl Allocator for Lake {
    #[inline]
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        let size = round_plain(request.size);
        let asked = Asked { stream: request.stream, size };
        self.streams.turn_to(device, request.stream);
        let peak_before = self.policy.live_peak;
        self.policy.live_peak = peak_before.max(self.live.ledger.now().active + size);
        let served = if size <= TINY {
            self.malloc_tiny(device, asked)
        } else {
            self.malloc_large(device, asked)
        };
        match served {
            Ok((at, place)) => Ok(self.live.hand_out(place, at, request, size)),
            Err(error) => {
                self.policy.live_peak = peak_before;
                self.tally.ooms += u64::from(matches!(error, DeviceError::OutOfMemory { .. }));
                Err(self.live.explain(error, request.size))
            }
        }
    }

    fn free_requested(&mut self, block: BlockId, _users: &[StreamId]) {
        self.live.request_free(block);
    }

    fn free_completed(&mut self, _device: &mut dyn Device, block: BlockId) {
        if let Some(block) = self.live.complete(block) {
            self.take_back(&block);
        }
    }

    #[inline]
    fn free(&mut self, _device: &mut dyn Device, block: BlockId) {
        let block = self.live.free(block);
        self.take_back(&block);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.give_back(device);
    }

    fn usage(&self) -> Usage {
        self.live.ledger.now()
    }

    fn peak(&self) -> Usage {
        self.live.ledger.peak()
    }

    fn counters(&self) -> Vec<Counter> {
        let tally = self.tally;
        vec![
            ("repeated", tally.repeated),
            ("growths", tally.growths),
            ("borrowed", tally.borrowed),
            ("stream_waits", self.streams.waits),
            ("host_waits", tally.host_waits),
            ("views_made", self.views.made),
            ("views_dropped", self.views.dropped),
            ("views_open", self.views.count as u64),
            ("handles", self.arena.count),
            ("handles_stitched", self.views.handles_stitched),
            ("handles_released", tally.handles_released),
            ("stitched_bytes", self.views.stitched),
            ("oom", tally.ooms),
        ]
    }

    fn blocks(&self) -> Vec<BlockView> {
        self.all_blocks()
    }
}

#[cfg(test)]
mod tests;
