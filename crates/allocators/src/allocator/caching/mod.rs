//! `caching`: PyTorch's CUDA caching allocator, decision for decision.
//!
//! Memory comes from the device in *segments* and is cut into *blocks*. A freed block stays; it merges with free
//! neighbours in its segment and waits for a request that it fits best:
//!
//! ```text
//!   request ──round──▶ best fit among the free blocks of (pool, stream) ──▶ split off what is too much ──▶ block
//!                          │ none
//!                          ▼
//!               collect garbage ─▶ new segment ─▶ release oversize, retry ─▶ release all, retry ─▶ out of memory
//! ```
//!
//! What is lost: a free block of 19 MiB between two live ones serves no request for 20 MiB, although ten such blocks
//! may lie about. With [`expandable`] segments, a pool's memory is one long range of addresses to which pages are
//! mapped as needed, so that there is little between which to lie.
//!
//! Source: `c10/cuda/CUDACachingAllocator.cpp` of PyTorch 2.11, behaviour only. Every decision is compared with
//! recordings of the real one by `gmlake-sim verify`. Where other versions decide otherwise, see [`TorchVersion`] and
//! [`rank`].

mod block;
mod expandable;
mod fit;
mod options;
mod pool;
mod rank;
mod reclaim;
mod restore;
mod sizes;
#[cfg(test)]
mod tests;

pub(super) use sizes::round_plain;
pub use sizes::{SMALL_MAX, SMALL_SEGMENT, round_request, segment_size};

use block::{Block, BlockState, Blocks};
use expandable::Reservation;
use pool::{Pool, pool_index};
use rank::Ranks;
use sizes::MIN_BLOCK;

use super::{
    AllocError, AllocResult, Allocation, Allocator, BlockId, BlockKind, BlockUse, BlockView,
    Counter, Environment, Ledger, NIL, Request, Slab, SlabIndex, Usage,
};
use crate::device::{Device, DeviceError, DevicePtr, Result};
use gmlake_core::alloc_conf::{AllocConf, TorchVersion};
use gmlake_core::program::{Layout, PoolId, StreamId};
use gmlake_core::units::Bytes;

/// PyTorch's caching allocator, with or without expandable segments.
#[derive(Debug, Clone)]
pub struct Caching {
    conf: AllocConf,
    /// Whether some sizes are rounded up to steps between powers of two.
    rounds_to_steps: bool,
    version: TorchVersion,
    total_memory: Bytes,
    /// Most bytes that may be held (`set_per_process_memory_fraction`).
    limit: Option<Bytes>,
    blocks: Blocks,
    pools: Vec<Pool>,
    reservations: Slab<Reservation>,
    /// Private pools that are no longer in use: a flush releases them too.
    freeable: Vec<PoolId>,
    /// The first of the pools that are a CUDA graph's.
    first_graph_pool: PoolId,
    /// Private pools that serve other requests for which the device has no memory (`use_on_oom`), in order.
    fallbacks: Vec<PoolId>,
    pending: usize,
    ranks: Ranks,
    ledger: Ledger,
    retries: u64,
    splits: u64,
    merges: u64,
}

/// What a search looks for.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    pool: u16,
    stream: StreamId,
    /// The request, rounded.
    size: Bytes,
    /// Whether expandable segments are on for this request.
    expandable: bool,
}

impl Caching {
    /// An allocator that holds nothing, with PyTorch's settings `environment.conf`.
    pub fn new(environment: &Environment) -> Self {
        let mut new = Self {
            conf: environment.conf.clone(),
            rounds_to_steps: environment.conf.roundup_power2_divisions.iter().any(|&d| d > 1),
            version: environment.version,
            total_memory: environment.total_memory,
            limit: environment.memory_limit(),
            blocks: Blocks::default(),
            pools: (0..2).map(Pool::new).collect(),
            reservations: Slab::default(),
            freeable: Vec::new(),
            first_graph_pool: PoolId(u8::MAX),
            fallbacks: Vec::new(),
            pending: 0,
            ranks: Ranks::new(environment.version),
            ledger: Ledger::default(),
            retries: 0,
            splits: 0,
            merges: 0,
        };
        for &pool in &environment.no_split {
            new.set_no_split(pool);
        }
        new
    }

    /// The block size for a request of `size` bytes.
    #[inline]
    pub fn round(&self, size: Bytes) -> Bytes {
        if self.rounds_to_steps { round_request(size, &self.conf) } else { round_plain(size) }
    }

    /// Switches expandable segments on or off, as `torch.cuda.memory._set_allocator_settings` does at run time.
    pub fn set_expandable(&mut self, on: bool) {
        self.conf.expandable_segments = on;
    }

    /// Whether expandable segments are on.
    pub fn is_expandable(&self) -> bool {
        self.conf.expandable_segments
    }

    /// The segment that would be asked from the device for a request of `size` bytes.
    pub fn segment_for(&self, size: Bytes) -> Bytes {
        segment_size(self.round(size), &self.conf)
    }

    fn wanted(&self, request: Request) -> Wanted {
        let size = self.round(request.size);
        let pool = pool_index(request.pool, size <= SMALL_MAX);
        let expandable = self.conf.expandable_segments;
        Wanted { pool, stream: request.stream, size, expandable }
    }

    fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.conf.garbage_collection_threshold > 0.0
    }

    /// Takes the best block out of the free index.
    #[inline(always)]
    fn find(&mut self, wanted: Wanted) -> Option<SlabIndex> {
        let collects_garbage = self.collects_garbage();
        let pool = &mut self.pools[usize::from(wanted.pool)];
        if collects_garbage {
            pool.searches += 1;
        }
        let free = pool.free.list_mut(wanted.stream)?;
        let at = wanted.search(&self.blocks, &self.conf, free)?;
        free.remove_at(at);
        Some(at.block)
    }

    /// Serves a request that no free block fits.
    #[cold]
    fn malloc_anew(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        let wanted = self.wanted(request);
        let (block, wanted) = self.obtain(device, wanted, request.size)?;
        Ok(self.hand_out(block, wanted, request.size))
    }

    /// Memory for a request that no free block fits, from the cheapest source to the last; and where it was found.
    fn obtain(
        &mut self,
        device: &mut dyn Device,
        wanted: Wanted,
        requested: Bytes,
    ) -> Result<(SlabIndex, Wanted), AllocError> {
        if self.collects_garbage() {
            self.collect_garbage(device);
        }
        if let Some(block) = self.grow(device, wanted)? {
            return Ok((block, wanted));
        }
        // Up to 2.10 other pools come last.
        let asks_others_first = self.version.is_at_least(11);
        if asks_others_first && let Some(found) = self.find_elsewhere(wanted) {
            return Ok(found);
        }
        if let Some(block) = self.make_room(device, wanted)? {
            return Ok((block, wanted));
        }
        let found = if asks_others_first { None } else { self.find_elsewhere(wanted) };
        found.ok_or_else(|| self.out_of_memory(requested))
    }

    /// Memory for a request that the device has refused, after giving up more and more of the cache.
    fn make_room(
        &mut self,
        device: &mut dyn Device,
        wanted: Wanted,
    ) -> Result<Option<SlabIndex>, AllocError> {
        if self.release_oversize(device, wanted)
            && let Some(block) = self.grow(device, wanted)?
        {
            return Ok(Some(block));
        }
        if !self.may_flush(wanted) {
            return Ok(None);
        }
        self.flush(device);
        self.retries += 1;
        // PyTorch does not search again here, although the flush may have freed a block that fits.
        self.grow(device, wanted)
    }

    /// Nothing is flushed while a graph is captured; up to 2.12 also while requests go to any other private pool.
    fn may_flush(&self, wanted: Wanted) -> bool {
        let pool = self.pools[usize::from(wanted.pool)].id;
        pool == PoolId::DEFAULT || self.version.is_at_least(13) && pool < self.first_graph_pool
    }

    /// Says which pools are those of CUDA graphs: this one and those behind it.
    pub fn set_first_graph_pool(&mut self, pool: PoolId) {
        self.first_graph_pool = pool;
    }

    fn out_of_memory(&self, requested: Bytes) -> AllocError {
        AllocError::OutOfMemory { requested, usage: self.ledger.now() }
    }

    /// New memory from the device, out of the free index; `None` if there is none.
    fn grow(
        &mut self,
        device: &mut dyn Device,
        wanted: Wanted,
    ) -> Result<Option<SlabIndex>, AllocError> {
        let size = segment_size(wanted.size, &self.conf);
        let needed = self.ledger.now().reserved + size;
        if self.limit.is_some_and(|limit| needed > limit) {
            return Ok(None);
        }
        if self.rejects(needed) {
            return Err(self.out_of_memory(wanted.size));
        }
        // Up to 2.4 private pools grow by plain segments.
        if wanted.expandable && (wanted.pool < 2 || self.version.is_at_least(5)) {
            return Ok(self.grow_expandable(device, wanted)?);
        }
        match device.malloc(size) {
            Ok(at) => {
                self.ledger.grow(size);
                Ok(Some(self.add_segment(at.0, size, wanted.pool, wanted.stream)))
            }
            Err(DeviceError::OutOfMemory { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn add_segment(&mut self, at: u64, size: Bytes, pool: u16, stream: StreamId) -> SlabIndex {
        self.pools[usize::from(pool)].free.open(stream);
        self.blocks.insert(Block {
            at,
            size,
            requested: 0,
            free_since: 0,
            prev: NIL,
            next: NIL,
            reservation: NIL,
            pool,
            rank: self.ranks.of_new(),
            stream,
            state: BlockState::Free,
        })
    }

    /// Whether a block of `size` bytes is cut for the request, rather than given whole.
    #[inline(always)]
    fn should_split(&self, wanted: Wanted, size: Bytes) -> bool {
        let rest = size - wanted.size;
        if self.pools[usize::from(wanted.pool)].is_whole {
            false
        } else if wanted.pool.is_multiple_of(2) || wanted.expandable {
            rest >= MIN_BLOCK
        } else {
            rest > SMALL_MAX && self.conf.max_split_size.is_none_or(|max| wanted.size < max)
        }
    }

    /// Gives a block, which is in no index, to the client, and puts back what is too much.
    #[inline(always)]
    fn hand_out(&mut self, block: SlabIndex, wanted: Wanted, requested: Bytes) -> Allocation {
        let size = self.blocks[block].size;
        let at = DevicePtr(self.blocks[block].at);
        let (given, size) = if self.should_split(wanted, size) {
            self.splits += 1;
            let front = self.blocks.split_front(block, wanted.size);
            self.ranks.cut(&mut self.blocks[front].rank);
            self.put_back(block);
            (front, wanted.size)
        } else {
            (block, size)
        };
        self.ledger.malloc(requested, size);
        Allocation { at, size, block: self.blocks.hand_out(given, requested) }
    }

    /// Puts a block into its pool's free index.
    #[inline(always)]
    fn put_back(&mut self, index: SlabIndex) {
        let block = &mut self.blocks[index];
        let pool = &mut self.pools[usize::from(block.pool)];
        block.state = BlockState::Free;
        block.free_since = pool.searches;
        pool.free.of(block.stream).insert(block.size, block.place(), index);
    }

    #[inline(always)]
    fn take_out(&mut self, index: SlabIndex) {
        let block = &self.blocks[index];
        let free = &mut self.pools[usize::from(block.pool)].free;
        free.of(block.stream).remove(block.size, block.place());
    }

    /// Ends a block's use: it merges with its free neighbours and waits for the next request.
    #[inline(always)]
    fn complete(&mut self, index: SlabIndex) {
        let Block { requested, size, .. } = self.blocks[index];
        self.ledger.free_completed(requested, size);
        self.blocks.retire(index);
        self.settle(index);
    }

    /// Merges a block, which is in no index, with its free neighbours, and puts it into its pool's free index. All of
    /// them are of one pool and one stream.
    #[inline(always)]
    fn settle(&mut self, index: SlabIndex) {
        let Self { blocks, pools, merges, .. } = self;
        let Block { prev, next, pool, stream, .. } = blocks[index];
        let pool = &mut pools[usize::from(pool)];
        let free = pool.free.of(stream);
        if prev != NIL && blocks[prev].state == BlockState::Free {
            free.remove(blocks[prev].size, blocks[prev].place());
            blocks.absorb_prev(index);
            *merges += 1;
        }
        if next != NIL && blocks[next].state == BlockState::Free {
            free.remove(blocks[next].size, blocks[next].place());
            blocks.absorb_next(index);
            *merges += 1;
        }
        let block = &mut blocks[index];
        block.state = BlockState::Free;
        block.free_since = pool.searches;
        free.insert(block.size, block.place(), index);
    }

    /// Makes sure that there is a pool at place `index`; small and large pools come in pairs.
    #[cold]
    fn pool_entry(&mut self, index: u16) {
        while self.pools.len() <= usize::from(index | 1) {
            self.pools.push(Pool::new(self.pools.len() as u16));
        }
    }
}

#[cold]
fn freed_twice(block: BlockId) -> ! {
    panic!("{block:?} was freed twice")
}

impl Allocator for Caching {
    #[inline]
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        let wanted = self.wanted(request);
        if usize::from(wanted.pool) >= self.pools.len() {
            self.pool_entry(wanted.pool);
        }
        match self.find(wanted) {
            Some(block) => Ok(self.hand_out(block, wanted, request.size)),
            None => self.malloc_anew(device, request),
        }
    }

    #[inline]
    fn free_requested(&mut self, block: BlockId, _users: &[StreamId]) {
        let index = self.blocks.expect(block);
        let entry = &mut self.blocks[index];
        if entry.state != BlockState::Allocated {
            freed_twice(block);
        }
        entry.state = BlockState::Pending;
        self.pending += 1;
        self.ledger.free_requested(entry.size);
    }

    #[inline]
    fn free_completed(&mut self, _device: &mut dyn Device, block: BlockId) {
        if let Some(index) = self.blocks.find(block) {
            assert_eq!(self.blocks[index].state, BlockState::Pending, "{block:?} was not freed");
            self.pending -= 1;
            self.complete(index);
        }
    }

    #[inline]
    fn free(&mut self, _device: &mut dyn Device, block: BlockId) {
        let index = self.blocks.expect(block);
        let entry = &self.blocks[index];
        if entry.state != BlockState::Allocated {
            freed_twice(block);
        }
        self.ledger.free_requested(entry.size);
        self.complete(index);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.flush(device);
    }

    fn release_pool(&mut self, device: &mut dyn Device, pool: PoolId) {
        self.flush_private(device, pool);
    }

    fn restore(
        &mut self,
        device: &mut dyn Device,
        layout: &Layout,
    ) -> Result<Option<Vec<BlockId>>> {
        self.restore_layout(device, layout).map(Some)
    }

    fn usage(&self) -> Usage {
        self.ledger.now()
    }

    fn peak(&self) -> Usage {
        self.ledger.peak()
    }

    fn retries(&self) -> u64 {
        self.retries
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("splits", self.splits), ("merges", self.merges)]
    }

    fn blocks(&self) -> Vec<BlockView> {
        let mut blocks: Vec<_> = self.blocks.iter().collect();
        blocks.sort_unstable_by_key(|(_, block)| block.at);
        let mut segment = DevicePtr(0);
        let view = |(index, block): (SlabIndex, &Block)| {
            let state = match block.state {
                BlockState::Allocated => BlockUse::Allocated,
                BlockState::Pending => BlockUse::Pending,
                BlockState::Free => BlockUse::Free,
                BlockState::Unmapped => return None,
            };
            let at = DevicePtr(block.at);
            if block.prev == NIL || self.blocks[block.prev].state == BlockState::Unmapped {
                segment = at;
            }
            let is_live = state != BlockUse::Free;
            let Pool { id: pool, is_small, .. } = self.pools[usize::from(block.pool)];
            Some(BlockView {
                block: is_live.then(|| self.blocks.id(index)),
                requested: if is_live { block.requested } else { 0 },
                pool,
                kind: if is_small { BlockKind::Small } else { BlockKind::Large },
                segment,
                ..BlockView::unnamed(at, block.size, block.stream, state)
            })
        };
        blocks.into_iter().filter_map(view).collect()
    }
}
