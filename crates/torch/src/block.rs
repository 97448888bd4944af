//! Blocks: what the program holds or has freed, and whose memory it is.

use gmlake_allocators::allocator::BlockId;
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// Who a block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// The allocator that the user chose.
    Main,
    /// The arena of a tag, or the stand-in, in this place.
    Arena(u32),
    /// The pool in this place.
    Graph(u32),
}

/// A block in the program's hands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    pub(super) block: BlockId,
    pub(super) owner: Owner,
    pub(super) stream: StreamId,
    pub(super) requested: Bytes,
    pub(super) size: Bytes,
}

/// A block that its client let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Freed {
    /// Its address.
    pub(super) at: u64,
    /// Bytes asked for.
    pub(super) size: Bytes,
    /// Bytes that it has.
    pub(super) held: Bytes,
    /// The stream that it was asked for on.
    pub(super) stream: StreamId,
    pub(super) block: BlockId,
    /// Whose it is.
    pub(super) owner: Owner,
}
