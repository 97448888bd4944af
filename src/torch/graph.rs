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

use super::arena::{Arena, Failure};
use crate::alloc_conf::AllocConf;
use crate::allocator::{Allocator, Caching, Environment};
use crate::replay::cuda::is_capturing;

/// Who a block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

impl Arena {
    /// Memory for a capture comes from the pool of this number from now on.
    pub fn begin_pool(&mut self, id: (u64, u64)) {
        let place = self.find_pool(id).unwrap_or_else(|| {
            self.tallied.graph_pools += 1;
            let vacant = self.pools.iter().position(Option::is_none).unwrap_or(self.pools.len());
            self.pools.resize_with(self.pools.len().max(vacant + 1), || None);
            self.pools[vacant] = Some(GraphPool::new(id));
            vacant
        });
        let pool = self.pools[place].as_mut().expect("it was found, or made");
        pool.users += 1;
        pool.is_begun = true;
    }

    /// The capture is over.
    pub fn end_pool(&mut self, id: (u64, u64)) {
        if let Some(pool) = self.find_pool(id).and_then(|place| self.pools[place].as_mut()) {
            pool.is_begun = false;
        }
        let Ok(_here) = self.enter() else { return };
        self.release_held_back();
        self.dissolve_pools();
    }

    /// A graph that was captured with this pool is gone.
    pub fn release_pool(&mut self, id: (u64, u64)) {
        if let Some(pool) = self.find_pool(id).and_then(|place| self.pools[place].as_mut()) {
            pool.users = pool.users.saturating_sub(1);
        }
        let Ok(_here) = self.enter() else { return };
        self.dissolve_pools();
    }

    /// Whether a capture is under way.
    pub(super) fn is_any_begun(&self) -> bool {
        self.pools.iter().flatten().any(|pool| pool.is_begun)
    }

    fn find_pool(&self, id: (u64, u64)) -> Option<usize> {
        let is_it = |pool: &Option<GraphPool>| pool.as_ref().is_some_and(|pool| pool.id == id);
        self.pools.iter().position(is_it)
    }

    /// Who serves a request on the stream with this handle.
    pub(super) fn owner(&self, stream: u64) -> Result<Owner, Failure> {
        if self.pools.is_empty() || !self.is_any_begun() || !is_capturing(stream)? {
            return Ok(Owner::Main);
        }
        let is_begun = |pool: &Option<GraphPool>| pool.as_ref().is_some_and(|pool| pool.is_begun);
        let mut begun = (0..self.pools.len()).filter(|&place| is_begun(&self.pools[place]));
        match (begun.next(), begun.next()) {
            (Some(place), None) => Ok(Owner::Graph(place as u32)),
            _ => Err(Failure::Other(
                "gmlake: two CUDA graphs are being captured on one GPU at the same time, and it \
                 cannot be told which one this memory is for; capture them one after the other"
                    .to_owned(),
            )),
        }
    }

    /// One block less of its owner.
    #[inline]
    pub(super) fn gone(&mut self, owner: Owner) {
        let Owner::Graph(place) = owner else { return };
        let pool = self.pools[place as usize].as_mut().expect("it had a block until now");
        pool.live -= 1;
        if pool.is_over() {
            self.dissolve_pools();
        }
    }

    /// Gives back the memory of pools that no graph will use any more.
    fn dissolve_pools(&mut self) {
        if self.is_any_begun() {
            return;
        }
        for place in 0..self.pools.len() {
            let Some(pool) = &self.pools[place] else { continue };
            let (is_unused, is_over) = (pool.users == 0, pool.is_over());
            if is_unused {
                self.on(Owner::Graph(place as u32), |allocator, device| allocator.trim(device));
            }
            if is_over {
                self.pools[place] = None;
            }
        }
        self.complete_if_synchronized();
    }

    fn release_held_back(&mut self) {
        if self.is_any_begun() {
            return;
        }
        for (freed, uses) in std::mem::take(&mut self.held_back) {
            self.pending.push(&mut self.device, freed, &uses);
        }
    }
}
