//! Every block in address order, as a snapshot shows them. A tensor in a view is shown there, and the memory under it
//! as an alias.

use super::arena::ALL;
use super::{Lake, Place, Room};
use crate::allocator::{BlockKind, BlockUse, BlockView, NIL, SlabIndex};
use crate::device::DevicePtr;
use gmlake_core::program::StreamId;

impl Lake {
    pub(super) fn all_blocks(&self) -> Vec<BlockView> {
        let mut blocks = self.free_blocks();
        for (place, view) in self.live.views() {
            let (segment, kind) = match place {
                Place::Small(block) => {
                    let slab = self.small.block(block).segment;
                    (slab, self.kind_of_slab(slab))
                }
                Place::Large(Room { view: NIL, .. }) => (self.segment(view.at.0), BlockKind::Large),
                Place::Large(room) => (self.views.all[room.view].at, BlockKind::Stitched),
            };
            blocks.push(BlockView { kind, segment, ..view });
            if let Place::Large(room) = place {
                blocks.extend(self.under(room, view.stream));
            }
        }
        blocks.extend(self.slabs.values().flat_map(|&room| self.under(room, ALL)));
        blocks.sort_by_key(|block| block.at);
        blocks
    }

    /// First address of the handle that an address of the arena lies in.
    fn segment(&self, at: u64) -> DevicePtr {
        DevicePtr(self.arena.handles[self.arena.handle_at(at)].span.start)
    }

    /// What is free in handles, and in slabs.
    fn free_blocks(&self) -> Vec<BlockView> {
        let mut blocks = Vec::new();
        for free in self.arena.largest_first() {
            for handle in self.arena.handles_in(free) {
                let span = &self.arena.handles[handle].span;
                let part = free.start.max(span.start)..free.end.min(span.end);
                let segment = DevicePtr(span.start);
                blocks.push(BlockView { segment, ..BlockView::gap(part, ALL) });
            }
        }
        for block in self.small.free_blocks() {
            let (kind, segment) = (self.kind_of_slab(block.segment), block.segment);
            let free = BlockView::free(block.at, block.size, block.stream);
            blocks.push(BlockView { kind, segment, ..free });
        }
        blocks
    }

    /// A slab in a view lies at stitched addresses, and so does all that is in it.
    fn kind_of_slab(&self, at: DevicePtr) -> BlockKind {
        let is_stitched = self.slabs.get(&at).is_some_and(|room| room.view != NIL);
        if is_stitched { BlockKind::Stitched } else { BlockKind::Small }
    }

    /// The memory under what lives in a view.
    fn under(&self, room: Room, stream: StreamId) -> impl Iterator<Item = BlockView> {
        let first = if room.view == NIL { NIL } else { room.block };
        let linked = |&block: &SlabIndex| Some(self.arena.blocks[block].link).filter(is_some);
        std::iter::successors(Some(first).filter(is_some), linked).map(move |block| {
            let span = self.arena.blocks[block].span.clone();
            let (state, segment) = (BlockUse::Alias, self.segment(span.start));
            BlockView { state, segment, ..BlockView::gap(span, stream) }
        })
    }
}

fn is_some(block: &SlabIndex) -> bool {
    *block != NIL
}
