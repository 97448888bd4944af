//! PyTorch's allocator for pinned memory of the host (`CachingHostAllocator`), by version.
//!
//! ```text
//!   request ─▶ rounded to a power of two ─▶ free list of that power ─▶ else the driver pins a new block
//!   free ────▶ free list, at once, or when the streams that used the block are through with their work
//! ```
//!
//! Blocks are not split, and go back to the driver only when the program empties the cache. Requests above
//! `pinned_max_round_threshold_mb` are not rounded, and blocks above `pinned_max_cached_size_mb` not kept.
//!
//! Two things differ by version. In 2.13 a request that is not rounded may get a smaller block of the same free list
//! (fixed in 2.14). And `torch.cuda.host_memory_stats()` counts active blocks wrongly up to 2.12.
//!
//! With `pinned_use_background_threads` a thread of PyTorch looks for what is free. Here it is infinitely fast. Up to
//! 2.9 requests look for themselves at the same time, and which of the two comes first is chance: that is left out.

mod exact;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use gmlake_core::alloc_conf::{PinnedConf, TorchVersion};
use gmlake_core::units::Bytes;
use smallvec::SmallVec;

pub use exact::ExactPinned;

/// The unit of pinned memory, and that in which the reserved segment is handed out.
const PAGE: Bytes = 4096;

/// A block that was handed out. Its number is used again after [`Pinned::free`] only for the same memory.
pub type PinnedBlock = u32;

/// One of PyTorch's counters, in PyTorch's layout.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: i64,
    /// The most there ever was.
    pub peak: i64,
    /// Sum of all increases.
    pub allocated: i64,
    /// Sum of all decreases.
    pub freed: i64,
}

impl Stat {
    fn rise(&mut self, by: i64) {
        self.current += by;
        self.allocated += by;
        self.peak = self.peak.max(self.current);
    }

    fn fall(&mut self, by: i64) {
        self.current -= by;
        self.freed += by;
    }

    fn add(&mut self, other: Self) {
        self.current += other.current;
        self.peak += other.peak;
        self.allocated += other.allocated;
        self.freed += other.freed;
    }
}

/// What `torch.cuda.host_memory_stats()` says, under its names from 2.10 on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PinnedStats {
    /// Blocks handed out; PyTorch adds up the peaks of all sizes.
    pub active_requests: Stat,
    /// Their bytes.
    pub active_bytes: Stat,
    /// Blocks, handed out or kept.
    pub allocations: Stat,
    /// Their bytes.
    pub allocated_bytes: Stat,
}

/// Bytes that the driver pins for `size`.
#[must_use]
pub fn in_pages(size: Bytes) -> i64 {
    size.next_multiple_of(PAGE) as i64
}

#[derive(Debug, Clone, Default)]
struct Block {
    size: Bytes,
    /// Streams that use it, without repetition.
    streams: SmallVec<[u64; 2]>,
    /// Events that must pass before it is free.
    waits_for: usize,
    is_reserved: bool,
}

/// The end of a stream's work on a block.
#[derive(Debug, Clone, Copy)]
struct Event {
    block: PinnedBlock,
    stream: u64,
    has_passed: bool,
}

/// The blocks of one power of two.
#[derive(Debug, Clone, Default)]
struct Bucket {
    free: Vec<PinnedBlock>,
    requests: Stat,
    bytes: Stat,
}

/// PyTorch's pinned memory, without the host.
#[derive(Debug, Clone, Default)]
pub struct Pinned {
    conf: PinnedConf,
    version: TorchVersion,
    blocks: Vec<Block>,
    buckets: Vec<Bucket>,
    /// The oldest first.
    events: VecDeque<Event>,
    /// What is left of the reserved segment, once there is one.
    reserve: Option<Bytes>,
    has_thread: bool,
    allocations: Stat,
    allocated_bytes: Stat,
    driver_calls: Stat,
    driver_bytes: Stat,
}

impl Pinned {
    /// Nothing pinned yet.
    pub fn new(conf: PinnedConf, version: TorchVersion) -> Self {
        Self { conf, version, buckets: vec![Bucket::default(); 65], ..Self::default() }
    }

    /// Serves a request of `bytes`, at least 1.
    pub fn alloc(&mut self, bytes: Bytes) -> PinnedBlock {
        let block = self.serve(bytes);
        self.end_of_call();
        block
    }

    fn serve(&mut self, bytes: Bytes) -> PinnedBlock {
        if !self.conf.in_background {
            self.process_events();
        }
        let rounds = bytes <= self.conf.max_rounded.min(self.conf.max_cached);
        let size = if rounds { bytes.next_power_of_two() } else { bytes };
        if let Some(block) = self.take_free(size) {
            return block;
        }
        self.has_thread |= self.conf.in_background;
        self.pin(size)
    }

    /// Notes that work on a stream uses a block.
    pub fn use_on(&mut self, block: PinnedBlock, stream: u64) {
        let streams = &mut self.blocks[block as usize].streams;
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }

    /// Takes a block back. It is free when each of its streams is said to be done from now on.
    pub fn free(&mut self, block: PinnedBlock) {
        let place = &mut self.blocks[block as usize];
        let streams = std::mem::take(&mut place.streams);
        place.waits_for += streams.len();
        for &stream in &streams {
            self.events.push_back(Event { block, stream, has_passed: false });
        }
        if streams.is_empty() {
            let counts = !self.version.is_at_least(10) || self.version.is_at_least(13);
            let size = self.size(block) as i64;
            self.keep(block, counts.then_some((1, size)));
        }
        self.end_of_call();
    }

    /// The work of a stream so far is done; of all streams, if none is named.
    pub fn done(&mut self, stream: Option<u64>) {
        for event in &mut self.events {
            event.has_passed |= stream.is_none_or(|stream| event.stream == stream);
        }
        self.end_of_call();
    }

    /// Gives back all that is free.
    pub fn empty_cache(&mut self) {
        self.process_events();
        for index in 0..self.buckets.len() {
            for block in std::mem::take(&mut self.buckets[index].free) {
                self.unpin(block);
            }
        }
        self.end_of_call();
    }

    /// Bytes of a block.
    pub fn size(&self, block: PinnedBlock) -> Bytes {
        self.blocks[block as usize].size
    }

    /// Calls that pin or unpin memory, and bytes that the driver holds pinned, in whole pages.
    pub fn driver(&self) -> (Stat, Stat) {
        (self.driver_calls, self.driver_bytes)
    }

    /// PyTorch's counters.
    pub fn stats(&self) -> PinnedStats {
        let mut stats = PinnedStats {
            allocations: self.allocations,
            allocated_bytes: self.allocated_bytes,
            ..PinnedStats::default()
        };
        for bucket in &self.buckets {
            stats.active_requests.add(bucket.requests);
            stats.active_bytes.add(bucket.bytes);
        }
        stats
    }

    fn bucket(&mut self, size: Bytes) -> &mut Bucket {
        &mut self.buckets[size.next_power_of_two().ilog2() as usize]
    }

    /// The free block that was kept last, from 2.14 on of those that are large enough.
    fn take_free(&mut self, size: Bytes) -> Option<PinnedBlock> {
        let is_checked = self.version.is_at_least(14);
        let index = size.next_power_of_two().ilog2() as usize;
        let fits = |block: &PinnedBlock| !is_checked || self.size(*block) >= size;
        let place = self.buckets[index].free.iter().rposition(fits)?;
        let block = self.buckets[index].free.remove(place);
        let counted = if is_checked { self.size(block) } else { size };
        self.buckets[index].requests.rise(1);
        self.buckets[index].bytes.rise(counted as i64);
        Some(block)
    }

    fn pin(&mut self, size: Bytes) -> PinnedBlock {
        let is_reserved = self.is_in_reserve(size);
        if !is_reserved {
            self.driver_calls.rise(1);
            self.driver_bytes.rise(in_pages(size));
        }
        self.allocations.rise(1);
        self.allocated_bytes.rise(size as i64);
        let bucket = self.bucket(size);
        bucket.requests.rise(1);
        bucket.bytes.rise(size as i64);
        self.blocks.push(Block { size, is_reserved, ..Block::default() });
        (self.blocks.len() - 1) as PinnedBlock
    }

    /// Takes from the reserved segment, if there is one and it has room. It never gets anything back.
    fn is_in_reserve(&mut self, size: Bytes) -> bool {
        if self.conf.reserve == 0 {
            return false;
        }
        if self.reserve.is_none() {
            self.driver_calls.rise(1);
            self.driver_bytes.rise(in_pages(self.conf.reserve));
        }
        let left = self.reserve.get_or_insert(self.conf.reserve);
        let rest = left.checked_sub(size.next_multiple_of(PAGE));
        *left = rest.unwrap_or(*left);
        rest.is_some()
    }

    /// Puts a block into its free list, or gives it back; `active` is what PyTorch then says is less in use.
    fn keep(&mut self, block: PinnedBlock, active: Option<(i64, i64)>) {
        let size = self.size(block);
        let is_kept = size <= self.conf.max_cached;
        let bucket = self.bucket(size);
        if let Some((requests, bytes)) = active {
            bucket.requests.fall(requests);
            bucket.bytes.fall(bytes);
        }
        if is_kept {
            bucket.free.push(block);
        } else {
            self.unpin(block);
        }
    }

    fn unpin(&mut self, block: PinnedBlock) {
        let Block { size, is_reserved, .. } = self.blocks[block as usize];
        self.allocations.fall(1);
        self.allocated_bytes.fall(size as i64);
        if !is_reserved {
            self.driver_calls.fall(1);
            self.driver_bytes.fall(in_pages(size));
        }
    }

    /// Looks at the oldest events, up to one that has not passed.
    fn process_events(&mut self) {
        while let Some(event) = self.events.pop_front_if(|event| event.has_passed) {
            self.pass(event.block);
        }
    }

    /// One event of a block has passed; after the last one it is free. Up to 2.12 PyTorch then counts a byte more.
    fn pass(&mut self, block: PinnedBlock) {
        let place = &mut self.blocks[block as usize];
        place.waits_for -= 1;
        if place.waits_for == 0 {
            let size = place.size as i64;
            self.keep(block, Some((1, if self.version.is_at_least(13) { size } else { -1 })));
        }
    }

    /// The thread is much faster than the program.
    fn end_of_call(&mut self) {
        if self.has_thread {
            self.process_events();
        }
    }
}
