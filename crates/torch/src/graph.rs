//! Memory of CUDA graphs.
//!
//! A graph is captured once and replayed at will, always on the addresses that it was captured with. What was asked
//! for on a captured stream must therefore stay apart from all else, also after the program has freed it:
//!
//! ```text
//!   begin(pool)   malloc malloc free malloc ...   end(pool)    replay   replay ...    release(pool)
//!                 └─ out of the pool's own allocator ─┘        never reused           it goes back to the device
//! ```
//!
//! The pool's allocator is PyTorch's own policy whatever else is configured: memory that is laid out once gains
//! nothing by stitching, and no fence may be put into a stream that is being captured.

use super::block::Owner;
use gmlake_allocators::allocator::{Allocator, Caching, Environment};
use gmlake_core::alloc_conf::AllocConf;

/// The memory of one or more graphs.
pub(super) struct GraphPool {
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
    fn new(id: (u64, u64)) -> Self {
        let allocator = Box::new(Caching::new(&Environment::new(AllocConf::default())));
        Self { id, allocator, users: 0, is_begun: false, live: 0 }
    }

    /// Whether no graph will use the pool any more, and nothing of it is in use.
    pub(super) fn is_over(&self) -> bool {
        self.users == 0 && self.live == 0
    }
}

/// The pools of one GPU. A pool keeps its place for as long as it lives.
#[derive(Default)]
pub(super) struct GraphPools(Vec<Option<GraphPool>>);

impl GraphPools {
    /// Begins a capture with the pool of this number, and says whether the pool is new.
    pub(super) fn begin(&mut self, id: (u64, u64)) -> bool {
        let found = self.0.iter().position(|pool| pool.as_ref().is_some_and(|pool| pool.id == id));
        let place = found.unwrap_or_else(|| {
            let vacant = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
            self.0.resize_with(self.0.len().max(vacant + 1), || None);
            self.0[vacant] = Some(GraphPool::new(id));
            vacant
        });
        let pool = self.0[place].as_mut().expect("it was found, or made");
        pool.users += 1;
        pool.is_begun = true;
        found.is_none()
    }

    /// The pool of this number, if there is one.
    pub(super) fn find(&mut self, id: (u64, u64)) -> Option<&mut GraphPool> {
        self.0.iter_mut().flatten().find(|pool| pool.id == id)
    }

    /// Whether a capture is under way.
    pub(super) fn is_any_begun(&self) -> bool {
        self.iter().any(|(_, pool)| pool.is_begun)
    }

    /// The pools that a capture is under way with.
    pub(super) fn begun(&self) -> impl Iterator<Item = Owner> {
        self.iter().filter(|(_, pool)| pool.is_begun).map(|(owner, _)| owner)
    }

    /// The pools that no graph uses any more, though blocks of theirs may be in use.
    pub(super) fn unused(&self) -> Vec<Owner> {
        self.iter().filter(|(_, pool)| pool.users == 0).map(|(owner, _)| owner).collect()
    }

    /// Every pool, with what its blocks are known by.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Owner, &GraphPool)> {
        let places = self.0.iter().enumerate();
        places.filter_map(|(place, pool)| Some((Owner::Graph(place as u32), pool.as_ref()?)))
    }

    pub(super) fn at(&self, place: usize) -> Option<&GraphPool> {
        self.0.get(place)?.as_ref()
    }

    /// The pool in this place, which lives as long as its blocks.
    pub(super) fn at_mut(&mut self, place: u32) -> &mut GraphPool {
        self.0[place as usize].as_mut().expect("a pool lives as long as its blocks")
    }

    /// Drops the pools that are over, whose memory was given back before.
    pub(super) fn drop_over(&mut self) {
        for pool in &mut self.0 {
            pool.take_if(|pool| pool.is_over());
        }
    }
}
