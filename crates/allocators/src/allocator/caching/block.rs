//! Blocks, and the chains that they form.
//!
//! A segment is a chain of blocks, linked in address order; so is an expandable reservation, whose chain also has
//! unmapped blocks. A split puts a link in, a merge takes one out:
//!
//! ```text
//!   segment   [ allocated ]─[ free          ]─[ allocated ]
//!                             split at 4 KiB
//!             [ allocated ]─[ 4 KiB ]─[ free ]─[ allocated ]
//! ```

use crate::allocator::free_index::Place;
use crate::allocator::{BlockId, NIL, Slab, SlabIndex};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// What a block is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockState {
    /// In its pool's free index.
    Free,
    /// In a client's hands.
    Allocated,
    /// Freed by the client, in use by a stream.
    Pending,
    /// Part of an expandable reservation, without memory.
    Unmapped,
    /// No block: the place in the slab is vacant.
    Vacant,
}

/// A piece of a segment, or of an expandable reservation.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// Its first address.
    pub at: u64,
    /// Its size.
    pub size: Bytes,
    /// The pool's count of searches when the block became free; its age is counted from there.
    pub free_since: u64,
    /// What the client asked for, while the block is active.
    pub requested: Bytes,
    /// Left neighbour in the segment, or `NIL`.
    pub prev: SlabIndex,
    /// Right neighbour in the segment, or `NIL`.
    pub next: SlabIndex,
    /// The expandable reservation that it is part of, or `NIL`.
    pub reservation: SlabIndex,
    /// Its pool's place in the list of pools.
    pub pool: u16,
    /// Its rank among free blocks of its size.
    pub rank: u32,
    /// Its stream.
    pub stream: StreamId,
    /// Its state.
    pub state: BlockState,
}

impl Block {
    /// The address after its last byte.
    #[inline]
    pub fn end(&self) -> u64 {
        self.at + self.size
    }

    /// Its place among free blocks of its size.
    #[inline]
    pub fn place(&self) -> Place {
        Place { rank: self.rank, at: self.at }
    }

    /// Whether it is a part of its segment only.
    #[inline]
    pub fn is_split(&self) -> bool {
        self.prev != NIL || self.next != NIL
    }

    /// Whether it belongs to an expandable reservation.
    #[inline]
    pub fn is_expandable(&self) -> bool {
        self.reservation != NIL
    }
}

/// All blocks of an allocator.
#[derive(Debug, Clone, Default)]
pub struct Blocks {
    slab: Slab<Block>,
}

impl std::ops::Index<SlabIndex> for Blocks {
    type Output = Block;

    #[inline]
    fn index(&self, index: SlabIndex) -> &Block {
        &self.slab[index]
    }
}

impl std::ops::IndexMut<SlabIndex> for Blocks {
    #[inline]
    fn index_mut(&mut self, index: SlabIndex) -> &mut Block {
        &mut self.slab[index]
    }
}

impl Blocks {
    /// Adds a block that is linked to nothing yet, or by the links that it brings.
    #[inline]
    pub fn insert(&mut self, block: Block) -> SlabIndex {
        self.slab.insert(block)
    }

    /// The id by which a client frees the block.
    #[inline]
    pub fn id(&self, index: SlabIndex) -> BlockId {
        self.slab.id(index)
    }

    /// Gives a block to a client, who asked for `requested` bytes, and returns the id by which it is freed.
    #[inline]
    pub fn hand_out(&mut self, index: SlabIndex, requested: Bytes) -> BlockId {
        let (block, id) = self.slab.with_id(index);
        block.state = BlockState::Allocated;
        block.requested = requested;
        id
    }

    /// The block with this id, unless it was freed since.
    #[inline]
    pub fn find(&self, id: BlockId) -> Option<SlabIndex> {
        self.slab.find(id)
    }

    /// The block with this id; a stale one is the caller's bug.
    #[inline]
    pub fn expect(&self, id: BlockId) -> SlabIndex {
        self.slab.expect(id)
    }

    /// Makes the block's id stale: the client has no more business with it.
    #[inline]
    pub fn retire(&mut self, index: SlabIndex) {
        self.slab.retire(index);
    }

    /// Forgets a block without touching its neighbours.
    #[inline]
    pub fn remove(&mut self, index: SlabIndex) {
        self.slab[index].state = BlockState::Vacant;
        self.slab.remove(index);
    }

    /// Cuts the first `size` bytes off a block and returns them as a block of their own, in the same state. The rest
    /// keeps its index.
    #[inline(always)]
    pub fn split_front(&mut self, index: SlabIndex, size: Bytes) -> SlabIndex {
        let rest = self.slab[index];
        let front = Block { size, next: index, requested: 0, free_since: 0, ..rest };
        let front = self.slab.insert(front);
        if rest.prev != NIL {
            self.slab[rest.prev].next = front;
        }
        let block = &mut self.slab[index];
        block.prev = front;
        block.at += size;
        block.size -= size;
        front
    }

    /// Lets a block swallow its left neighbour.
    #[inline]
    pub fn absorb_prev(&mut self, index: SlabIndex) {
        let left = self.slab[index].prev;
        let Block { at, size, prev, .. } = self.slab[left];
        let block = &mut self.slab[index];
        block.at = at;
        block.size += size;
        block.prev = prev;
        if prev != NIL {
            self.slab[prev].next = index;
        }
        self.remove(left);
    }

    /// Lets a block swallow its right neighbour.
    #[inline]
    pub fn absorb_next(&mut self, index: SlabIndex) {
        let right = self.slab[index].next;
        let Block { size, next, .. } = self.slab[right];
        let block = &mut self.slab[index];
        block.size += size;
        block.next = next;
        if next != NIL {
            self.slab[next].prev = index;
        }
        self.remove(right);
    }

    /// Every block that there is, in no particular order.
    pub fn indices(&self) -> impl Iterator<Item = SlabIndex> + '_ {
        let all = 0..self.slab.len() as SlabIndex;
        all.filter(|&index| self.slab[index].state != BlockState::Vacant)
    }

    /// Every block that there is, in address order.
    pub fn by_address(&self) -> Vec<SlabIndex> {
        let mut indices: Vec<_> = self.indices().collect();
        indices.sort_unstable_by_key(|&index| self.slab[index].at);
        indices
    }
}
