//! Fit: room that is mapped already, in the arena or in a stitched range. Finding it makes no driver call.

use smallvec::{SmallVec, smallvec};

use super::Lake;
use super::arena::{Class, Span, at_inner_end};
use crate::allocator::{NIL, SlabIndex};
use crate::device::DevicePtr;
use crate::trace::StreamId;
use crate::units::Bytes;

/// Which memory may serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// That of the request's own stream.
    Own,
    /// Also what other streams own, as far as they are done with it.
    Settled,
    /// All that is free; the stream may have to wait for others.
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
    /// Room for `size` bytes within a stream's reach: the smallest free block, with parts of handles before whole ones;
    /// else the shortest free part of a stitched range.
    #[inline]
    pub(super) fn fit(&self, stream: StreamId, size: Bytes, reach: Reach) -> Option<Placement> {
        let found = match reach {
            Reach::Own => [Class::Partial, Class::Whole]
                .into_iter()
                .find_map(|class| self.fit_in(class, stream, (stream, size, reach))),
            _ => self.fit_foreign((stream, size, reach)),
        };
        found.map(Placement::in_arena).or_else(|| self.fit_view(stream, size, reach))
    }

    /// The same in the arena, of any owner: whole handles first, which are owned by the stream from then on.
    fn fit_foreign(&self, asked: (StreamId, Bytes, Reach)) -> Option<Span> {
        let owners = (0..self.streams.count()).map(StreamId);
        let all = |class| owners.clone().find_map(|owner| self.fit_in(class, owner, asked));
        all(Class::Whole).or_else(|| all(Class::Partial))
    }

    #[inline]
    fn fit_in(
        &self,
        class: Class,
        owner: StreamId,
        (stream, size, reach): (StreamId, Bytes, Reach),
    ) -> Option<Span> {
        let blocks = self.arena.fitting(class, owner, size).take(TRIES);
        let mut spans = blocks.map(|block| self.arena.place_in(block, size));
        spans.find(|span| self.may_use(stream, span, reach))
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
        let handle = &self.arena.handles[handle];
        let is_settled = || handle.users.iter().all(|&user| self.streams.has_passed(stream, user));
        match reach {
            Reach::Own => handle.owner == stream && is_settled(),
            Reach::Settled => is_settled(),
            Reach::Any => true,
        }
    }

    /// The shortest free part of the stitched ranges in which tensors were freed last.
    fn fit_view(&self, stream: StreamId, size: Bytes, reach: Reach) -> Option<Placement> {
        let mut best: Option<(SlabIndex, Span)> = None;
        for view in self.views.recent(size) {
            for run in self.runs_of(view, stream, size, reach) {
                let length = run.end - run.start;
                if best.as_ref().is_none_or(|(_, best)| length < best.end - best.start) {
                    best = Some((view, run));
                }
            }
        }
        let (view, run) = best?;
        Some(self.place_in_view(view, &run, size))
    }

    /// Free parts of a stitched range of at least `size` bytes, as offsets in it.
    fn runs_of(&self, view: SlabIndex, stream: StreamId, size: Bytes, reach: Reach) -> Vec<Span> {
        let (mut runs, mut run) = (Vec::new(), 0..0);
        let mut end_run = |run: Span| {
            if run.end - run.start >= size {
                runs.push(run);
            }
        };
        for slot in &self.views.all[view].slots {
            let Span { start, end } = self.arena.handles[slot.handle].span;
            let offset = |at: u64| at - start + slot.offset;
            if !self.may_use_handle(stream, slot.handle, reach) {
                end_run(run);
                run = offset(end)..offset(end);
                continue;
            }
            let free = self.arena.free_prefix(slot.handle).end;
            run.end = offset(free);
            if free < end {
                end_run(run);
                run = offset(self.arena.free_suffix(slot.handle).start)..offset(end);
            }
        }
        end_run(run);
        runs
    }

    /// Where in a free part of a stitched range `size` bytes go.
    fn place_in_view(&self, view: SlabIndex, run: &Span, size: Bytes) -> Placement {
        let slots = &self.views.all[view].slots;
        let is_border = |at: u64| slots.iter().any(|slot| slot.offset == at);
        let ends_inside = || !is_border(run.end) && run.end < self.views.all[view].size;
        self.in_view(view, at_inner_end(run, size, !is_border(run.start), ends_inside))
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
