//! Finding room that is mapped already: a piece, a run of the arena, a run of a view. No driver call.

use super::Lake;
use super::pool::Handle;
use super::pool::Run;
use crate::allocator::{NIL, SlabIndex};
use crate::device::DevicePtr;
use crate::trace::StreamId;
use crate::units::{Bytes, MIB};

/// Which memory may serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// That of the request's own stream.
    Own,
    /// Also what other streams own, as far as they are done with it.
    Settled,
    /// All that is free; the stream may have to wait for others.
    Any,
}

/// Candidates that are looked at before a search is given up: other streams may not be done with them.
const TRIES: usize = 8;

/// Requests from this size on go to the right end of runs of whole handles.
const LARGE: Bytes = 64 * MIB;

/// A run in a view.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    view: SlabIndex,
    /// First and last slot.
    slots: (usize, usize),
    size: Bytes,
    /// Where it begins in the view.
    offset: Bytes,
    starts_inside: bool,
    ends_inside: bool,
}

impl Lake {
    /// Room for `size` bytes among what the stream owns.
    #[inline]
    pub(super) fn fit(&mut self, stream: StreamId, size: Bytes) -> bool {
        if self.fit_piece(stream, stream, size, Reach::Own)
            || self.fit_run(stream, stream, size, (Reach::Own, true))
        {
            self.tally.pieces += 1;
            return true;
        }
        if self.fit_run(stream, stream, size, (Reach::Own, false)) {
            self.tally.runs += 1;
            return true;
        }
        if self.fit_view(stream, size, Reach::Own) {
            self.tally.views_reused += 1;
            return true;
        }
        false
    }

    /// The same among what other streams own, or use.
    pub(super) fn fit_foreign(&mut self, stream: StreamId, size: Bytes, reach: Reach) -> bool {
        if self.fit_beside(stream, size, reach) {
            self.tally.borrowed += 1;
            return true;
        }
        // Others may still be using a part of what the stream owns.
        let counts = |&owner: &StreamId| owner != stream || reach == Reach::Any;
        let owners = (0..self.streams.count()).map(StreamId).filter(counts);
        for owner in owners.clone() {
            // Whole handles first: they change their owner.
            if self.fit_run(stream, owner, size, (reach, false)) {
                self.tally.borrowed += 1;
                return true;
            }
        }
        for owner in owners {
            if self.fit_piece(stream, owner, size, reach)
                || self.fit_run(stream, owner, size, (reach, true))
            {
                self.tally.borrowed += 1;
                return true;
            }
        }
        if self.fit_view(stream, size, reach) {
            self.tally.views_reused += 1;
            return true;
        }
        false
    }

    /// The smallest partial piece.
    #[inline]
    fn fit_piece(&mut self, stream: StreamId, owner: StreamId, size: Bytes, reach: Reach) -> bool {
        let index = &self.pool.partial;
        let mut cursor = index.best_fit(owner, size);
        for _ in 0..TRIES {
            let Some(at) = cursor else { return false };
            let piece = index.block(at);
            let entry = self.pool.pieces[piece];
            if self.is_allowed(entry.handle, stream, reach) {
                let is_prefix = entry.previous == NIL;
                let skip = if is_prefix { entry.size - size } else { 0 };
                self.route.set(piece, skip, entry.at.offset(skip));
                return true;
            }
            cursor = index.next(at);
        }
        false
    }

    /// Whether a handle's free memory may serve a stream.
    #[inline(always)]
    pub(super) fn is_allowed(&self, handle: SlabIndex, stream: StreamId, reach: Reach) -> bool {
        let handle = &self.pool.handles[handle];
        match reach {
            Reach::Own if handle.owner != stream => false,
            Reach::Any => true,
            _ => handle.users.iter().all(|&user| self.streams.has_passed(stream, user)),
        }
    }

    /// The shortest run of the arena.
    #[inline]
    fn fit_run(
        &mut self,
        stream: StreamId,
        owner: StreamId,
        size: Bytes,
        (reach, pairs): (Reach, bool),
    ) -> bool {
        if pairs && !self.options.pairs {
            return false;
        }
        let index = if pairs { &self.pool.pairs } else { &self.pool.runs_by_size };
        let mut cursor = index.best_fit(owner, size);
        for _ in 0..TRIES {
            let Some(at) = cursor else { return false };
            let run = index.block(at);
            if self.is_run_allowed(run, stream, reach) {
                self.route_through_run(run, size);
                return true;
            }
            cursor = index.next(at);
        }
        false
    }

    /// From where a run begins inside a handle, else up to where it ends inside one, so that partial pieces are used
    /// up. In runs of whole handles, large requests go to the right and smaller ones to the left, so that they do not
    /// get between each other.
    fn route_through_run(&mut self, run: SlabIndex, size: Bytes) {
        let Run { first, last, .. } = self.pool.runs[run];
        let begins_inside = !self.pool.is_idle(first);
        let ends_inside = !self.pool.is_idle(last);
        if !begins_inside && (ends_inside || (self.options.sides && size >= LARGE)) {
            self.route_from_right(run, size);
        } else {
            self.route_from_left(run, size);
        }
    }

    fn is_run_allowed(&self, run: SlabIndex, stream: StreamId, reach: Reach) -> bool {
        if reach == Reach::Any || self.streams.count() < 2 {
            return true;
        }
        let run = self.pool.runs[run];
        let mut handle = run.first;
        while self.is_allowed(handle, stream, reach) {
            if handle == run.last {
                return true;
            }
            handle = self.pool.handles[handle].right;
        }
        false
    }

    /// Goes from the beginning of a run on.
    pub(super) fn route_from_left(&mut self, run: SlabIndex, size: Bytes) {
        self.gather(run, size, self.pool.runs[run].first, |handle| handle.right);
        self.route.skip = 0;
        self.route.at = DevicePtr(self.pool.runs[run].at);
    }

    /// Goes up to the end of a run.
    fn route_from_right(&mut self, run: SlabIndex, size: Bytes) {
        let covered = self.gather(run, size, self.pool.runs[run].last, |handle| handle.left);
        self.route.pieces.reverse();
        self.route.skip = covered - size;
        let run = &self.pool.runs[run];
        self.route.at = DevicePtr(run.at + run.size - size);
    }

    /// Takes the pieces of a run, one for each handle from `start` on, until they hold `size` bytes. Says how many they
    /// hold.
    #[inline]
    fn gather(
        &mut self,
        run: SlabIndex,
        size: Bytes,
        start: SlabIndex,
        next: impl Fn(&Handle) -> SlabIndex,
    ) -> Bytes {
        let first = self.pool.runs[run].first;
        let pieces = &mut self.route.pieces;
        pieces.clear();
        let mut handle = start;
        let mut covered = 0;
        while covered < size {
            let entry = &self.pool.handles[handle];
            let piece = if handle == first { entry.last } else { entry.first };
            pieces.push(piece);
            covered += self.pool.pieces[piece].size;
            handle = next(entry);
        }
        (self.route.piece, self.route.view) = (NIL, NIL);
        covered
    }

    /// The shortest run in a view: first in those that served this size before, then in those that are long enough.
    fn fit_view(&mut self, stream: StreamId, size: Bytes, reach: Reach) -> bool {
        let near = size + size / 64;
        let mut best: Option<Stretch> = None;
        for back in 0.. {
            let Some(view) = self.views.recent(size, back) else { break };
            if view != NIL {
                self.look_into(view, stream, (size, reach), &mut best);
                if best.is_some_and(|best| best.size <= near) {
                    break;
                }
            }
        }
        if best.is_none_or(|best| best.size > near) {
            let mut cursor = self.views.by_size.best_fit(super::views::ANY, size);
            for _ in 0..self.options.view_scan {
                let Some(at) = cursor else { break };
                self.look_into(self.views.by_size.block(at), stream, (size, reach), &mut best);
                if best.is_some_and(|best| best.size <= near) {
                    break;
                }
                cursor = self.views.by_size.next(at);
            }
        }
        let Some(best) = best else { return false };
        self.route_through_view(best, size);
        true
    }

    /// Finds the shortest run of a view, if it beats the best so far.
    fn look_into(
        &self,
        view: SlabIndex,
        stream: StreamId,
        (size, reach): (Bytes, Reach),
        best: &mut Option<Stretch>,
    ) {
        let mut run: Option<Stretch> = None;
        let slots = &self.views.all[view].slots;
        let end = self.views.all[view].size;
        let offer = |run: Option<Stretch>, best: &mut Option<Stretch>| {
            if let Some(run) = run
                && run.size >= size
                && best.is_none_or(|best| run.size < best.size)
            {
                *best = Some(run);
            }
        };
        for (place, slot) in slots.iter().enumerate() {
            // Most views are hardly longer than what is looked for: one tensor in the middle of it, and that is that.
            if end - run.as_ref().map_or(slot.offset, |run| run.offset) < size {
                return;
            }
            let handle = &self.pool.handles[slot.handle];
            let (first, last) = (&self.pool.pieces[handle.first], &self.pool.pieces[handle.last]);
            let is_open = first.is_free || last.is_free;
            let allowed = is_open && self.is_allowed(slot.handle, stream, reach);
            if allowed && first.is_free && handle.first == handle.last {
                let begun = Stretch {
                    view,
                    slots: (place, place),
                    size: 0,
                    offset: slot.offset,
                    starts_inside: false,
                    ends_inside: false,
                };
                let longer = run.get_or_insert(begun);
                longer.size += handle.size;
                longer.slots.1 = place;
                continue;
            }
            if let Some(run) = run.as_mut().filter(|_| allowed && first.is_free) {
                run.size += first.size;
                run.slots.1 = place;
                run.ends_inside = true;
            }
            offer(run, best);
            run = (allowed && last.is_free && handle.first != handle.last).then(|| Stretch {
                view,
                slots: (place, place),
                size: last.size,
                offset: slot.offset + handle.size - last.size,
                starts_inside: true,
                ends_inside: false,
            });
        }
        offer(run, best);
    }

    fn route_through_view(&mut self, run: Stretch, size: Bytes) {
        let skip = if !run.starts_inside && run.ends_inside { run.size - size } else { 0 };
        let view = &self.views.all[run.view];
        let (begin, end) = (run.offset + skip, run.offset + skip + size);
        self.route.pieces.clear();
        for (place, slot) in view.slots[run.slots.0..=run.slots.1].iter().enumerate() {
            let handle = &self.pool.handles[slot.handle];
            let from = slot.offset.max(run.offset);
            if slot.offset + handle.size > begin && slot.offset < end {
                if self.route.pieces.is_empty() {
                    self.route.skip = begin - from.min(begin);
                }
                self.route.pieces.push(if place == 0 { handle.last } else { handle.first });
            }
        }
        self.route.piece = NIL;
        self.route.view = run.view;
        self.route.at = view.at.offset(begin);
    }
}
