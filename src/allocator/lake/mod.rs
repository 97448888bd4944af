//! `lake`: our own allocator. GMLake's idea, that free memory from here and there can be put together by mapping it
//! side by side, used as rarely as possible, since a driver call costs more than a search.
//!
//! Physical memory is held in *handles* of up to 68 MiB, not in chunks of 2 MiB: the driver charges for mapping by the
//! handle, whatever its size. All handles lie in one long address range, the *arena*, each right behind the one before,
//! so that free neighbours are contiguous without any stitching, and handles are cut into *pieces* to the nearest 512
//! bytes, so that large handles waste little.
//!
//! ```text
//!   arena    ├──── h0 ────┼──── h1 ────┼──── h2 ────┼──── h3 ────┼──── h4 ────┤ ...grows to the right
//!            │   A    │░░░│░░░░░░░░░░░░│░░│   B    │   C    │░░░│░░░░│    D   │      ░ free
//!                     ╰── suffix ─ whole ─ prefix: one run of three ──╯
//!   E, longer than any run, but not than what is free:
//!   view     ├──── h3 ────┼──── h1 ────┼──── h4 ────┤  the same memory, mapped a second time
//!                     │E E E E E E E E E E E E│
//! ```
//!
//! A request of more than 32 KiB goes where its like went when the program was last here, if that place is free
//! ([`repeat`]). Otherwise it goes, in this order, to
//!
//! 1. the smallest *partial* piece that fits, then two partial pieces side by side: idle handles stay whole;
//! 2. the shortest *run* of the arena, used up from where it ends inside a handle; if it does not, large requests go
//!    to the right and smaller ones to the left, so that they do not come to lie between each other;
//! 3. the shortest run of a *view* made earlier: a part of a view is as good as the whole of it;
//! 4. new memory, while reserved memory stays within the *budget*: the most bytes that were ever live, and 0.3 %;
//! 5. a new view, *composed* of free memory: the largest suffix, idle handles from the largest down, the largest
//!    prefix; or new memory, if live memory is at its record and that is cheap ([`growth`]);
//! 6. a new view with new memory for what is missing: the only way beyond the budget.
//!
//! Only 4, 5 and 6 make driver calls; a free makes none. Nothing is unmapped for a request: handles may be mapped any
//! number of times, so nobody waits for the GPU.
//!
//! *Streams.* Each handle has an owner, and steps 1 to 4 look at the stream's own handles alone. Before anything is
//! stitched, room is looked for among what other streams own and are known to be done with, which costs nothing, and
//! first [`beside`] what is left of the stream's own. Before memory grows beyond the budget, what the stream has to
//! wait for is taken too, on the GPU ([`streams`]). Who takes of an idle handle owns it from then on. What is lent to
//! other streams is taken back early where a request is to go again ([`lent`]).
//!
//! *Tiny requests* share slabs of 2 MiB, which are pieces like any other and go back when they are empty.
//!
//! *Out of memory.* The host waits for the GPU once, completes what was pending, gives back all idle handles, and tries
//! again; handles made from then on are small. Nothing else gives memory back, except `empty_cache`.
//!
//! Sources: GMLake (ASPLOS 2024) for stitching, expandable segments (PyTorch) for the arena, measurements of the memory
//! calls on an H200 (`reports/vmm`). What each part brings: `reports/lake.md`.

mod addresses;
mod arena;
mod beside;
mod compose;
mod fit;
mod growth;
mod handle_size;
mod history;
mod lent;
mod options;
mod pool;
mod reclaim;
mod repeat;
mod runs;
mod small;
mod streams;
mod tensors;
mod views;

pub use options::LakeOptions;

use std::collections::BTreeMap;

use self::arena::Arena;
use self::compose::Recipe;
use self::fit::Reach;
use self::history::{Asked, History, Spot};
use self::lent::Lent;
use self::pool::Pool;
use self::small::TINY;
use self::streams::Streams;
use self::tensors::{Place, Room, Tensor};
use self::views::Views;
use super::small_pool::{SmallPool, round_small};
use super::{
    AllocError, Allocation, Allocator, BlockId, BlockView, Counter, Ledger, NIL, Request, Slab,
    SlabIndex, Usage,
};
use crate::device::{Device, DeviceError, DevicePtr, GRANULE};
use crate::trace::StreamId;
use crate::units::{Bytes, round_up};

/// What was done how often.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    requests: u64,
    repeated: u64,
    pieces: u64,
    runs: u64,
    views_reused: u64,
    borrowed: u64,
    composed: u64,
    growths: u64,
    shortages: u64,
    recalled: u64,
    views_made: u64,
    views_dropped: u64,
    handles_stitched: u64,
    handles_released: u64,
    host_waits: u64,
    ooms: u64,
}

/// Where a request goes: one free piece, or the free ends and wholes of several handles in a row.
#[derive(Debug, Clone)]
struct Route {
    /// The piece, if it is one.
    piece: SlabIndex,
    /// Otherwise the pieces, in order, each in another handle.
    pieces: Vec<SlabIndex>,
    /// Bytes of the first piece that are left free.
    skip: Bytes,
    /// Address of the first byte.
    at: DevicePtr,
    /// The view in which that is; `NIL`: the arena.
    view: SlabIndex,
}

impl Route {
    #[inline]
    fn set(&mut self, piece: SlabIndex, skip: Bytes, at: DevicePtr) {
        (self.piece, self.skip, self.at, self.view) = (piece, skip, at, NIL);
    }
}

/// The allocator.
#[derive(Debug, Clone)]
pub struct Lake {
    options: LakeOptions,
    /// Physical bytes that the process may hold.
    limit: Bytes,
    pool: Pool,
    arena: Arena,
    views: Views,
    streams: Streams,
    small: SmallPool,
    /// Slabs of the small pool by address.
    slabs: BTreeMap<DevicePtr, Room>,
    tensors: Slab<Tensor>,
    pending: usize,
    lent: Lent,
    history: History,
    ledger: Ledger,
    /// Most bytes that were ever live, the request at hand included.
    live_peak: Bytes,
    /// Whether the device has refused memory.
    is_short: bool,
    /// Bytes that the device had for us when memory was last taken. Kept, since asking what is free is a call.
    capacity: Bytes,
    /// How large handles were allowed to be then.
    largest: Bytes,
    route: Route,
    tally: Tally,
}

impl Lake {
    /// An allocator that holds nothing, and may come to hold `limit` bytes.
    #[must_use]
    pub fn new(options: LakeOptions, limit: Bytes) -> Self {
        Self {
            options,
            limit,
            pool: Pool::default(),
            arena: Arena::default(),
            views: Views::default(),
            streams: Streams::default(),
            small: SmallPool::default(),
            slabs: BTreeMap::new(),
            tensors: Slab::default(),
            pending: 0,
            lent: Lent::default(),
            history: History::default(),
            ledger: Ledger::default(),
            live_peak: 0,
            is_short: false,
            capacity: 0,
            largest: 0,
            route: Route { piece: NIL, pieces: Vec::new(), skip: 0, at: DevicePtr(0), view: NIL },
            tally: Tally::default(),
        }
    }

    /// Room for `size` bytes, where it is expected if that is free; what was found is in use then.
    #[inline]
    fn find(
        &mut self,
        device: &mut dyn Device,
        Asked { stream, size }: Asked,
        expected: Option<Spot>,
    ) -> Result<SlabIndex, DeviceError> {
        let again = expected.is_some_and(|spot| self.fit_again(stream, size, spot));
        if !again && !self.fit(stream, size) && !self.grow_within(device, stream, size)? {
            self.go_beyond(device, stream, size)?;
        }
        Ok(self.occupy(device, stream, size))
    }

    /// What is done when nothing fits, and growth would pass the budget. What others own, are done with, and have in
    /// one place costs no call. If there is none, what the stream owns is put together, then what others are done
    /// with, then what it has to wait for. Only what is missing then is new.
    #[cold]
    fn go_beyond(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
    ) -> Result<(), DeviceError> {
        let mut reaches = &[Reach::Own][..];
        if self.streams.count() > 1 {
            self.streams.poll(device);
            if self.fit_foreign(stream, size, Reach::Settled) {
                return Ok(());
            }
            let all = &[Reach::Own, Reach::Settled, Reach::Any];
            reaches = if self.options.waits { all } else { &all[..2] };
        }
        let mut recipe = Recipe::default();
        for &reach in reaches {
            if reach == Reach::Any && self.fit_foreign(stream, size, reach) {
                return Ok(());
            }
            recipe = self.collect(stream, size, reach);
            if recipe.size >= size {
                break;
            }
        }
        if self.grow_at_record(device, stream, (size, &recipe))? {
            return Ok(());
        }
        if recipe.size >= size {
            self.tally.composed += 1;
            return self.compose(device, &recipe, &[], size);
        }
        let missing = round_up(size - recipe.size, GRANULE);
        let new = self.create(device, stream, (missing, size))?;
        self.tally.shortages += 1;
        self.compose(device, &recipe, &new, size)
    }

    /// Takes the pieces along the route into use, and chains them. Streams wait for each other where they must.
    #[inline]
    fn occupy(&mut self, device: &mut dyn Device, stream: StreamId, size: Bytes) -> SlabIndex {
        if self.route.piece != NIL {
            let piece = self.route.piece;
            let handle = self.pool.pieces[piece].handle;
            self.settle(device, stream, handle);
            if self.pool.is_inside(piece) {
                return self.pool.take(piece, self.route.skip, size, stream);
            }
            self.pool.part_runs(handle);
            let taken = self.pool.take(piece, self.route.skip, size, stream);
            self.pool.join_runs(handle, handle);
            return taken;
        }
        self.occupy_many(device, stream, size)
    }

    /// The same for several pieces. Those that are neighbours in the arena leave their run together.
    fn occupy_many(&mut self, device: &mut dyn Device, stream: StreamId, size: Bytes) -> SlabIndex {
        let pieces = std::mem::take(&mut self.route.pieces);
        let handle_of = |lake: &Self, place: usize| lake.pool.pieces[pieces[place]].handle;
        let (mut first, mut last, mut left, mut skip) = (NIL, NIL, size, self.route.skip);
        let mut begin = 0;
        while left > 0 {
            let mut end = begin + 1;
            let mut room = self.pool.pieces[pieces[begin]].size - skip;
            while room < left
                && self.pool.is_open(handle_of(self, end - 1), handle_of(self, end))
                && self.pool.handles[handle_of(self, end - 1)].right == handle_of(self, end)
            {
                room += self.pool.pieces[pieces[end]].size;
                end += 1;
            }
            let (from, to) = (handle_of(self, begin), handle_of(self, end - 1));
            if from == to {
                self.pool.part_runs(from);
            } else {
                self.pool.part_run(from, to);
            }
            for &piece in &pieces[begin..end] {
                let entry = &self.pool.pieces[piece];
                let (handle, part) = (entry.handle, left.min(entry.size - skip));
                self.settle(device, stream, handle);
                let taken = self.pool.take(piece, skip, part, stream);
                match last {
                    NIL => first = taken,
                    last => self.pool.pieces[last].link = taken,
                }
                (last, left, skip) = (taken, left - part, 0);
            }
            self.pool.join_runs(from, from);
            if from != to {
                self.pool.join_runs(to, to);
            }
            begin = end;
        }
        self.route.pieces = pieces;
        first
    }

    /// Makes a stream wait for all others that may still use a handle's free memory.
    #[inline]
    fn settle(&mut self, device: &mut dyn Device, stream: StreamId, handle: SlabIndex) {
        for place in 0..self.pool.handles[handle].users.len() {
            let user = self.pool.handles[handle].users[place];
            if !self.streams.has_passed(stream, user) {
                self.streams.wait(device, stream, user);
            }
        }
    }

    fn malloc_large(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
    ) -> Result<Room, DeviceError> {
        let asked = Asked { stream, size };
        let expected = self.repeats().then(|| self.history.expect(asked)).flatten();
        let found = match self.find(device, asked, expected) {
            Err(DeviceError::OutOfMemory { .. }) => self.find_after_giving_back(device, asked),
            other => other,
        };
        let piece = found?;
        if self.repeats() {
            self.history.note(asked, self.spot());
        }
        Ok(self.room(piece, size))
    }

    #[cold]
    fn find_after_giving_back(
        &mut self,
        device: &mut dyn Device,
        asked: Asked,
    ) -> Result<SlabIndex, DeviceError> {
        self.drop_idle_slabs();
        self.wait_for_all(device);
        self.is_short = true;
        self.give_back(device);
        self.find(device, asked, None)
    }

    /// The room that the route leads to, now that it is taken.
    #[inline]
    fn room(&mut self, piece: SlabIndex, size: Bytes) -> Room {
        let Route { at, view, .. } = self.route;
        if view != NIL {
            self.views.note_use(view, size);
        }
        Room { piece, at, view }
    }
}

impl Allocator for Lake {
    #[inline]
    fn malloc(
        &mut self,
        device: &mut dyn Device,
        request: Request,
    ) -> Result<Allocation, AllocError> {
        let size = round_small(request.size);
        self.tally.requests += 1;
        self.streams.epoch(request.stream);
        self.lent.forget_recalled();
        self.close_uses(device);
        self.live_peak = self.live_peak.max(self.ledger.now().active + size);
        let place = if size <= TINY {
            self.malloc_small(device, request.stream, size)
        } else {
            self.malloc_large(device, request.stream, size).map(Place::Large)
        };
        match place {
            Ok(place) => Ok(self.hand_out(place, request, size)),
            Err(DeviceError::OutOfMemory { .. }) => {
                self.tally.ooms += 1;
                let usage = self.ledger.now();
                Err(AllocError::OutOfMemory { requested: request.size, usage })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn free_requested(&mut self, block: BlockId, users: &[StreamId]) {
        self.request_free(block, users);
    }

    fn free_completed(&mut self, _device: &mut dyn Device, block: BlockId) {
        self.complete_free(block);
    }

    fn take_recalled(&mut self) -> Vec<BlockId> {
        self.lent.take_recalled()
    }

    #[inline]
    fn free(&mut self, _device: &mut dyn Device, block: BlockId) {
        self.take_back_now(block);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.drop_idle_slabs();
        self.wait_for_all(device);
        self.give_back(device);
    }

    fn usage(&self) -> Usage {
        self.ledger.now()
    }

    fn peak(&self) -> Usage {
        self.ledger.peak()
    }

    fn counters(&self) -> Vec<Counter> {
        let tally = self.tally;
        vec![
            ("repeated", tally.repeated),
            ("pieces", tally.pieces),
            ("runs", tally.runs),
            ("views_reused", tally.views_reused),
            ("borrowed", tally.borrowed),
            ("composed", tally.composed),
            ("growths", tally.growths),
            ("shortages", tally.shortages),
            ("recalled", tally.recalled),
            ("stream_waits", self.streams.waits),
            ("host_waits", tally.host_waits),
            ("views_made", tally.views_made),
            ("views_dropped", tally.views_dropped),
            ("views_open", (self.views.count - self.views.closed) as u64),
            ("handles", self.pool.count),
            ("handles_stitched", tally.handles_stitched),
            ("handles_released", tally.handles_released),
            ("stitched_bytes", self.views.stitched),
            ("oom", tally.ooms),
        ]
    }

    fn walk(&self, visit: &mut dyn FnMut(BlockView)) {
        self.walk_blocks(visit);
    }
}

#[cfg(test)]
mod tests;
