//! Tensors: what clients hold, and how it comes back.

use super::Lake;
use super::streams::note_use;
use crate::allocator::{
    Allocation, BlockId, BlockKind, BlockUse, BlockView, NIL, Request, SlabIndex,
};
use crate::device::DevicePtr;
use crate::trace::{PoolId, StreamId};
use crate::units::Bytes;

/// A chain of pieces that is contiguous at some addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// The first piece.
    pub(super) piece: SlabIndex,
    /// Address of the first byte.
    pub(super) at: DevicePtr,
    /// The view that makes them contiguous; `NIL`: the arena does.
    pub(super) view: SlabIndex,
}

/// Where a tensor lives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// In a block of the small pool.
    Small(SlabIndex),
    /// By itself.
    Large(Room),
}

/// A block in a client's hands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tensor {
    /// Where it lives.
    pub(super) place: Place,
    requested: Bytes,
    size: Bytes,
    /// The stream that asked for it.
    pub(super) stream: StreamId,
    state: BlockUse,
}

impl Lake {
    #[inline]
    pub(super) fn hand_out(&mut self, place: Place, request: Request, size: Bytes) -> Allocation {
        let Request { size: requested, stream, .. } = request;
        let tensor = Tensor { place, requested, size, stream, state: BlockUse::Allocated };
        let index = self.tensors.insert(tensor);
        self.ledger.malloc(requested, size);
        Allocation { at: self.address(place), size, block: self.tensors.id(index) }
    }

    pub(super) fn request_free(&mut self, block: BlockId, users: &[StreamId]) {
        let index = self.tensors.expect(block);
        let tensor = &mut self.tensors[index];
        assert_eq!(tensor.state, BlockUse::Allocated, "{block:?} was freed twice");
        tensor.state = BlockUse::Pending;
        self.pending += 1;
        self.ledger.free_requested(tensor.size);
        self.lend(index, users);
    }

    pub(super) fn complete_free(&mut self, block: BlockId) {
        if let Some(index) = self.tensors.find(block) {
            assert_eq!(self.tensors[index].state, BlockUse::Pending, "{block:?} was not freed");
            self.pending -= 1;
            self.end_lending(index);
            self.take_back(index);
        }
    }

    #[inline]
    pub(super) fn take_back_now(&mut self, block: BlockId) {
        let index = self.tensors.expect(block);
        let tensor = &self.tensors[index];
        assert_eq!(tensor.state, BlockUse::Allocated, "{block:?} was freed twice");
        self.ledger.free_requested(tensor.size);
        self.take_back(index);
    }

    /// After the device was synchronised: what waited for a stream is free.
    pub(super) fn complete_all(&mut self) {
        if self.pending == 0 {
            return;
        }
        for index in 0..self.tensors.len() as SlabIndex {
            if self.tensors[index].state == BlockUse::Pending {
                self.end_lending(index);
                self.take_back(index);
            }
        }
        self.pending = 0;
    }

    #[inline]
    pub(super) fn take_back(&mut self, index: SlabIndex) {
        let Tensor { place, requested, size, stream, .. } = self.tensors[index];
        self.ledger.free_completed(requested, size);
        self.tensors[index].state = BlockUse::Free;
        self.tensors.remove(index);
        match place {
            Place::Small(block) => self.free_small(block),
            Place::Large(room) => self.return_room(room, stream),
        }
    }

    /// Frees the pieces of a room that a stream used.
    #[inline]
    pub(super) fn return_room(&mut self, room: Room, stream: StreamId) {
        let epoch = self.streams.epoch(stream);
        if room.view != NIL {
            let view = &mut self.views.all[room.view];
            view.tensors -= 1;
            note_use(&mut view.users, (stream, epoch));
        }
        self.return_pieces(room.piece, stream, epoch);
    }

    /// Frees a chain of pieces. Those that are neighbours in the arena join a run together.
    #[inline]
    fn return_pieces(&mut self, mut piece: SlabIndex, stream: StreamId, epoch: u32) {
        if self.pool.pieces[piece].link == NIL && self.pool.is_inside(piece) {
            return self.pool.give(piece, stream, epoch);
        }
        while piece != NIL {
            let first = self.pool.pieces[piece].handle;
            self.pool.part_runs(first);
            let mut last = first;
            loop {
                let next = self.pool.pieces[piece].link;
                self.pool.give(piece, stream, epoch);
                piece = next;
                if piece == NIL {
                    break;
                }
                let handle = self.pool.pieces[piece].handle;
                let (left, right) = (&self.pool.handles[last], &self.pool.handles[handle]);
                if left.right != handle || left.owner != right.owner {
                    break;
                }
                self.pool.part_runs(handle);
                last = handle;
            }
            self.pool.join_runs(first, last);
        }
    }

    #[inline]
    fn address(&self, place: Place) -> DevicePtr {
        match place {
            Place::Small(block) => self.small.block(block).at,
            Place::Large(room) => room.at,
        }
    }

    /// Shows every block in address order. A tensor in a view is shown there, the pieces under it as aliases.
    pub(super) fn walk_blocks(&self, visit: &mut dyn FnMut(BlockView)) {
        let mut blocks = Vec::new();
        for index in 0..self.tensors.len() as SlabIndex {
            let Tensor { place, requested, size, stream, state } = self.tensors[index];
            if state == BlockUse::Free {
                continue;
            }
            let at = self.address(place);
            let (segment, kind) = match place {
                Place::Small(block) => {
                    let slab = self.small.block(block).segment;
                    (slab, self.kind_of_slab(slab))
                }
                Place::Large(Room { view: NIL, piece, .. }) => {
                    (self.pool.handles[self.pool.pieces[piece].handle].at, BlockKind::Large)
                }
                Place::Large(room) => (self.views.all[room.view].at, BlockKind::Stitched),
            };
            let block = Some(self.tensors.id(index));
            blocks.push(BlockView {
                block,
                requested,
                kind,
                ..idle(at, size, stream, state, segment)
            });
        }
        self.walk_free(&mut blocks);
        blocks.sort_by_key(|block| block.at);
        self.walk_views(&mut blocks);
        blocks.sort_by_key(|block| block.at);
        blocks.into_iter().for_each(visit);
    }

    /// Free pieces, pieces under tensors in views, and what is free in slabs.
    fn walk_free(&self, blocks: &mut Vec<BlockView>) {
        for handle in self.pool.held() {
            let entry = &self.pool.handles[handle];
            let mut piece = entry.first;
            while piece != NIL {
                let part = &self.pool.pieces[piece];
                if part.is_free {
                    blocks.push(idle(part.at, part.size, entry.owner, BlockUse::Free, entry.at));
                }
                piece = part.next;
            }
        }
        for (_, block) in self.small.blocks().filter(|(_, block)| block.is_free) {
            let kind = self.kind_of_slab(block.segment);
            let free = idle(block.at, block.size, block.stream, BlockUse::Free, block.segment);
            blocks.push(BlockView { kind, ..free });
        }
        for index in 0..self.tensors.len() as SlabIndex {
            let Tensor { place, state, stream, .. } = self.tensors[index];
            if let (Place::Large(room), true) = (place, state != BlockUse::Free) {
                self.walk_under(room, stream, blocks);
            }
        }
        self.slabs.values().for_each(|&room| self.walk_under(room, StreamId(0), blocks));
    }

    /// A slab in a view lies at stitched addresses, and so does all that is in it.
    fn kind_of_slab(&self, at: DevicePtr) -> BlockKind {
        let is_stitched = self.slabs.get(&at).is_some_and(|room| room.view != NIL);
        if is_stitched { BlockKind::Stitched } else { BlockKind::Small }
    }

    /// The pieces under a room in a view.
    fn walk_under(&self, room: Room, stream: StreamId, blocks: &mut Vec<BlockView>) {
        let mut piece = if room.view == NIL { NIL } else { room.piece };
        while piece != NIL {
            let part = &self.pool.pieces[piece];
            let segment = self.pool.handles[part.handle].at;
            blocks.push(idle(part.at, part.size, stream, BlockUse::Alias, segment));
            piece = part.link;
        }
    }

    /// What is mapped in views and not at a tensor's addresses.
    fn walk_views(&self, blocks: &mut Vec<BlockView>) {
        let mut aliases = Vec::new();
        for view in self.views.existing() {
            let view = &self.views.all[view];
            let end = view.at.offset(view.size);
            let from = blocks.partition_point(|block| block.at < view.at);
            let inside = blocks[from..].iter().take_while(|block| block.at < end);
            let mut gaps: Vec<(DevicePtr, DevicePtr)> = Vec::new();
            let mut cursor = view.at;
            for block in inside {
                gaps.push((cursor, block.at));
                cursor = block.at.offset(block.size);
            }
            gaps.push((cursor, end));
            for slot in view.slots.iter().filter(|slot| slot.handle != NIL) {
                let handle = &self.pool.handles[slot.handle];
                let at = view.at.offset(slot.offset);
                let until = at.offset(handle.size);
                for &(begin, end) in &gaps {
                    let (begin, end) = (begin.max(at), end.min(until));
                    if begin < end {
                        let size = end.0 - begin.0;
                        let alias = idle(begin, size, handle.owner, BlockUse::Alias, view.at);
                        aliases.push(BlockView { kind: BlockKind::Stitched, ..alias });
                    }
                }
            }
        }
        blocks.extend(aliases);
    }
}

fn idle(
    at: DevicePtr,
    size: Bytes,
    stream: StreamId,
    state: BlockUse,
    segment: DevicePtr,
) -> BlockView {
    let (pool, kind) = (PoolId::DEFAULT, BlockKind::Large);
    BlockView { block: None, at, size, requested: 0, stream, state, pool, kind, segment }
}
