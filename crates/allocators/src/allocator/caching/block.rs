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
}

/// A piece of a segment, or of an expandable reservation.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    pub at: u64,
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
    pub stream: StreamId,
    pub state: BlockState,
}

impl Block {
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
pub type Blocks = Slab<Block>;

impl Blocks {
    /// Gives a block to a client, who asked for `requested` bytes, and returns the id by which it is freed.
    #[inline]
    pub fn hand_out(&mut self, index: SlabIndex, requested: Bytes) -> BlockId {
        let (block, id) = self.with_id(index);
        block.state = BlockState::Allocated;
        block.requested = requested;
        id
    }

    /// Cuts the first `size` bytes off a block and returns them as a block of their own, in the same state. The rest
    /// keeps its index.
    #[inline(always)]
    pub fn split_front(&mut self, index: SlabIndex, size: Bytes) -> SlabIndex {
        let rest = self[index];
        let front = Block { size, next: index, requested: 0, free_since: 0, ..rest };
        let front = self.insert(front);
        if rest.prev != NIL {
            self[rest.prev].next = front;
        }
        let block = &mut self[index];
        block.prev = front;
        block.at += size;
        block.size -= size;
        front
    }

    /// Lets a block swallow its left neighbour.
    #[inline]
    pub fn absorb_prev(&mut self, index: SlabIndex) {
        let left = self[index].prev;
        let Block { at, size, prev, .. } = self[left];
        let block = &mut self[index];
        block.at = at;
        block.size += size;
        block.prev = prev;
        if prev != NIL {
            self[prev].next = index;
        }
        self.remove(left);
    }

    /// Lets a block swallow its right neighbour.
    #[inline]
    pub fn absorb_next(&mut self, index: SlabIndex) {
        let right = self[index].next;
        let Block { size, next, .. } = self[right];
        let block = &mut self[index];
        block.size += size;
        block.next = next;
        if next != NIL {
            self[next].prev = index;
        }
        self.remove(right);
    }
}
