//! Walk: every block in address order, as a snapshot shows them. A tensor in a view is shown there, and the memory
//! under it as an alias.

use super::arena::{ALL, Span};
use super::{Lake, Place, Room};
use crate::allocator::{BlockKind, BlockUse, BlockView, NIL};
use crate::device::DevicePtr;
use gmlake_core::program::{PoolId, StreamId};

/// A block that no client has.
fn unnamed(span: Span, state: BlockUse, stream: StreamId) -> BlockView {
    BlockView {
        block: None,
        at: DevicePtr(span.start),
        size: span.end - span.start,
        requested: 0,
        stream,
        state,
        pool: PoolId::DEFAULT,
        kind: BlockKind::Large,
        segment: DevicePtr(span.start),
    }
}

impl Lake {
    /// Shows every block.
    pub(super) fn walk_blocks(&self, visit: &mut dyn FnMut(BlockView)) {
        let mut blocks = Vec::new();
        self.walk_tensors(&mut blocks);
        self.walk_free(&mut blocks);
        blocks.sort_by_key(|block| block.at);
        blocks.into_iter().for_each(visit);
    }

    fn walk_tensors(&self, blocks: &mut Vec<BlockView>) {
        for (id, live) in self.live.iter() {
            let (segment, kind) = match live.place {
                Place::Small(block) => {
                    let slab = self.small.block(block).segment;
                    (slab, self.kind_of_slab(slab))
                }
                Place::Large(Room { view: NIL, .. }) => (self.segment(live.at.0), BlockKind::Large),
                Place::Large(room) => (self.views.all[room.view].at, BlockKind::Stitched),
            };
            let span = live.at.0..live.at.0 + live.size;
            let (block, requested) = (Some(id), live.requested);
            let unnamed = unnamed(span, live.state, live.stream);
            blocks.push(BlockView { block, requested, kind, segment, ..unnamed });
            if let Place::Large(room) = live.place {
                self.walk_under(room, live.stream, blocks);
            }
        }
        self.slabs.values().for_each(|&room| self.walk_under(room, ALL, blocks));
    }

    /// First address of the handle that an address of the arena lies in.
    fn segment(&self, at: u64) -> DevicePtr {
        DevicePtr(self.arena.handles[self.arena.handle_at(at)].span.start)
    }

    /// What is free in handles, and in slabs.
    fn walk_free(&self, blocks: &mut Vec<BlockView>) {
        for free in self.arena.largest_first() {
            for handle in self.arena.handles_in(free) {
                let entry = &self.arena.handles[handle];
                let part = free.start.max(entry.span.start)..free.end.min(entry.span.end);
                let segment = DevicePtr(entry.span.start);
                let free = unnamed(part, BlockUse::Free, ALL);
                blocks.push(BlockView { segment, ..free });
            }
        }
        for (_, block) in self.small.blocks().filter(|(_, block)| block.is_free) {
            let (kind, segment) = (self.kind_of_slab(block.segment), block.segment);
            let span = block.at.0..block.at.0 + block.size;
            let free = unnamed(span, BlockUse::Free, block.stream);
            blocks.push(BlockView { kind, segment, ..free });
        }
    }

    /// A slab in a view lies at stitched addresses, and so does all that is in it.
    fn kind_of_slab(&self, at: DevicePtr) -> BlockKind {
        let is_stitched = self.slabs.get(&at).is_some_and(|room| room.view != NIL);
        if is_stitched { BlockKind::Stitched } else { BlockKind::Small }
    }

    /// The memory under what lives in a view.
    fn walk_under(&self, room: Room, stream: StreamId, blocks: &mut Vec<BlockView>) {
        let mut block = if room.view == NIL { NIL } else { room.block };
        while block != NIL {
            let entry = &self.arena.blocks[block];
            let segment = self.segment(entry.span.start);
            let alias = unnamed(entry.span.clone(), BlockUse::Alias, stream);
            blocks.push(BlockView { segment, ..alias });
            block = entry.link;
        }
    }
}
