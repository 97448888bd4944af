//! Physical memory: handles, and the pieces that they are cut into.
//!
//! A *handle* is mapped once and for all into the arena, right behind the one before it. *Pieces* cut it up without a
//! gap; each is free or in use, and free neighbours within a handle are one piece. A free piece is *whole* if it is all
//! of its handle, and *partial* otherwise; the two are listed apart, by the stream that owns the handle.
//!
//! ```text
//!   handles   ├──────── h0 ────────┼──────── h1 ────────┼──────── h2 ────────┤   one address range
//!   pieces    ├── used ──┼  free   ┤        free        ├ free ┼─── used ────┤
//!                         ╰ suffix ╯╰────── whole ─────╯╰prefix╯
//!   run                   ├───────────── free ────────────────┤
//! ```
//!
//! Free pieces on both sides of a border between handles are contiguous all the same: together they are a *run*.

use super::streams::{Users, note_use};
use crate::allocator::caching::FreeIndex;
use crate::allocator::{NIL, Slab, SlabIndex};
use crate::device::{DevicePtr, HandleId};
use crate::trace::StreamId;
use crate::units::Bytes;

/// Part of a handle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// Its first byte, in the arena.
    pub(super) at: DevicePtr,
    /// Bytes.
    pub(super) size: Bytes,
    /// Its handle.
    pub(super) handle: SlabIndex,
    /// Left neighbour in the same handle.
    pub(super) previous: SlabIndex,
    /// Right neighbour in the same handle.
    pub(super) next: SlabIndex,
    /// While in use: the next piece of the same tensor, to the right of this one in its addresses.
    pub(super) link: SlabIndex,
    /// Whether nobody uses it.
    pub(super) is_free: bool,
}

/// A piece of physical memory as the driver gave it.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    /// The driver's name for it.
    pub(super) id: HandleId,
    /// Where it lies in the arena.
    pub(super) at: DevicePtr,
    /// Bytes.
    pub(super) size: Bytes,
    /// The stream whose requests are served from it first.
    pub(super) owner: StreamId,
    /// Its leftmost piece.
    pub(super) first: SlabIndex,
    /// Its rightmost piece.
    pub(super) last: SlabIndex,
    /// The handle that ends where this one begins.
    pub(super) left: SlabIndex,
    /// The handle that begins where this one ends.
    pub(super) right: SlabIndex,
    /// The run of several handles that begins here.
    pub(super) run_from: SlabIndex,
    /// The run of several handles that ends here.
    pub(super) run_to: SlabIndex,
    /// Which streams freed memory in it, and before which of their fences.
    pub(super) users: Users,
    /// Views that map it.
    pub(super) views: Vec<SlabIndex>,
    /// Whether it was released.
    pub(super) is_gone: bool,
}

/// A run: free pieces side by side, in several handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The handle in whose last piece it begins.
    pub(super) first: SlabIndex,
    /// The handle in whose first piece it ends.
    pub(super) last: SlabIndex,
    /// Its first byte.
    pub(super) at: u64,
    /// Bytes.
    pub(super) size: Bytes,
    /// Its owner.
    pub(super) owner: StreamId,
    /// Whether it is but two partial pieces.
    pub(super) is_pair: bool,
}

/// All handles and pieces, and the free ones in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Pool {
    pub(super) pieces: Slab<Piece>,
    pub(super) handles: Slab<Handle>,
    pub(super) partial: FreeIndex,
    pub(super) runs: Slab<Run>,
    pub(super) runs_by_size: FreeIndex,
    /// Runs of two partial pieces.
    pub(super) pairs: FreeIndex,
    /// Handles that are held.
    pub(super) count: u64,
}

impl Pool {
    /// Adds a handle, all of it free, between its neighbours in the arena.
    pub(super) fn add(
        &mut self,
        id: HandleId,
        (at, size): (DevicePtr, Bytes),
        owner: StreamId,
        (left, right): (SlabIndex, SlabIndex),
    ) -> SlabIndex {
        let handle = self.handles.insert(Handle {
            id,
            at,
            size,
            owner,
            first: NIL,
            last: NIL,
            left,
            right,
            run_from: NIL,
            run_to: NIL,
            users: Users::new(),
            views: Vec::new(),
            is_gone: false,
        });
        let piece = self.pieces.insert(Piece {
            at,
            size,
            handle,
            previous: NIL,
            next: NIL,
            link: NIL,
            is_free: true,
        });
        let entry = &mut self.handles[handle];
        (entry.first, entry.last) = (piece, piece);
        if left != NIL {
            self.handles[left].right = handle;
        }
        if right != NIL {
            self.handles[right].left = handle;
        }
        self.count += 1;
        self.join_runs(handle, handle);
        handle
    }

    /// Forgets a handle, all of which is free; says which neighbours it leaves apart.
    pub(super) fn remove(&mut self, handle: SlabIndex) -> (SlabIndex, SlabIndex) {
        let Handle { first, last, left, right, .. } = self.handles[handle];
        debug_assert!(first == last && self.pieces[first].is_free, "only idle handles may go");
        self.part_runs(handle);
        self.pieces.remove(first);
        if left != NIL {
            self.handles[left].right = NIL;
        }
        if right != NIL {
            self.handles[right].left = NIL;
        }
        let entry = &mut self.handles[handle];
        entry.is_gone = true;
        entry.users = Users::new();
        entry.views = Vec::new();
        self.handles.remove(handle);
        self.count -= 1;
        (left, right)
    }

    /// Whether all of a handle is free.
    #[inline]
    pub(super) fn is_idle(&self, handle: SlabIndex) -> bool {
        let Handle { first, last, .. } = self.handles[handle];
        first == last && self.pieces[first].is_free
    }

    /// Whether a piece is at neither end of its handle, and free neighbours are not either, so that no run changes when
    /// it is taken or given back.
    #[inline]
    pub(super) fn is_inside(&self, piece: SlabIndex) -> bool {
        let Piece { previous, next, .. } = self.pieces[piece];
        let is_end = |piece: SlabIndex, beyond: fn(&Piece) -> SlabIndex| {
            piece == NIL || (self.pieces[piece].is_free && beyond(&self.pieces[piece]) == NIL)
        };
        !is_end(previous, |piece| piece.previous) && !is_end(next, |piece| piece.next)
    }

    /// Takes `size` bytes of a free piece, `skip` bytes behind its beginning, for a stream. Its handle must not be in
    /// a run.
    #[inline]
    pub(super) fn take(
        &mut self,
        piece: SlabIndex,
        skip: Bytes,
        size: Bytes,
        stream: StreamId,
    ) -> SlabIndex {
        let handle = self.pieces[piece].handle;
        if self.pieces[piece].size == self.handles[handle].size {
            self.handles[handle].owner = stream;
        } else {
            self.unlist(piece);
        }
        let mut taken = piece;
        if skip > 0 {
            taken = self.split(piece, skip);
            self.list(piece);
        }
        if self.pieces[taken].size > size {
            let rest = self.split(taken, size);
            self.list(rest);
        }
        let entry = &mut self.pieces[taken];
        entry.is_free = false;
        entry.link = NIL;
        taken
    }

    /// Takes a piece back from a stream, which has not got to its fence number `epoch` yet. Its handle must not be in
    /// a run.
    #[inline]
    pub(super) fn give(&mut self, piece: SlabIndex, stream: StreamId, epoch: u32) {
        let Piece { handle, previous, next, .. } = self.pieces[piece];
        note_use(&mut self.handles[handle].users, (stream, epoch));
        self.pieces[piece].is_free = true;
        let mut piece = piece;
        if next != NIL && self.pieces[next].is_free {
            self.unlist(next);
            self.merge(piece, next);
        }
        if previous != NIL && self.pieces[previous].is_free {
            self.unlist(previous);
            self.merge(previous, piece);
            piece = previous;
        }
        if self.pieces[piece].size < self.handles[handle].size {
            self.list(piece);
        }
    }

    /// Cuts a piece behind its first `size` bytes; the right part is returned, and not listed.
    #[inline]
    fn split(&mut self, piece: SlabIndex, size: Bytes) -> SlabIndex {
        let whole = self.pieces[piece];
        let right = self.pieces.insert(Piece {
            at: whole.at.offset(size),
            size: whole.size - size,
            previous: piece,
            ..whole
        });
        let left = &mut self.pieces[piece];
        left.size = size;
        left.next = right;
        match whole.next {
            NIL => self.handles[whole.handle].last = right,
            next => self.pieces[next].previous = right,
        }
        right
    }

    /// Makes `right` a part of its left neighbour.
    #[inline]
    fn merge(&mut self, left: SlabIndex, right: SlabIndex) {
        let Piece { size, next, handle, .. } = self.pieces[right];
        let entry = &mut self.pieces[left];
        entry.size += size;
        entry.next = next;
        match next {
            NIL => self.handles[handle].last = left,
            next => self.pieces[next].previous = left,
        }
        self.pieces.remove(right);
    }

    /// Lists a partial piece.
    #[inline]
    fn list(&mut self, piece: SlabIndex) {
        let Piece { at, size, handle, .. } = self.pieces[piece];
        self.partial.insert(self.handles[handle].owner, size, at.0, piece);
    }

    #[inline]
    fn unlist(&mut self, piece: SlabIndex) {
        let Piece { at, size, handle, .. } = self.pieces[piece];
        self.partial.remove(self.handles[handle].owner, size, at.0);
    }

    /// The pieces of a tensor, from the first one on.
    pub(super) fn chain(&self, piece: SlabIndex) -> impl Iterator<Item = SlabIndex> + '_ {
        let real = |piece: SlabIndex| (piece != NIL).then_some(piece);
        std::iter::successors(real(piece), move |&piece| real(self.pieces[piece].link))
    }

    /// The piece of a handle that an address in it belongs to, looked for from the nearer end.
    pub(super) fn piece_at(&self, handle: &Handle, at: DevicePtr) -> SlabIndex {
        if at.0 - handle.at.0 > handle.size / 2 {
            let mut piece = handle.last;
            while at < self.pieces[piece].at {
                piece = self.pieces[piece].previous;
            }
            return piece;
        }
        let mut piece = handle.first;
        while at >= self.pieces[piece].at.offset(self.pieces[piece].size) {
            piece = self.pieces[piece].next;
        }
        piece
    }

    /// Handles that are held, in no particular order.
    pub(super) fn held(&self) -> impl Iterator<Item = SlabIndex> + '_ {
        (0..self.handles.len() as SlabIndex).filter(|&handle| !self.handles[handle].is_gone)
    }
}
