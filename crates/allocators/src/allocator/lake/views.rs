//! Views: handles mapped a second time, side by side in another order. That is GMLake's stitching.
//!
//! A view is GMLake's stitched block, with one difference: it is never active or idle as a whole. Any part of it whose
//! memory is free serves any request that fits. So a view is worth keeping: most requests that cannot be served from
//! the arena find one in which a tensor was freed not long ago.
//!
//! ```text
//!   arena    ├──── h0 ────┼──── h1 ────┼──── h2 ────┼──── h3 ────┼──── h4 ────┤
//!            │   A    │░░░│░░░░░░░░░░░░│     B      │░░░░░░░░░░░░│░░░│    C   │      ░ free
//!   view     ├──── h0 ────┼──── h1 ────┼──── h3 ────┼──── h4 ────┤
//!                     │ D D D D D D D D D D D D D D D D D D D D D│   D: an end, two whole handles, a beginning
//! ```

use std::cell::Cell;

use smallvec::{SmallVec, smallvec};

use super::addresses::Addresses;
use super::arena::{Arena, Span};
use super::streams::{Gate, Streams, Users, note_use};
use crate::allocator::{NIL, Slab, SlabIndex};
use crate::device::{Device, DevicePtr, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// Views that are looked at for a request: those in which tensors were freed last. A bit of a word stands for each.
const RECENT: usize = 64;

/// Where a request goes.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    pub(super) at: DevicePtr,
    /// The view in which that is; `NIL`: the arena.
    pub(super) view: SlabIndex,
    /// The memory, where it lies in the arena.
    pub(super) spans: SmallVec<[Span; 4]>,
}

impl Placement {
    /// Memory of the arena at its own addresses.
    pub(super) fn in_arena(span: Span) -> Self {
        Self { at: DevicePtr(span.start), view: NIL, spans: smallvec![span] }
    }
}

/// A handle in a view.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// The handle; `NIL` once it was released.
    pub(super) handle: SlabIndex,
    /// Where it begins in the view.
    pub(super) offset: Bytes,
}

/// A range of addresses over handles.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) at: DevicePtr,
    pub(super) size: Bytes,
    pub(super) slots: Vec<Slot>,
    /// Tensors that live at its addresses.
    pub(super) tensors: u32,
    /// When it last served a request, in requests served by views.
    pub(super) used: u64,
    /// Streams that freed a tensor in it, and before which of their fences.
    pub(super) users: Users,
    /// Whether one of its handles was released: it serves no more requests.
    pub(super) is_broken: bool,
    /// Its place among the recent ones; [`FORGOTTEN`]: it is none of them.
    recent: usize,
}

const FORGOTTEN: usize = usize::MAX;

/// A view in which a tensor was freed not long ago.
#[derive(Debug, Clone)]
struct Recent {
    /// The view; `NIL` once it is unmapped.
    view: SlabIndex,
    /// Its size; zero, if it serves no more requests.
    size: Bytes,
    /// No free part that may serve a request is longer than this, unless something was freed in it since.
    longest: Cell<Bytes>,
}

/// All views.
#[derive(Debug, Clone, Default)]
pub(super) struct Views {
    /// Where they are mapped.
    pub(super) addresses: Addresses,
    pub(super) all: Slab<View>,
    /// Those in which tensors were freed last, each at a place of its own.
    recent: Vec<Recent>,
    /// Their places, the latest at the end.
    order: Vec<u8>,
    /// Those in which memory was freed since they were searched, a bit for each.
    lifted: Cell<u64>,
    pub(super) count: usize,
    /// Bytes that all of them map.
    pub(super) stitched: Bytes,
    clock: u64,
    pub(super) made: u64,
    /// How many were unmapped again.
    pub(super) dropped: u64,
    /// Handles that were mapped for them.
    pub(super) handles_stitched: u64,
}

impl Views {
    fn add(&mut self, at: DevicePtr, slots: Vec<Slot>, size: Bytes) -> SlabIndex {
        self.count += 1;
        self.stitched += size;
        self.made += 1;
        self.handles_stitched += slots.len() as u64;
        let (used, users) = (self.clock, Users::new());
        let (tensors, is_broken, recent) = (0, false, FORGOTTEN);
        self.all.insert(View { at, size, slots, tensors, used, users, is_broken, recent })
    }

    /// A tensor begins to live in a view.
    pub(super) fn note_use(&mut self, view: SlabIndex) {
        self.clock += 1;
        let entry = &mut self.all[view];
        entry.tensors += 1;
        entry.used = self.clock;
    }

    /// A tensor in a view was freed by a stream, before one of its fences.
    pub(super) fn note_free(&mut self, arena: &mut Arena, view: SlabIndex, user: (StreamId, u32)) {
        let entry = &mut self.all[view];
        entry.tensors -= 1;
        note_use(&mut entry.users, user);
        if entry.recent == FORGOTTEN {
            let size = if entry.is_broken { 0 } else { entry.size };
            let place = self.vacant_place(arena);
            self.recent[place] = Recent { view, size, longest: Cell::new(size) };
            self.all[view].recent = place;
            self.mark(arena, view, |recent| recent | 1 << place);
        }
        let place = self.all[view].recent as u8;
        self.order.retain(|&other| other != place);
        self.order.push(place);
    }

    /// A new place among the recent ones, or that of the one that was there longest.
    fn vacant_place(&mut self, arena: &mut Arena) -> usize {
        if self.recent.len() < RECENT {
            self.recent.push(Recent { view: NIL, size: 0, longest: Cell::new(0) });
            return self.recent.len() - 1;
        }
        let place = usize::from(self.order[0]);
        let gone = self.recent[place].view;
        if gone != NIL {
            self.all[gone].recent = FORGOTTEN;
            self.mark(arena, gone, |recent| recent & !(1 << place));
        }
        place
    }

    /// Changes the marks of recent views at the handles of one.
    fn mark(&self, arena: &mut Arena, view: SlabIndex, change: impl Fn(u64) -> u64) {
        for slot in self.all[view].slots.iter().filter(|slot| slot.handle != NIL) {
            let recent = &mut arena.handles[slot.handle].recent;
            *recent = change(*recent);
        }
    }

    /// Memory of these recent views was freed: their parts may be longer than a search has found.
    #[inline]
    pub(super) fn lift_bounds(&self, views: u64) {
        self.lifted.set(self.lifted.get() | views);
    }

    /// The bound on the free parts of the recent view at a place.
    #[inline]
    fn bound_at(&self, place: usize) -> Bytes {
        let Recent { size, longest, .. } = &self.recent[place];
        if self.lifted.get() >> place & 1 == 1 { *size } else { longest.get() }
    }

    /// The bound on the free parts of a recent view.
    #[cfg(test)]
    pub(super) fn bound(&self, view: SlabIndex) -> Option<Bytes> {
        let place = self.all[view].recent;
        (place != FORGOTTEN).then(|| self.bound_at(place))
    }

    /// A free part of `size` bytes of a recent view, of the latest that has one.
    pub(super) fn fit(&self, arena: &Arena, size: Bytes, gate: Gate<'_>) -> Option<Placement> {
        let latest_first = self.order.iter().rev().map(|&place| usize::from(place));
        let mut long = latest_first.filter(|&place| self.bound_at(place) >= size);
        long.find_map(|place| self.fit_at(place, arena, size, gate))
    }

    /// The first free part of a view that has `size` bytes. A search that finds none keeps the length of the longest
    /// part, whoever may use it, so that it is not made again before something is freed there.
    fn fit_at(
        &self,
        place: usize,
        arena: &Arena,
        size: Bytes,
        gate: Gate<'_>,
    ) -> Option<Placement> {
        let recent = &self.recent[place];
        // Where the part at hand begins: of what the stream may use, and of all that is free.
        let (mut begin, mut begin_of_all, mut longest) = (0, 0, 0);
        for slot in &self.all[recent.view].slots {
            let handle = &arena.handles[slot.handle];
            let offset = |at: u64| at - handle.span.start + slot.offset;
            let (until, from) = arena.free_ends(slot.handle);
            let is_whole = until == handle.span.end;
            let (until, from) = (offset(until), offset(from));
            longest = longest.max(until - begin_of_all);
            begin_of_all = if is_whole { begin_of_all } else { from };
            let is_usable = gate.admits(&handle.users);
            if (if is_usable { until } else { slot.offset }) >= begin + size {
                return Some(self.part(arena, recent.view, begin..begin + size));
            }
            begin = match is_usable {
                true if is_whole => begin,
                true => from,
                false => offset(handle.span.end),
            };
        }
        recent.longest.set(longest);
        self.lifted.set(self.lifted.get() & !(1 << place));
        None
    }

    /// The memory of a part of a view.
    pub(super) fn part(&self, arena: &Arena, view: SlabIndex, part: Span) -> Placement {
        let entry = &self.all[view];
        let mut spans: SmallVec<[Span; 4]> = SmallVec::new();
        let first = entry.slots.partition_point(|slot| slot.offset <= part.start) - 1;
        for slot in entry.slots[first..].iter().take_while(|slot| slot.offset < part.end) {
            let Span { start, end } = arena.handles[slot.handle].span;
            let at = |offset: u64| start + (offset.saturating_sub(slot.offset));
            let (from, to) = (at(part.start), at(part.end).min(end));
            match spans.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => spans.push(from..to),
            }
        }
        Placement { at: entry.at.offset(part.start), view, spans }
    }

    /// Maps what a recipe says: room for `size` bytes. After an error nothing has changed.
    pub(super) fn stitch(
        &mut self,
        device: &mut dyn Device,
        arena: &mut Arena,
        Recipe { handles, begin, .. }: &Recipe,
        size: Bytes,
    ) -> Result<Placement> {
        if let [handle] = handles[..] {
            let start = arena.handles[handle].span.start + begin;
            return Ok(Placement::in_arena(start..start + size));
        }
        let view = self.map(device, arena, handles)?;
        Ok(self.part(arena, view, *begin..begin + size))
    }

    fn map(
        &mut self,
        device: &mut dyn Device,
        arena: &mut Arena,
        handles: &[SlabIndex],
    ) -> Result<SlabIndex> {
        let (mut slots, mut size) = (Vec::with_capacity(handles.len()), 0);
        for &handle in handles {
            slots.push(Slot { handle, offset: size });
            size += arena.handles[handle].size();
        }
        let ids: Vec<_> = handles.iter().map(|&handle| arena.handles[handle].id).collect();
        let at = self.addresses.place(device, size)?;
        if let Err(error) = device.map_for_use(at, &ids, size) {
            self.addresses.drop_empty(device);
            return Err(error);
        }
        self.addresses.take(at, size);
        let view = self.add(at, slots, size);
        handles.iter().for_each(|&handle| arena.handles[handle].views.push(view));
        Ok(view)
    }

    /// Unmaps views in which no tensor lives and that the GPU is done with, broken ones and then those that have been
    /// idle longest, until `most` are left.
    pub(super) fn drop_idle(
        &mut self,
        device: &mut dyn Device,
        arena: &mut Arena,
        (streams, most): (&Streams, usize),
    ) {
        let is_idle =
            |view: &View| view.tensors == 0 && view.users.iter().all(|&user| streams.is_done(user));
        let idle = self.all.iter().filter(|(_, view)| is_idle(view));
        let mut idle: Vec<_> =
            idle.map(|(index, view)| (!view.is_broken, view.used, index)).collect();
        idle.sort_unstable();
        for (_, _, view) in idle.into_iter().take(self.count - most.min(self.count)) {
            self.unmap(device, arena, view);
        }
    }

    fn unmap(&mut self, device: &mut dyn Device, arena: &mut Arena, view: SlabIndex) {
        let entry = &mut self.all[view];
        let (at, size, slots) = (entry.at, entry.size, std::mem::take(&mut entry.slots));
        let mut kept = u64::MAX;
        if entry.recent != FORGOTTEN {
            self.recent[entry.recent] = Recent { view: NIL, size: 0, longest: Cell::new(0) };
            kept = !(1 << entry.recent);
        }
        for slot in slots.iter().filter(|slot| slot.handle != NIL) {
            let handle = &mut arena.handles[slot.handle];
            handle.views.retain(|&other| other != view);
            handle.recent &= kept;
            device.unmap(at.offset(slot.offset), handle.size());
        }
        self.addresses.give(device, at, size);
        self.all.remove(view);
        self.count -= 1;
        self.stitched -= size;
        self.dropped += 1;
    }

    /// Unmaps a handle, which is about to be released, where views map it. They are broken then.
    pub(super) fn unmap_handle(
        &mut self,
        device: &mut dyn Device,
        arena: &mut Arena,
        handle: SlabIndex,
    ) {
        let size = arena.handles[handle].size();
        for view in std::mem::take(&mut arena.handles[handle].views) {
            let entry = &mut self.all[view];
            entry.is_broken = true;
            if entry.recent != FORGOTTEN {
                let recent = &mut self.recent[entry.recent];
                recent.size = 0;
                recent.longest.set(0);
            }
            let slot = entry.slots.iter_mut().find(|slot| slot.handle == handle);
            let slot = slot.expect("a view that is listed at a handle maps it");
            slot.handle = NIL;
            device.unmap(entry.at.offset(slot.offset), size);
        }
    }
}

/// Free memory for a view: the free end of one handle, whole handles, the free beginning of another one.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    /// In the order in which they are mapped.
    handles: Vec<SlabIndex>,
    /// Where in the first one free memory begins.
    begin: Bytes,
    /// Free bytes, all together.
    pub(super) size: Bytes,
}

impl Recipe {
    /// Whether it takes more than one handle.
    pub(super) fn is_stitched(&self) -> bool {
        self.handles.len() > 1
    }

    /// Adds new handles behind the free end.
    pub(super) fn add(&mut self, new: impl IntoIterator<Item = SlabIndex>) {
        let place = usize::from(self.begin > 0);
        self.handles.splice(place..place, new);
    }
}

/// A handle that is free at one end, and how many bytes.
type End = (Bytes, SlabIndex);

impl Recipe {
    /// Collects free memory of the arena: the longest free ends of handles, then whole ones from the largest down, no
    /// more than `size` bytes need; it may come to less.
    pub(super) fn of(arena: &Arena, size: Bytes, gate: Gate<'_>) -> Self {
        let (mut suffix, mut wholes, mut prefix) = (None, Vec::new(), None);
        for free in arena.largest_first() {
            for handle in arena.handles_in(free) {
                let Span { start, end } = arena.handles[handle].span;
                let part = free.start.max(start)..free.end.min(end);
                let found = Some((part.end - part.start, handle));
                match (part.start == start, part.end == end) {
                    _ if !gate.admits(&arena.handles[handle].users) => {}
                    (true, true) => wholes.push(handle),
                    (true, false) => prefix = prefix.max(found),
                    (false, true) => suffix = suffix.max(found),
                    (false, false) => {}
                }
            }
        }
        let size_of = |&handle: &SlabIndex| arena.handles[handle].size();
        wholes.sort_by_key(|handle| std::cmp::Reverse(size_of(handle)));
        Self::choose(arena, (suffix, prefix), &wholes, size)
    }

    /// The ends, if they are of two handles, and as many whole handles as are needed.
    fn choose(
        arena: &Arena,
        (suffix, prefix): (Option<End>, Option<End>),
        wholes: &[SlabIndex],
        size: Bytes,
    ) -> Self {
        let size_of = |handle: SlabIndex| arena.handles[handle].size();
        let prefix = prefix.filter(|end| suffix.is_none_or(|other| end.1 != other.1));
        let begin = suffix.map_or(0, |(free, handle)| size_of(handle) - free);
        let mut handles = Vec::from_iter(suffix.map(|end| end.1));
        let mut total = suffix.map_or(0, |end| end.0) + prefix.map_or(0, |end| end.0);
        for &handle in wholes {
            if total >= size {
                break;
            }
            handles.push(handle);
            total += size_of(handle);
        }
        handles.extend(prefix.map(|end| end.1));
        Self { handles, begin, size: total }
    }
}
