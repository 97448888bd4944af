//! Memory that its client has let go of while other streams still use it (`Tensor.record_stream`).
//!
//! PyTorch takes it back when events on those streams have been reached. So do we; but it can be *recalled* before:
//! taken back as memory that those streams freed when its client did. Whoever gets it waits for them, on the GPU, as
//! for all other memory of theirs ([`streams`](super::streams)).
//!
//! ```text
//!   stream 1   alloc a   free a ................ (PyTorch: a is free here, when the host sees that 2 is done)
//!   stream 2      uses a ──────────────┤
//!   stream 1             recall a, wait for 2 ─┤ uses the memory of a
//! ```
//!
//! Only what lies in the way is recalled, when a request is to go where its like went before
//! ([`repeat`](super::repeat)): so it goes there, although the GPU is a little later this time. A fence is made behind
//! what is lent at once, so that nobody waits for more than that.

use rustc_hash::FxHashMap;

use super::Lake;
use super::streams::{Users, note_use};
use super::tensors::{Place, Room, Tensor};
use crate::allocator::{BlockId, NIL, SlabIndex};
use crate::device::Device;
use crate::trace::StreamId;

/// What is lent, and what was recalled.
#[derive(Debug, Clone, Default)]
pub(super) struct Lent {
    /// Tensors, and what has to come before anyone else uses their memory.
    tensors: FxHashMap<SlabIndex, Users>,
    /// The tensor that each of their pieces belongs to.
    pieces: FxHashMap<SlabIndex, SlabIndex>,
    /// Uses behind which there may be no fence yet.
    open: Users,
    recalled: Vec<BlockId>,
}

impl Lent {
    /// A request begins: nobody asks for what was recalled before it any more.
    #[inline]
    pub(super) fn forget_recalled(&mut self) {
        self.recalled.clear();
    }

    /// Tensors that the last request recalled.
    pub(super) fn take_recalled(&mut self) -> Vec<BlockId> {
        std::mem::take(&mut self.recalled)
    }
}

impl Lake {
    /// A tensor is free for its own stream, and these others may still be using it. If there are none, nothing says
    /// whom to wait for.
    pub(super) fn lend(&mut self, tensor: SlabIndex, users: &[StreamId]) {
        if !(self.options.recall && self.options.waits && self.options.repeat) {
            return;
        }
        let Tensor { place: Place::Large(room), stream, .. } = self.tensors[tensor] else { return };
        let others = users.iter().filter(|&&user| user != stream);
        let users: Users = others.map(|&user| (user, self.streams.epoch(user))).collect();
        if users.is_empty() {
            return;
        }
        self.lent.open.extend_from_slice(&users);
        self.lent.tensors.insert(tensor, users);
        for piece in self.pool.chain(room.piece) {
            self.lent.pieces.insert(piece, tensor);
        }
    }

    /// Makes fences behind the uses of what was lent since this was last called: soon after the frees, since the later
    /// the fence, the longer somebody may have to wait.
    #[inline]
    pub(super) fn close_uses(&mut self, device: &mut dyn Device) {
        for place in 0..self.lent.open.len() {
            self.streams.close(device, self.lent.open[place]);
        }
        self.lent.open.clear();
    }

    /// A tensor is lent no more. Says who may still be using it.
    pub(super) fn end_lending(&mut self, tensor: SlabIndex) -> Option<Users> {
        let users = self.lent.tensors.remove(&tensor)?;
        if let Place::Large(Room { piece, .. }) = self.tensors[tensor].place {
            for piece in self.pool.chain(piece) {
                self.lent.pieces.remove(&piece);
            }
        }
        Some(users)
    }

    /// Takes back the lent tensor that a piece belongs to. Says whether it is one.
    pub(super) fn recall(&mut self, piece: SlabIndex) -> bool {
        let Some(&tensor) = self.lent.pieces.get(&piece) else { return false };
        let users = self.end_lending(tensor).expect("a piece names a tensor that is lent");
        self.note_users(tensor, &users);
        self.lent.recalled.push(self.tensors.id(tensor));
        self.tally.recalled += 1;
        self.pending -= 1;
        self.take_back(tensor);
        true
    }

    /// Notes who else uses the memory of a tensor, and the addresses at which it was handed out.
    fn note_users(&mut self, tensor: SlabIndex, users: &[(StreamId, u32)]) {
        let Place::Large(room) = self.tensors[tensor].place else { return };
        let mut piece = room.piece;
        while piece != NIL {
            let part = self.pool.pieces[piece];
            let all = &mut self.pool.handles[part.handle].users;
            users.iter().for_each(|&user| note_use(all, user));
            piece = part.link;
        }
        if room.view != NIL {
            let all = &mut self.views.all[room.view].users;
            users.iter().for_each(|&user| note_use(all, user));
        }
    }
}
