//! Memory of CUDA graphs.
//!
//! A graph is captured once and replayed at will, always on the addresses that it was captured with. What was asked
//! for on a captured stream must therefore stay apart from all else, also after the program has freed it:
//!
//! ```text
//!   begin(pool)   malloc malloc free malloc ...   end(pool)    replay   replay ...    release(pool)
//!                 └─ out of the pool's own allocator ─┘        nobody else has it     it goes back to the device
//! ```
//!
//! The pool's allocator is PyTorch's own policy whatever else is configured: memory that is laid out once gains
//! nothing by stitching, and no fence may be put into a stream that is being captured.

use crate::alloc_conf::AllocConf;
use crate::allocator::{Allocator, Caching, Environment};

/// Who a block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The allocator that the user chose.
    Main,
    /// The pool in this place.
    Graph(u32),
}

/// The memory of one or more graphs.
pub struct GraphPool {
    /// PyTorch's number of the pool.
    pub(super) id: (u64, u64),
    pub(super) allocator: Box<dyn Allocator>,
    /// Captures that use the pool, and graphs that were captured with it.
    pub(super) users: u32,
    /// Whether a capture is under way.
    pub(super) is_begun: bool,
    /// Blocks in the program's hands.
    pub(super) live: usize,
}

impl GraphPool {
    /// A pool that holds nothing.
    #[must_use]
    pub fn new(id: (u64, u64)) -> Self {
        let allocator = Box::new(Caching::new(&Environment::new(AllocConf::default())));
        Self { id, allocator, users: 0, is_begun: false, live: 0 }
    }

    /// Whether no graph will use the pool any more, and nothing of it is in use.
    pub(super) fn is_over(&self) -> bool {
        self.users == 0 && self.live == 0
    }
}
