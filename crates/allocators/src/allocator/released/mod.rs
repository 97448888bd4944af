//! `gmlake-released`: the allocator that GMLake's authors published, to the call.
//!
//! It bears the paper's name and differs from the paper in almost every step. Large requests (more than 1 MiB after
//! rounding) are whole numbers of 2 MiB chunks and go down this list:
//!
//! ```text
//!   request ─▶ smallest free pBlock that is large enough (split if larger)        even if an sBlock fits exactly
//!           ─▶ smallest usable sBlock, up to `reuseLimit` times the request       a prefix of it is used
//!           ─▶ stitch free pBlocks, largest first, the last one cut               only from `fragLimit` on
//!           ─▶ new memory for the whole request                                   fragments stay idle (D1)
//!              (`reAlloc`: only for what is missing, then stitch)
//!           ─▶ flush the cache, new memory, stitch ─▶ out of memory
//! ```
//!
//! Free neighbours merge, so that pBlocks split and merge all the time; what converges is the set of sBlocks. Streams
//! never mix. Small requests take the stock small pool.
//!
//! Of the defects that were found in the published code, those that change figures are behaviour and kept: D1 (new
//! memory for the whole request although fragments would do), D9 (the counts of segments and of stitched bytes only
//! drift upwards, and the latter triggers `autoGC`), D14 (`reAlloc` refuses new memory when fragments suffice, even
//! where they may not be stitched). Those that corrupt memory or end the process are not:
//!
//! - D2: a stitch that fails takes nothing; its members stay free.
//! - D3, D5: releasing a segment destroys every idle sBlock over it, and an sBlock in use gives up exactly the chunks
//!   that its tensor does not use.
//! - D4: a failed mapping is undone at once and tried again after each collection, without the eight blind attempts.
//! - D6, D7: rounding to divisions of a power of two does not apply to large requests; nothing ends the process.
//! - D10: the device is synchronised before anything is unmapped or released.
//!
//! Not modelled: PyTorch's `max_split_size` and age-based garbage collection, and private pools of CUDA graphs; with
//! the released code's own switches these are off.

mod reclaim;

use super::spec::settings;
use super::vm_pool::{Front, Place, Stitcher, VmPool, Wanted};
use super::{Counter, SlabIndex};
use crate::device::{Device, DeviceError, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, MIB};

/// The published code's chunk: fixed, whatever the driver's granularity is.
const CHUNK: Bytes = 2 * MIB;
/// Requests below [`LARGE_REQUEST`] open a segment of this size.
const LARGE_SEGMENT: Bytes = 20 * MIB;
/// From here on a segment is as large as its request.
const LARGE_REQUEST: Bytes = 10 * MIB;

settings! {
    /// Settings of the released GMLake: its environment variables, under their own names.
    ReleasedOptions {
        /// `fragLimit`: the smallest request that is stitched, in bytes.
        frag_limit: Bytes = size("fragLimit", "512MiB"),
            "smallest request for which free pBlocks are stitched (a size)";
        /// `reuseLimit`: an sBlock may be this many times as large as the request that it serves.
        reuse_limit: f64 = number("reuseLimit", "10"),
            "an idle sBlock serves requests down to its size divided by this";
        /// `defragLevel`: stitching attempts before this one are skipped.
        defrag_level: u64 = whole("defragLevel", "0"),
            "0: stitch before new memory, 1: when there is none, 2: after a flush";
        /// `autoGC`, in bytes: beyond this total of stitched bytes all idle sBlocks are destroyed.
        auto_gc: Bytes = whole_gib("autoGC", "1000"),
            "GiB of stitched bytes beyond which all idle sBlocks are destroyed";
        /// `reAlloc`: new memory only for what the fragments lack.
        re_alloc: bool = flag("reAlloc", "0"),
            "1: new memory only for what free pBlocks lack, then stitch (paper: S4)";
        /// `vmmDefragment`: chunks and stitching at all.
        is_on: bool = flag("vmmDefragment", "1"),
            "0: no chunks and no stitching; large segments come from cuMemAlloc";
    }
}

/// How often each way to serve a large request was taken.
#[derive(Debug, Clone, Copy, Default)]
struct Hits {
    pblock: u64,
    sblock: u64,
    stitch: u64,
    fresh: u64,
}

/// The released GMLake.
#[derive(Debug, Clone)]
pub struct Released {
    front: Front,
    options: ReleasedOptions,
    /// Physical bytes that the process may hold.
    memory_limit: Bytes,
    hits: Hits,
    /// The `segments` statistic: grows with every stitch, and never shrinks for one (D9).
    segments: u64,
    /// Running total of stitched bytes as the released code keeps it (D9).
    stitched_total: Bytes,
    /// Members of the stitch at hand; kept to save the allocation.
    members: Vec<SlabIndex>,
}

impl Released {
    /// An allocator that holds nothing, and may come to hold `memory_limit` bytes.
    pub fn new(options: ReleasedOptions, memory_limit: Bytes) -> Self {
        Self {
            front: Front::new(VmPool::new(CHUNK, true)),
            options,
            memory_limit,
            hits: Hits::default(),
            segments: 0,
            stitched_total: 0,
            members: Vec::new(),
        }
    }

    /// What the cache has: a pBlock that is large enough wins over any sBlock.
    #[inline]
    fn search(&mut self, wanted: Wanted) -> Option<Place> {
        let (pool, chunks) = (&mut self.front.pool, wanted.chunks);
        if let Some(block) = pool.best_fit(wanted) {
            pool.take(block, chunks);
            self.hits.pblock += 1;
            return Some(Place::Primitive(block));
        }
        let most = (f64::from(chunks) * self.options.reuse_limit) as u32;
        let sblock = pool.usable_fit(wanted, most)?;
        pool.take_stitched(sblock, chunks);
        self.hits.sblock += 1;
        Some(Place::Stitched(sblock))
    }

    /// Stitching attempt number `attempt`; `None` if it is not allowed, or there is not enough to stitch.
    #[cold]
    fn try_stitch(
        &mut self,
        device: &mut dyn Device,
        wanted: Wanted,
        attempt: u64,
    ) -> Result<Option<Place>> {
        let size = self.front.pool.bytes(wanted.chunks);
        let is_allowed = attempt >= self.options.defrag_level && size >= self.options.frag_limit;
        if !self.options.is_on || !is_allowed || !self.collect_members(wanted) {
            return Ok(None);
        }
        let Some(sblock) = self.stitch(device, wanted.chunks)? else { return Ok(None) };
        self.segments += 1;
        self.hits.stitch += 1;
        self.stitched_total += size;
        if self.stitched_total > self.options.auto_gc {
            device.synchronize();
            let destroyed = self.collect(device, 2, 0);
            self.stitched_total = self.stitched_total.saturating_sub(destroyed);
        }
        Ok(Some(Place::Stitched(sblock)))
    }

    /// Free pBlocks from the largest on until they suffice; at least two must be there.
    fn collect_members(&mut self, Wanted { stream, chunks }: Wanted) -> bool {
        self.members.clear();
        let (mut seen, mut sum) = (0, 0);
        for (block, len) in self.front.pool.largest_first(stream) {
            seen += 1;
            if sum < chunks {
                sum += len;
                self.members.push(block);
            }
            if seen >= 2 && sum >= chunks {
                return true;
            }
        }
        false
    }

    /// Maps the collected members; short of address space, after each of three collections of sBlocks.
    fn stitch(&mut self, device: &mut dyn Device, chunks: u32) -> Result<Option<SlabIndex>> {
        for level in 0..3 {
            match self.front.pool.stitch(device, &self.members, chunks) {
                Ok(sblock) => return Ok(Some(sblock)),
                Err(DeviceError::OutOfMemory { .. }) => {
                    device.synchronize();
                    self.collect(device, level, self.front.pool.bytes(chunks));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// New memory: for the whole request, or with `reAlloc` for what the fragments lack. The inner error says that
    /// there is none; the outer one that the driver failed.
    #[cold]
    fn fresh(&mut self, device: &mut dyn Device, wanted: Wanted) -> Result<Result<Place>> {
        let Wanted { stream, chunks } = wanted;
        let size = self.front.pool.bytes(chunks);
        let target = segment_size(size);
        let free = device.memory_info().free;
        let refused = Err(DeviceError::OutOfMemory { requested: size, free });
        if self.front.live.ledger.now().reserved + target > self.memory_limit {
            return Ok(refused);
        }
        let mut asked = target;
        if self.options.re_alloc {
            let fragments: u32 = self.front.pool.largest_first(stream).map(|(_, len)| len).sum();
            if fragments >= chunks {
                return Ok(refused);
            }
            asked = segment_size(size - self.front.pool.bytes(fragments));
        }
        let block = match self.grow(device, stream, asked, target) {
            Ok(block) => block,
            Err(error @ DeviceError::OutOfMemory { .. }) => return Ok(Err(error)),
            Err(error) => return Err(error),
        };
        if asked < size {
            return Ok(self.try_stitch(device, wanted, 4)?.map_or(refused, Ok));
        }
        self.front.pool.take(block, chunks);
        self.hits.fresh += 1;
        Ok(Ok(Place::Primitive(block)))
    }

    /// A new segment. When the device has memory and yet refuses, it lacks addresses: sBlocks are collected then.
    fn grow(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
        target: Bytes,
    ) -> Result<SlabIndex> {
        for level in 0..3 {
            match self.grow_once(device, stream, size) {
                Err(error @ DeviceError::OutOfMemory { .. }) => {
                    let is_physical = device.memory_info().free <= size;
                    if is_physical || self.idle_bytes(stream) < size {
                        return Err(error);
                    }
                    device.synchronize();
                    let destroyed = self.collect(device, level, target);
                    self.stitched_total = self.stitched_total.saturating_sub(destroyed);
                }
                other => return other,
            }
        }
        Err(DeviceError::OutOfMemory { requested: size, free: device.memory_info().free })
    }

    fn grow_once(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
    ) -> Result<SlabIndex> {
        let wanted = Wanted { stream, chunks: (size / CHUNK) as u32 };
        let pool = &mut self.front.pool;
        let block = match self.options.is_on {
            true => pool.grow(device, wanted)?,
            false => pool.grow_plain(device, wanted)?,
        };
        self.front.live.ledger.grow(size);
        self.segments += 1;
        Ok(block)
    }
}

impl Stitcher for Released {
    fn front(&self) -> &Front {
        &self.front
    }

    fn front_mut(&mut self) -> &mut Front {
        &mut self.front
    }

    /// Section 2.4 of the facts: from the cache, by stitching, from the device, and after a flush once more.
    fn malloc_large(&mut self, device: &mut dyn Device, wanted: Wanted) -> Result<Place> {
        if let Some(place) = self.search(wanted) {
            return Ok(place);
        }
        if let Some(place) = self.try_stitch(device, wanted, 0)? {
            return Ok(place);
        }
        let refused = match self.fresh(device, wanted)? {
            Ok(place) => return Ok(place),
            Err(refused) => refused,
        };
        if let Some(place) = self.try_stitch(device, wanted, 1)? {
            return Ok(place);
        }
        self.front.retries += 1;
        self.flush(device);
        if let Ok(place) = self.fresh(device, wanted)? {
            return Ok(place);
        }
        self.try_stitch(device, wanted, 2)?.ok_or(refused)
    }

    fn make_room(&mut self, device: &mut dyn Device) {
        self.flush(device);
    }

    fn give_back_all(&mut self, device: &mut dyn Device) {
        self.empty_cache(device);
    }

    fn own_counters(&self) -> (Vec<Counter>, Vec<Counter>) {
        let Hits { pblock, sblock, stitch, fresh } = self.hits;
        let own = vec![
            ("pblock_hits", pblock),
            ("sblock_hits", sblock),
            ("stitches", stitch),
            ("new_memory", fresh),
            ("ooms", self.front.ooms),
        ];
        let by_its_own_count = vec![
            ("stitched_bytes_by_its_own_count", self.stitched_total),
            ("segments_by_its_own_count", self.segments + self.front.small.segments()),
        ];
        (own, by_its_own_count)
    }
}

/// What the released code asks the device for, to serve `size` bytes (rounded).
fn segment_size(size: Bytes) -> Bytes {
    if size < LARGE_REQUEST { LARGE_SEGMENT } else { size }
}

#[cfg(test)]
mod stories;
