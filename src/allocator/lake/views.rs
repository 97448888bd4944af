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

use std::collections::VecDeque;

use super::Lake;
use super::addresses::Addresses;
use super::arena::Span;
use super::fit::{Placement, Reach};
use super::streams::{Users, note_use};
use crate::allocator::{BlockId, NIL, Slab, SlabIndex};
use crate::device::{Device, DeviceError, DevicePtr};
use crate::trace::StreamId;
use crate::units::Bytes;

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
    /// Whether it serves no more requests, and goes as soon as no one uses it.
    pub(super) is_closed: bool,
    /// Whether its place in the slab is vacant.
    is_gone: bool,
}

/// All views.
#[derive(Debug, Clone, Default)]
pub(super) struct Views {
    /// Where they are mapped.
    pub(super) addresses: Addresses,
    pub(super) all: Slab<View>,
    /// Those in which tensors were freed last, the latest at the end.
    recent: VecDeque<BlockId>,
    /// Views that serve requests.
    pub(super) open: usize,
    /// Views that do not any more.
    pub(super) closed: usize,
    /// Bytes that all of them map.
    pub(super) stitched: Bytes,
    clock: u64,
}

impl Views {
    fn add(&mut self, at: DevicePtr, slots: Vec<Slot>, size: Bytes) -> SlabIndex {
        self.open += 1;
        self.stitched += size;
        let (used, users) = (self.clock, Users::new());
        let (tensors, is_closed, is_gone) = (0, false, false);
        self.all.insert(View { at, size, slots, tensors, used, users, is_closed, is_gone })
    }

    /// From now on the view serves no requests.
    pub(super) fn close(&mut self, view: SlabIndex) {
        if !std::mem::replace(&mut self.all[view].is_closed, true) {
            self.open -= 1;
            self.closed += 1;
        }
    }

    /// Forgets a closed view.
    pub(super) fn remove(&mut self, view: SlabIndex) {
        let entry = &mut self.all[view];
        debug_assert!(entry.is_closed && entry.tensors == 0);
        entry.is_gone = true;
        entry.slots = Vec::new();
        self.closed -= 1;
        self.stitched -= entry.size;
        self.all.remove(view);
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

    /// Open views of at least `size` bytes in which tensors were freed last, the latest first.
    pub(super) fn recent(&self, size: Bytes) -> impl Iterator<Item = SlabIndex> + '_ {
        let existing = self.recent.iter().rev().filter_map(|&id| self.all.find(id));
        existing.filter(move |&view| !self.all[view].is_closed && self.all[view].size >= size)
    }

    /// Views that exist, in no particular order.
    pub(super) fn existing(&self) -> impl Iterator<Item = SlabIndex> + '_ {
        (0..self.all.len() as SlabIndex).filter(|&view| !self.all[view].is_gone)
    }
}

/// Free memory for a view: the free end of one handle, whole handles, the free beginning of another one.
#[derive(Debug, Clone, Default)]
pub(super) struct Recipe {
    suffix: Option<Span>,
    wholes: Vec<SlabIndex>,
    prefix: Option<Span>,
    /// Bytes, all together.
    pub(super) size: Bytes,
}

fn length(span: &Option<Span>) -> Bytes {
    span.as_ref().map_or(0, |span| span.end - span.start)
}

/// Keeps the longer one of what was found and what is there.
fn keep_longer(kept: &mut Option<Span>, found: Span) {
    if found.end - found.start > length(kept) {
        *kept = Some(found);
    }
}

impl Lake {
    /// Collects free memory for `size` bytes: the longest free ends, then whole handles from the largest down, no more
    /// than are needed; it may come to less.
    pub(super) fn collect(&self, stream: StreamId, size: Bytes, reach: Reach) -> Recipe {
        let (mut recipe, mut wholes) = (Recipe::default(), Vec::new());
        for free in self.arena.largest_first() {
            for handle in self.arena.handles_in(free) {
                let Span { start, end } = self.arena.handles[handle].span;
                let part = free.start.max(start)..free.end.min(end);
                match (part.start == start, part.end == end) {
                    _ if !self.may_use_handle(stream, handle, reach) => {}
                    (true, true) => wholes.push(handle),
                    (true, false) => keep_longer(&mut recipe.prefix, part),
                    (false, true) => keep_longer(&mut recipe.suffix, part),
                    (false, false) => {}
                }
            }
        }
        let handle_of = |part: &Option<Span>| part.as_ref().map(|part| self.arena.handle_at(part.start));
        if handle_of(&recipe.prefix) == handle_of(&recipe.suffix) {
            recipe.prefix = None;
        }
        recipe.size = length(&recipe.suffix) + length(&recipe.prefix);
        let size_of = |&handle: &SlabIndex| self.arena.handles[handle].size();
        wholes.sort_by_key(|handle| std::cmp::Reverse(size_of(handle)));
        for handle in wholes {
            if recipe.size >= size {
                break;
            }
            recipe.size += size_of(&handle);
            recipe.wholes.push(handle);
        }
        recipe
    }

    /// Maps what a recipe says, with new handles behind its whole ones: room for `size` bytes.
    ///
    /// # Errors
    /// A driver error; nothing has changed.
    pub(super) fn stitch(
        &mut self,
        device: &mut dyn Device,
        recipe: &Recipe,
        new: &[SlabIndex],
        size: Bytes,
    ) -> Result<Placement, DeviceError> {
        let handle_of = |span: &Span| self.arena.handle_at(span.start);
        let mut handles: Vec<SlabIndex> = recipe.suffix.iter().map(handle_of).collect();
        handles.extend(recipe.wholes.iter().chain(new));
        handles.extend(recipe.prefix.iter().map(handle_of));
        let begin = recipe.suffix.as_ref().map_or(0, |span| {
            span.start - self.arena.handles[self.arena.handle_at(span.start)].span.start
        });
        if let [handle] = handles[..] {
            let start = self.arena.handles[handle].span.start + begin;
            return Ok(Placement::in_arena(start..start + size));
        }
        let view = self.map_view(device, &handles)?;
        Ok(self.in_view(view, begin..begin + size))
    }

    fn map_view(
        &mut self,
        device: &mut dyn Device,
        handles: &[SlabIndex],
    ) -> Result<SlabIndex, DeviceError> {
        self.bound_views(device);
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

    /// Closes the views that have been idle longest once there are too many, and unmaps those that are over.
    fn bound_views(&mut self, device: &mut dyn Device) {
        if self.views.open > self.options.views {
            let is_idle = |view: &View| !view.is_closed && view.tensors == 0;
            let idle = self.views.existing().filter(|&view| is_idle(&self.views.all[view]));
            let mut idle: Vec<_> = idle.map(|view| (self.views.all[view].used, view)).collect();
            idle.sort_unstable();
            for &(_, view) in idle.iter().take(self.views.open - self.options.views * 7 / 8) {
                self.views.close(view);
            }
            self.streams.mark(device);
        }
        if self.views.closed > 0 {
            self.streams.poll(device);
            self.unmap_closed(device);
        }
    }

    /// Unmaps closed views that no tensor lives in and that the GPU is done with.
    pub(super) fn unmap_closed(&mut self, device: &mut dyn Device) {
        if self.views.closed == 0 {
            return;
        }
        let is_over = |view: &View| {
            let is_done = || view.users.iter().all(|&user| self.streams.is_done(user));
            view.is_closed && view.tensors == 0 && is_done()
        };
        let all = self.views.existing();
        let over: Vec<_> = all.filter(|&view| is_over(&self.views.all[view])).collect();
        over.into_iter().for_each(|view| self.unmap_view(device, view));
    }

    fn unmap_view(&mut self, device: &mut dyn Device, view: SlabIndex) {
        let View { at, size, .. } = self.views.all[view];
        let slots = std::mem::take(&mut self.views.all[view].slots);
        if slots.iter().all(|slot| slot.handle != NIL) {
            device.unmap(at, size);
        } else {
            for slot in slots.iter().filter(|slot| slot.handle != NIL) {
                device.unmap(at.offset(slot.offset), self.arena.handles[slot.handle].size());
            }
        }
        for slot in slots.iter().filter(|slot| slot.handle != NIL) {
            self.arena.handles[slot.handle].views.retain(|&other| other != view);
        }
        self.views.addresses.give(device, at, size);
        self.views.remove(view);
        self.tally.views_dropped += 1;
    }
}
