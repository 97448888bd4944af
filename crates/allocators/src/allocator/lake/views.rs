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
use std::collections::VecDeque;

use super::Lake;
use super::addresses::Addresses;
use super::arena::Span;
use super::fit::{Placement, Reach};
use super::history::Asked;
use super::streams::{Users, note_use};
use crate::allocator::{BlockId, NIL, Slab, SlabIndex};
use crate::device::{Device, DeviceError, DevicePtr};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// Views that are looked at for a request: those in which tensors were freed last.
const RECENT: usize = 64;

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
    /// No free part is longer than this, as a search has found; what is freed in it lifts the bound.
    pub(super) longest: Cell<Bytes>,
}

/// All views.
#[derive(Debug, Clone, Default)]
pub(super) struct Views {
    /// Where they are mapped.
    pub(super) addresses: Addresses,
    pub(super) all: Slab<View>,
    /// Those in which tensors were freed last, the latest at the end.
    recent: VecDeque<BlockId>,
    /// How many there are.
    pub(super) count: usize,
    /// Bytes that all of them map.
    pub(super) stitched: Bytes,
    clock: u64,
}

impl Views {
    fn add(&mut self, at: DevicePtr, slots: Vec<Slot>, size: Bytes) -> SlabIndex {
        self.count += 1;
        self.stitched += size;
        let (used, users) = (self.clock, Users::new());
        let longest = Cell::new(size);
        self.all.insert(View {
            at,
            size,
            slots,
            tensors: 0,
            used,
            users,
            is_broken: false,
            longest,
        })
    }

    /// A tensor begins to live in a view.
    pub(super) fn note_use(&mut self, view: SlabIndex) {
        self.clock += 1;
        let entry = &mut self.all[view];
        entry.tensors += 1;
        entry.used = self.clock;
    }

    /// A tensor in a view was freed by a stream, before one of its fences.
    pub(super) fn note_free(&mut self, view: SlabIndex, user: (StreamId, u32)) {
        let id = self.all.id(view);
        let entry = &mut self.all[view];
        entry.tensors -= 1;
        note_use(&mut entry.users, user);
        self.recent.retain(|&other| other != id);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(id);
    }

    /// Views of at least `size` bytes in which tensors were freed last, the latest first.
    pub(super) fn recent(&self, size: Bytes) -> impl Iterator<Item = SlabIndex> + '_ {
        let existing = self.recent.iter().rev().filter_map(|&id| self.all.find(id));
        existing.filter(move |&view| {
            let entry = &self.all[view];
            !entry.is_broken && entry.longest.get() >= size
        })
    }

    /// Memory of a view was freed: its parts may be longer than a search has found.
    pub(super) fn lift_bound(&self, view: SlabIndex) {
        let entry = &self.all[view];
        entry.longest.set(entry.size);
    }

    /// Views that exist, in no particular order.
    pub(super) fn existing(&self) -> impl Iterator<Item = SlabIndex> + '_ {
        (0..self.all.len() as SlabIndex).filter(|&view| !self.all[view].slots.is_empty())
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
    /// Adds new handles behind the free end.
    pub(super) fn add(&mut self, new: impl IntoIterator<Item = SlabIndex>) {
        let place = usize::from(self.begin > 0);
        self.handles.splice(place..place, new);
    }
}

/// A handle that is free at one end, and how many bytes.
type End = (Bytes, SlabIndex);

impl Lake {
    /// Collects free memory: the longest free ends of handles, then whole ones from the largest down, no more than are
    /// needed; it may come to less.
    pub(super) fn collect(&self, Asked { stream, size }: Asked, reach: Reach) -> Recipe {
        let (mut suffix, mut wholes, mut prefix) = (None, Vec::new(), None);
        for free in self.arena.largest_first() {
            for handle in self.arena.handles_in(free) {
                let Span { start, end } = self.arena.handles[handle].span;
                let part = free.start.max(start)..free.end.min(end);
                let found = Some((part.end - part.start, handle));
                match (part.start == start, part.end == end) {
                    _ if !self.may_use_handle(stream, handle, reach) => {}
                    (true, true) => wholes.push(handle),
                    (true, false) => prefix = prefix.max(found),
                    (false, true) => suffix = suffix.max(found),
                    (false, false) => {}
                }
            }
        }
        let size_of = |&handle: &SlabIndex| self.arena.handles[handle].size();
        wholes.sort_by_key(|handle| std::cmp::Reverse(size_of(handle)));
        self.choose(suffix, &wholes, prefix, size)
    }

    /// The ends, if they are of two handles, and as many whole handles as are needed.
    fn choose(
        &self,
        suffix: Option<End>,
        wholes: &[SlabIndex],
        prefix: Option<End>,
        size: Bytes,
    ) -> Recipe {
        let size_of = |handle: SlabIndex| self.arena.handles[handle].size();
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
        Recipe { handles, begin, size: total }
    }

    /// Maps what a recipe says: room for `size` bytes. After an error nothing has changed.
    pub(super) fn stitch(
        &mut self,
        device: &mut dyn Device,
        Recipe { handles, begin, .. }: &Recipe,
        size: Bytes,
    ) -> Result<Placement, DeviceError> {
        if let [handle] = handles[..] {
            let start = self.arena.handles[handle].span.start + begin;
            return Ok(Placement::in_arena(start..start + size));
        }
        let view = self.map_view(device, handles)?;
        Ok(self.in_view(view, *begin..begin + size))
    }

    fn map_view(
        &mut self,
        device: &mut dyn Device,
        handles: &[SlabIndex],
    ) -> Result<SlabIndex, DeviceError> {
        let most = self.options.views;
        if self.views.count >= most {
            self.streams.mark(device);
            self.streams.poll(device);
            self.drop_idle_views(device, most * 7 / 8);
        }
        let (mut slots, mut size) = (Vec::with_capacity(handles.len()), 0);
        for &handle in handles {
            slots.push(Slot { handle, offset: size });
            size += self.arena.handles[handle].size();
        }
        let ids: Vec<_> = handles.iter().map(|&handle| self.arena.handles[handle].id).collect();
        let at = self.views.addresses.place(device, size)?;
        if let Err(error) = device.map_for_use(at, &ids, size) {
            self.views.addresses.drop_empty(device);
            return Err(error);
        }
        self.views.addresses.take(at, size);
        let view = self.views.add(at, slots, size);
        for &handle in handles {
            self.arena.handles[handle].views.push(view);
        }
        self.tally.views_made += 1;
        self.tally.handles_stitched += handles.len() as u64;
        Ok(view)
    }

    /// Unmaps views in which no tensor lives and that the GPU is done with, broken ones and then those that have been
    /// idle longest, until `most` are left.
    pub(super) fn drop_idle_views(&mut self, device: &mut dyn Device, most: usize) {
        let is_idle = |view: &View| {
            view.tensors == 0 && view.users.iter().all(|&user| self.streams.is_done(user))
        };
        let key =
            |view: SlabIndex| (!self.views.all[view].is_broken, self.views.all[view].used, view);
        let idle = self.views.existing().filter(|&view| is_idle(&self.views.all[view]));
        let mut idle: Vec<_> = idle.map(key).collect();
        idle.sort_unstable();
        for (_, _, view) in idle.into_iter().take(self.views.count - most.min(self.views.count)) {
            self.unmap_view(device, view);
        }
    }

    fn unmap_view(&mut self, device: &mut dyn Device, view: SlabIndex) {
        let entry = &mut self.views.all[view];
        let (at, size, slots) = (entry.at, entry.size, std::mem::take(&mut entry.slots));
        for slot in slots.iter().filter(|slot| slot.handle != NIL) {
            let handle = &mut self.arena.handles[slot.handle];
            handle.views.retain(|&other| other != view);
            device.unmap(at.offset(slot.offset), handle.size());
        }
        self.views.addresses.give(device, at, size);
        self.views.all.remove(view);
        self.views.count -= 1;
        self.views.stitched -= size;
        self.tally.views_dropped += 1;
    }
}
