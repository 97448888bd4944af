//! Doing the same again: a request goes where its like went when the program was last here, if that place is free.
//!
//! A policy that looks only at what is free now never comes to rest by itself: one tensor that lies elsewhere moves the
//! next one, and a step of the program that is like the one before still ends up with other mappings. Following the
//! [`history`](super::history) it settles as soon as one step went well from its beginning to its end.
//!
//! Where the place is not free, the request goes wherever it would go otherwise, and that is what is followed next
//! time. What is lent to other streams and lies in the way is recalled ([`lent`](super::lent)): when the GPU is done
//! with it differs from step to step, and that alone must not change where everything lies.

use super::fit::Reach;
use super::history::Spot;
use super::{Lake, Route};
use crate::allocator::{NIL, SlabIndex};
use crate::trace::StreamId;
use crate::units::Bytes;

/// A way through free memory that is not open.
enum Obstacle {
    /// A piece in use.
    Used(SlabIndex),
    /// A border with nothing behind it.
    Border,
}

impl Lake {
    /// Whether requests go where their likes went. Once the device has refused, what led to that must not be repeated.
    #[inline]
    pub(super) fn repeats(&self) -> bool {
        self.options.repeat && !self.is_short
    }

    /// The expected place for `size` bytes, if all of it is free, or only lent.
    pub(super) fn fit_again(&mut self, stream: StreamId, size: Bytes, spot: Spot) -> bool {
        let mut pieces = std::mem::take(&mut self.route.pieces);
        let is_free = loop {
            match self.retrace(spot, size, &mut pieces) {
                Ok(skip) => break Some(skip),
                Err(Obstacle::Used(piece)) if self.recall(piece) => {}
                Err(_) => break None,
            }
        };
        self.route.pieces = pieces;
        let Some(skip) = is_free.filter(|_| self.is_route_allowed(stream)) else { return false };
        (self.route.piece, self.route.skip, self.route.at) = (NIL, skip, spot.at);
        self.route.view = spot.view.map_or(NIL, |view| view.index);
        if spot.view.is_none() && self.route.pieces.len() == 1 {
            self.route.set(self.route.pieces[0], skip, spot.at);
        }
        self.tally.repeated += 1;
        true
    }

    /// Where the route leads.
    pub(super) fn spot(&self) -> Spot {
        let view = (self.route.view != NIL).then(|| self.views.all.id(self.route.view));
        let Route { at, piece, ref pieces, .. } = self.route;
        let piece = if piece == NIL { pieces[0] } else { piece };
        Spot { at, view, handle: self.pool.pieces[piece].handle }
    }

    fn is_route_allowed(&self, stream: StreamId) -> bool {
        let is_allowed = |&piece: &SlabIndex| {
            self.is_allowed(self.pool.pieces[piece].handle, stream, Reach::Settled)
        };
        self.options.waits || self.route.pieces.iter().all(is_allowed)
    }

    /// The handle that a spot in the arena is in: most often still the same.
    fn handle_at(&self, Spot { at, handle, .. }: Spot) -> Option<SlabIndex> {
        let is_in = |&handle: &SlabIndex| {
            let entry = &self.pool.handles[handle];
            !entry.is_gone && entry.at <= at && at.0 - entry.at.0 < entry.size
        };
        Some(handle).filter(is_in).or_else(|| self.arena.at(at).filter(is_in))
    }

    /// The free pieces from a spot on that hold `size` bytes, and how many bytes of the first one come before.
    fn retrace(
        &self,
        spot: Spot,
        size: Bytes,
        pieces: &mut Vec<SlabIndex>,
    ) -> Result<Bytes, Obstacle> {
        let Some(id) = spot.view else {
            let first = self.handle_at(spot).ok_or(Obstacle::Border)?;
            let begin = spot.at.0 - self.pool.handles[first].at.0;
            let parts = std::iter::successors(Some((first, 0)), |&(handle, offset)| {
                let entry = &self.pool.handles[handle];
                (entry.right != NIL).then_some((entry.right, offset + entry.size))
            });
            return self.gather_free(parts, (begin, begin + size), pieces);
        };
        let view = self.views.all.find(id).ok_or(Obstacle::Border)?;
        let view = &self.views.all[view];
        let begin = spot.at.0 - view.at.0;
        let first = view.slots.partition_point(|slot| slot.offset <= begin) - 1;
        let slots = view.slots[first..].iter().take_while(|slot| slot.handle != NIL);
        let slots = slots.filter(|_| !view.is_closed).map(|slot| (slot.handle, slot.offset));
        self.gather_free(slots, (begin, begin + size), pieces)
    }

    /// The same along handles in a row, each with the offset at which it begins.
    fn gather_free(
        &self,
        parts: impl Iterator<Item = (SlabIndex, Bytes)>,
        (begin, end): (Bytes, Bytes),
        pieces: &mut Vec<SlabIndex>,
    ) -> Result<Bytes, Obstacle> {
        pieces.clear();
        let (mut place, mut skip) = (begin, None);
        for (handle, offset) in parts {
            let handle = &self.pool.handles[handle];
            let piece = self.pool.piece_at(handle, handle.at.offset(place - offset));
            let entry = &self.pool.pieces[piece];
            if !entry.is_free {
                return Err(Obstacle::Used(piece));
            }
            let offset = offset + (entry.at.0 - handle.at.0);
            skip.get_or_insert(place - offset);
            pieces.push(piece);
            place = offset + entry.size;
            if place >= end {
                return Ok(skip.unwrap_or_default());
            }
            if entry.next != NIL {
                return Err(Obstacle::Used(entry.next));
            }
        }
        Err(Obstacle::Border)
    }
}
