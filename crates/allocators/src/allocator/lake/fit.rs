//! Fit: room that is mapped already, in the arena or in a stitched range. Finding it makes no driver call.

use smallvec::{SmallVec, smallvec};

use super::Lake;
use super::arena::Span;
use super::history::Asked;
use crate::allocator::{NIL, SlabIndex};
use crate::device::DevicePtr;
use gmlake_core::program::StreamId;

/// Which free memory may serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// What other streams are done with.
    Settled,
    /// All: the stream may have to wait for others.
    Any,
}

/// Where a request goes.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    /// Address of the first byte.
    pub(super) at: DevicePtr,
    /// The stitched range in which that is; `NIL`: the arena.
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

/// Free blocks that are looked at before a search is given up: other streams may not be done with them.
const TRIES: usize = 8;

impl Lake {
    /// Room for `size` bytes: the smallest free block that a stream may use, or else part of a stitched range.
    #[inline]
    pub(super) fn fit(&self, asked: Asked, reach: Reach) -> Option<Placement> {
        let Asked { stream, size } = asked;
        let blocks = self.arena.fitting(size).take(TRIES);
        let mut spans = blocks.map(|free| free.start..free.start + size);
        let found = spans.find(|span| self.may_use(stream, span, reach));
        found.map(Placement::in_arena).or_else(|| {
            let mut views = self.views.recent(size);
            views.find_map(|view| self.fit_view(view, asked, reach))
        })
    }

    /// Whether free memory may serve a stream.
    #[inline]
    pub(super) fn may_use(&self, stream: StreamId, span: &Span, reach: Reach) -> bool {
        reach == Reach::Any
            || self.streams.count() < 2
            || self.arena.handles_in(span).all(|handle| self.may_use_handle(stream, handle, reach))
    }

    #[inline]
    pub(super) fn may_use_handle(&self, stream: StreamId, handle: SlabIndex, reach: Reach) -> bool {
        let users = &self.arena.handles[handle].users;
        reach == Reach::Any || users.iter().all(|&user| self.streams.has_passed(stream, user))
    }

    /// The first free part of a stitched range that has `size` bytes. A search that saw all free memory and found none
    /// keeps the length of the longest part, so that it is not made again before something is freed there.
    fn fit_view(&self, view: SlabIndex, asked: Asked, reach: Reach) -> Option<Placement> {
        let Asked { stream, size } = asked;
        let entry = &self.views.all[view];
        let (mut begin, mut longest) = (0, 0);
        for slot in &entry.slots {
            let Span { start, end } = self.arena.handles[slot.handle].span;
            let offset = |at: u64| at - start + slot.offset;
            let is_usable = self.may_use_handle(stream, slot.handle, reach);
            let free = if is_usable { self.arena.free_prefix(slot.handle).end } else { start };
            if offset(free) >= begin + size {
                return Some(self.in_view(view, begin..begin + size));
            }
            longest = longest.max(offset(free) - begin);
            if free < end {
                let rest = if is_usable { self.arena.free_suffix(slot.handle).start } else { end };
                begin = offset(rest);
            }
        }
        if reach == Reach::Any || self.streams.count() < 2 {
            entry.longest.set(longest);
        }
        None
    }

    /// The memory of a part of a stitched range.
    pub(super) fn in_view(&self, view: SlabIndex, part: Span) -> Placement {
        let entry = &self.views.all[view];
        let mut spans: SmallVec<[Span; 4]> = SmallVec::new();
        let first = entry.slots.partition_point(|slot| slot.offset <= part.start) - 1;
        for slot in entry.slots[first..].iter().take_while(|slot| slot.offset < part.end) {
            let Span { start, end } = self.arena.handles[slot.handle].span;
            let at = |offset: u64| start + (offset.saturating_sub(slot.offset));
            let (from, to) = (at(part.start), at(part.end).min(end));
            match spans.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => spans.push(from..to),
            }
        }
        Placement { at: entry.at.offset(part.start), view, spans }
    }
}
