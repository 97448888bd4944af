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
use super::arena::{Class, Span};
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

/// Free memory within reach, by how it could be used in a view.
#[derive(Debug, Default)]
struct Parts {
    suffixes: Vec<Span>,
    wholes: Vec<SlabIndex>,
    prefixes: Vec<Span>,
}

fn length(span: &Option<Span>) -> Bytes {
    span.as_ref().map_or(0, |span| span.end - span.start)
}

impl Lake {
    /// Collects free memory for `size` bytes, whole handles from the largest down; it may come to less.
    pub(super) fn collect(&self, stream: StreamId, size: Bytes, reach: Reach) -> Recipe {
        let mut parts = Parts::default();
        let others = (0..self.streams.count()).map(StreamId).filter(|&owner| owner != stream);
        let others = others.filter(|_| reach != Reach::Own);
        for owner in std::iter::once(stream).chain(others) {
            let begin = parts.wholes.len();
            for class in [Class::Whole, Class::Partial] {
                for block in self.arena.largest_first(class, owner) {
                    self.add_parts(&mut parts, block, stream, reach);
                }
            }
            let size_of = |&handle: &SlabIndex| self.arena.handles[handle].size();
            parts.wholes[begin..].sort_by_key(|handle| std::cmp::Reverse(size_of(handle)));
        }
        self.choose(parts, size)
    }

    /// Adds a free block: what touches the end or the beginning of a handle, and whole handles.
    fn add_parts(&self, parts: &mut Parts, block: SlabIndex, stream: StreamId, reach: Reach) {
        let Span { start, end } = self.arena.blocks[block].span;
        for handle in self.arena.handles_in(&(start..end)) {
            if !self.may_use_handle(stream, handle, reach) {
                continue;
            }
            let border = &self.arena.handles[handle].span;
            match (start <= border.start, border.end <= end) {
                (true, true) => parts.wholes.push(handle),
                (true, false) => parts.prefixes.push(border.start..end),
                (false, true) => parts.suffixes.push(start..border.end),
                (false, false) => {}
            }
        }
    }

    /// Chooses among the parts: the largest ends, and no more than is needed.
    fn choose(&self, parts: Parts, size: Bytes) -> Recipe {
        let longest = |spans: Vec<Span>| spans.into_iter().max_by_key(|span| span.end - span.start);
        let suffix = longest(parts.suffixes);
        let taken = suffix.as_ref().map(|span| self.arena.handle_at(span.start));
        let is_other = |span: &Span| Some(self.arena.handle_at(span.start)) != taken;
        let prefix = longest(parts.prefixes.into_iter().filter(is_other).collect());
        let mut recipe = Recipe { size: length(&suffix) + length(&prefix), ..Recipe::default() };
        (recipe.suffix, recipe.prefix) = (suffix, prefix);
        for &handle in &parts.wholes {
            if recipe.size >= size {
                break;
            }
            recipe.wholes.push(handle);
            recipe.size += self.arena.handles[handle].size();
        }
        if recipe.size >= size {
            self.thin_out(&mut recipe, &parts.wholes, size);
        }
        recipe
    }

    /// Leaves out what is not needed, and takes the smallest whole handle that will do for the last one.
    fn thin_out(&self, recipe: &mut Recipe, wholes: &[SlabIndex], size: Bytes) {
        for end in [&mut recipe.prefix, &mut recipe.suffix] {
            if recipe.size - length(end) >= size {
                recipe.size -= length(end);
                *end = None;
            }
        }
        let size_of = |handle: SlabIndex| self.arena.handles[handle].size();
        let Some(last) = recipe.wholes.pop() else { return };
        let rest = recipe.size - size_of(last);
        let unused = &wholes[recipe.wholes.len()..];
        let fits = |handle: &SlabIndex| rest + size_of(*handle) >= size;
        let smallest = unused.iter().copied().filter(fits).min_by_key(|&handle| size_of(handle));
        let chosen = smallest.unwrap_or(last);
        recipe.wholes.push(chosen);
        recipe.size = rest + size_of(chosen);
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
