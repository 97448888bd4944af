//! `gmlake`: the allocator of the paper (ASPLOS 2024, sections 3 and 4).
//!
//! Memory is held in 2 MiB chunks. A *pBlock* owns chunks; an *sBlock* stitches pBlocks together by mapping their
//! chunks a second time, side by side. `BestFit` finds one of four states, and each has its post-processing:
//!
//! ```text
//!   request      free pBlocks        what is done                                   afterwards known, and remembered
//!   S1  ████     ████                exact match: hand it out (pBlock or sBlock)
//!   S2  ███      █████               Split: ███│██                                  (merge=off: sBlock ███+██)
//!   S3  ██████   ████ ███            Stitch ████+██, Split the last: ██│█           sBlock ████+██ (and ██+█)
//!   S4  ████████ ████ ██             Alloc ██, Stitch ████+██+██                    sBlock ████+██+██
//!   S5  ...and the device is full    out of memory
//! ```
//!
//! An sBlock only ever serves requests of exactly its size: what was ever stitched is remembered, like on a tape. Most
//! programs that repeat themselves stitch nothing any more after a few rounds (`reports/gmlake.md`).
//!
//! *Where we differ from the paper.* Split gives both halves new addresses there, and maps their chunks again. Here
//! both halves keep their part of the range, and the sBlock over them is the old range: neither costs a driver call.
//! Everything else costs what the paper says, with one `cuMemSetAccess` for each chunk.
//!
//! *Where the paper is silent:*
//!
//! - Free neighbours in one address range become one pBlock again, as in the released code; no call is needed. The
//!   paper has `Split` and no word of its reverse. With `merge=off` what is cut once is cut for good, and an sBlock of
//!   the old size is what remains of the whole. Then every size stays on the tape, and a program that repeats itself
//!   meets S1 only, as the paper says. But pieces below the fragmentation limit pile up: where lengths vary, memory
//!   grows to three times what it is else.
//! - An sBlock over a pBlock that is split stays, over both halves. It can serve while no chunk of it is in use.
//! - Among equals, a pBlock goes before an sBlock (which would block others), and lower addresses before higher.
//! - The fragmentation limit is asked of blocks that are found: a free pBlock below it is neither split nor stitched,
//!   and serves requests of its exact size only. What Split and Alloc make for the request at hand is exempt, or the
//!   last gap could never be filled. The paper's example is 128 MB. Of today's jobs most tensors are smaller, so that
//!   most free memory would wait for its exact size; the default is one chunk, 2 MiB, where nothing does
//!   (`reports/gmlake.md` shows both on all recordings). The released code asks its limit of the *request*: one below
//!   it is never stitched, but split off any block. With `limit_requests=on` so do we.
//! - `StitchFree` works when the additional address space of all sBlocks passes `stitched_limit`: least recently freed
//!   sBlocks go first, down to seven eighths of the limit, so that it does not run at every stitch. An sBlock goes if
//!   no tensor lives in it, even if members are in use otherwise: its addresses are idle all the same. Those that are
//!   a pBlock's old range take no space, and stay. The paper names no value; the default is 1 TiB.
//! - Streams never mix: each has pBlocks and sBlocks of its own.
//! - S5: the paper reports at once. We first wait for pending frees and look once more without the fragmentation
//!   limit; then give back everything that is free, on every stream, and ask for the whole request.
//! - `empty_cache` destroys idle sBlocks, and gives back every free pBlock, part of a range or not.
//! - Requests up to 1 MiB (rounded) go through the small pool of the caching allocator. (The paper draws the line at
//!   2 MB; what lies between takes one chunk here.)

mod reclaim;

use super::spec::settings;
use super::vm_pool::{Front, PBlock, Place, Stitcher, VmPool, Wanted};
use super::{Counter, SlabIndex};
use crate::device::{Device, DeviceError, Result};
use gmlake_core::units::Bytes;

settings! {
    /// Settings of [`Gmlake`].
    GmlakeOptions {
        /// Free pBlocks below this size, in bytes, are neither split nor stitched.
        fragment_limit: Bytes = size("fragment_limit", "2MiB"),
            "free pBlocks below it are neither split nor stitched (paper: 128MiB)";
        /// Whether the limit is asked of the request instead: smaller ones are served without stitching, from any
        /// block.
        limit_requests: bool = switch("limit_requests", "off"),
            "apply fragment_limit to requests, as the released code does, and not to blocks";
        /// Whether free neighbours in one address range become one pBlock again.
        merge: bool = switch("merge", "on"),
            "free neighbours become one pBlock again; off: cut once is cut for good";
        /// Address space that sBlocks may take, in bytes, before the least recently used ones go.
        stitched_limit: Bytes = size("stitched_limit", "1TiB"),
            "address space of sBlocks beyond which the least recently used ones go";
        /// Whether the halves of a split pBlock, if they do not merge, are remembered as an sBlock.
        split_stitch: bool = switch("split_stitch", "on"),
            "with merge=off: remember a split pBlock as an sBlock of its old size";
        /// Size of a physical chunk: a multiple of 2 MiB.
        chunk: Bytes = chunk("chunk", "2MiB"),
            "size of a physical chunk, a multiple of 2 MiB";
    }
}

/// How many large requests ended in each state of `BestFit`.
#[derive(Debug, Clone, Copy, Default)]
struct States {
    exact_pblock: u64,
    exact_sblock: u64,
    single: u64,
    multiple: u64,
    insufficient: u64,
    nothing: u64,
}

/// The GMLake of the paper.
#[derive(Debug, Clone)]
pub struct Gmlake {
    front: Front,
    options: GmlakeOptions,
    /// Physical bytes that the process may hold.
    memory_limit: Bytes,
    states: States,
    /// Candidate pBlocks of the request at hand (`CB` in the paper); kept to save the allocation.
    candidates: Vec<SlabIndex>,
}

impl Gmlake {
    /// An allocator that holds nothing, and may come to hold `memory_limit` bytes.
    pub fn new(options: GmlakeOptions, memory_limit: Bytes) -> Self {
        Self {
            front: Front::new(VmPool::new(options.chunk, options.merge)),
            options,
            memory_limit,
            states: States::default(),
            candidates: Vec::new(),
        }
    }

    /// The four states, in order. `limit` is the fragmentation limit in chunks.
    #[inline]
    fn best_fit(&mut self, device: &mut dyn Device, wanted: Wanted, limit: u32) -> Result<Place> {
        if let Some(place) = self.exact_match(wanted) {
            return Ok(place);
        }
        let chunks = wanted.chunks;
        let on_requests = self.options.limit_requests;
        let least_block = if on_requests { 1 } else { limit };
        let larger = Wanted { chunks: least_block.max(chunks + 1), ..wanted };
        if let Some(block) = self.front.pool.best_fit(larger) {
            self.states.single += 1;
            return Ok(self.split(block, chunks));
        }
        // A request that is not to be stitched looks for no candidates.
        let stitched = if on_requests && chunks < limit { 0 } else { chunks };
        let stitched = Wanted { chunks: stitched, ..wanted };
        let found = self.find_candidates(stitched, least_block);
        if found >= chunks {
            self.states.multiple += 1;
            return self.stitch_candidates(device, chunks);
        }
        self.alloc_missing(device, wanted, chunks - found)
    }

    /// S1: a pBlock or an sBlock of exactly this size.
    #[inline]
    fn exact_match(&mut self, wanted: Wanted) -> Option<Place> {
        let (pool, chunks) = (&mut self.front.pool, wanted.chunks);
        if let Some(block) = pool.best_fit(wanted)
            && pool.block(block).len == chunks
        {
            pool.take(block, chunks);
            self.states.exact_pblock += 1;
            return Some(Place::Primitive(block));
        }
        let sblock = pool.usable_fit(wanted, chunks)?;
        pool.take_stitched(sblock, chunks);
        self.states.exact_sblock += 1;
        Some(Place::Stitched(sblock))
    }

    /// Keeps a pBlock that was just cut as an sBlock of its old size. Halves that merge need none.
    #[inline]
    fn remember(&mut self, whole: PBlock) {
        if self.options.split_stitch && !self.options.merge {
            self.front.pool.remember(whole.extent(), whole.stamp);
        }
    }

    /// S2: the head of a larger pBlock.
    fn split(&mut self, block: SlabIndex, chunks: u32) -> Place {
        let whole = *self.front.pool.block(block);
        self.front.pool.take(block, chunks);
        self.remember(whole);
        Place::Primitive(block)
    }

    /// Gathers what S3 stitches. Inside `best_fit`, which is inlined three times, it costs a request 2 % of its time.
    fn find_candidates(&mut self, wanted: Wanted, limit: u32) -> u32 {
        self.candidates.clear();
        self.front.pool.gather(wanted, limit, &mut self.candidates)
    }

    /// S3, and the end of S4: stitches the candidates, of which the last may be cut.
    #[cold]
    fn stitch_candidates(&mut self, device: &mut dyn Device, chunks: u32) -> Result<Place> {
        let last = self.candidates[self.candidates.len() - 1];
        let whole = *self.front.pool.block(last);
        let sblock = self.front.pool.stitch(device, &self.candidates, chunks)?;
        let is_cut = self.front.pool.block(last).len < whole.len;
        if is_cut {
            self.remember(whole);
        }
        self.stitch_free(device);
        Ok(Place::Stitched(sblock))
    }

    /// S4: new memory for the `missing` chunks only, stitched to the candidates, if there are any.
    #[cold]
    fn alloc_missing(
        &mut self,
        device: &mut dyn Device,
        wanted: Wanted,
        missing: u32,
    ) -> Result<Place> {
        let (chunks, lacked) = (wanted.chunks, Wanted { chunks: missing, ..wanted });
        let size = self.front.pool.bytes(missing);
        if self.front.live.ledger.now().reserved + size > self.memory_limit {
            let free = device.memory_info().free;
            return Err(DeviceError::OutOfMemory { requested: size, free });
        }
        let block = self.front.pool.grow(device, lacked)?;
        self.front.live.ledger.grow(size);
        if missing == chunks {
            self.states.nothing += 1;
            self.front.pool.take(block, chunks);
            return Ok(Place::Primitive(block));
        }
        self.states.insufficient += 1;
        self.candidates.push(block);
        self.stitch_candidates(device, chunks)
    }
}

impl Stitcher for Gmlake {
    fn front(&self) -> &Front {
        &self.front
    }

    fn front_mut(&mut self) -> &mut Front {
        &mut self.front
    }

    /// A block for a large request; S5 is two more attempts, with ever more given up.
    #[inline]
    fn malloc_large(&mut self, device: &mut dyn Device, wanted: Wanted) -> Result<Place> {
        let limit = self.front.pool.chunks(self.options.fragment_limit);
        match self.best_fit(device, wanted, limit) {
            Err(DeviceError::OutOfMemory { .. }) => {}
            other => return other,
        }
        device.synchronize();
        self.front.complete_all();
        match self.best_fit(device, wanted, 1) {
            Err(DeviceError::OutOfMemory { .. }) => {}
            other => return other,
        }
        self.front.retries += 1;
        self.give_back(device);
        self.best_fit(device, wanted, 1)
    }

    fn make_room(&mut self, device: &mut dyn Device) {
        device.synchronize();
        self.front.complete_all();
        self.give_back(device);
    }

    fn give_back_all(&mut self, device: &mut dyn Device) {
        device.synchronize();
        self.give_back(device);
    }

    fn own_counters(&self) -> (Vec<Counter>, Vec<Counter>) {
        let states = self.states;
        let own = vec![
            ("s1_exact_pblock", states.exact_pblock),
            ("s1_exact_sblock", states.exact_sblock),
            ("s2_single", states.single),
            ("s3_multiple", states.multiple),
            ("s4_insufficient_stitched", states.insufficient),
            ("s4_insufficient_new", states.nothing),
            ("s5_oom", self.front.ooms),
        ];
        (own, Vec::new())
    }
}

#[cfg(test)]
mod tests;
