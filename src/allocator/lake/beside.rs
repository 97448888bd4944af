//! Going on from what is left of a handle into the one beside it, though another stream owns that.
//!
//! A run ends where the owner changes. A stream that takes tensors of 33 MiB out of another one's idle handles of 60
//! leaves 27 MiB in each: too little for its next tensor, and not the other one's any more. So before it takes the next
//! handle whole, it goes on from what is left into idle handles right beside that. They become its own, tensors come
//! to lie close together, and no driver call is made.
//!
//! ```text
//!   owner       stream 1      stream 0      stream 0
//!   arena    ├──── h0 ────┼──── h1 ────┼──── h2 ────┤
//!            │   A   │░░░░│░░░░░░░░░░░░│░░░░░░░░░░░░│      ░ free
//!                    │ B B B B B │                         of stream 1: it owns h1 from now on
//! ```

use super::Lake;
use super::compose::PARTIALS;
use super::fit::Reach;
use super::pool::{Handle, Piece};
use crate::allocator::{NIL, SlabIndex};
use crate::device::DevicePtr;
use crate::trace::StreamId;
use crate::units::Bytes;

/// To which side of a piece it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Side {
    fn of_piece(self, piece: &Piece) -> SlabIndex {
        if self == Self::Left { piece.previous } else { piece.next }
    }

    fn of_handle(self, handle: &Handle) -> SlabIndex {
        if self == Self::Left { handle.left } else { handle.right }
    }
}

impl Lake {
    /// Room that begins in a partial piece of the stream's own, and goes on in idle handles beside it.
    pub(super) fn fit_beside(&mut self, stream: StreamId, size: Bytes, reach: Reach) -> bool {
        if !self.options.beside {
            return false;
        }
        let mut pieces = std::mem::take(&mut self.route.pieces);
        let partials = self.pool.partial.smaller_than(stream, size).take(PARTIALS);
        let way = partials
            .flat_map(|piece| [(piece, Side::Right), (piece, Side::Left)])
            .find(|&way| self.go_on(way, (stream, size, reach), &mut pieces));
        self.route.pieces = pieces;
        let Some((piece, side)) = way else { return false };
        self.route_beside(piece, side, size);
        true
    }

    /// Collects free pieces from one on, until they hold `size` bytes; `false` if there are too few.
    fn go_on(
        &self,
        (piece, side): (SlabIndex, Side),
        (stream, size, reach): (StreamId, Bytes, Reach),
        pieces: &mut Vec<SlabIndex>,
    ) -> bool {
        let begin = &self.pool.pieces[piece];
        if side.of_piece(begin) != NIL || !self.is_allowed(begin.handle, stream, reach) {
            return false;
        }
        pieces.clear();
        pieces.push(piece);
        let mut covered = begin.size;
        let mut handle = side.of_handle(&self.pool.handles[begin.handle]);
        while covered < size {
            let is_usable = handle != NIL
                && self.pool.is_idle(handle)
                && self.is_allowed(handle, stream, reach);
            if !is_usable {
                return false;
            }
            let entry = &self.pool.handles[handle];
            pieces.push(entry.first);
            covered += entry.size;
            handle = side.of_handle(entry);
        }
        true
    }

    /// Makes the pieces that were collected from one on the route, so that all of that one is used.
    fn route_beside(&mut self, piece: SlabIndex, side: Side, size: Bytes) {
        let Piece { at, size: part, .. } = self.pool.pieces[piece];
        let covered: Bytes =
            self.route.pieces.iter().map(|&piece| self.pool.pieces[piece].size).sum();
        (self.route.piece, self.route.view) = (NIL, NIL);
        (self.route.skip, self.route.at) = match side {
            Side::Right => (0, at),
            Side::Left => (covered - size, DevicePtr(at.0 + part - size)),
        };
        if side == Side::Left {
            self.route.pieces.reverse();
        }
    }
}
