//! Arena: one range of addresses, in which every handle is mapped once, each right behind the one before.
//!
//! It is cut into *blocks*, free or in use, as the caching allocator cuts a segment: a block is split when it is too
//! large, and free neighbours merge. Borders of handles do not matter to blocks. They matter to stitching, since a
//! handle is mapped as a whole.
//!
//! ```text
//!   handles   ├──── h0 ────┼──── h1 ────┼──── h2 ────┼──── h3 ────┤ ... grows to the right
//!   blocks    │   A    │░░░░░░░░░░░░░░░░░░░│    B    │ C │░░░░░░░░│      ░ free
//! ```
//!
//! Blocks belong to no stream. Who may use free memory is said by the handles that it lies in: each notes which streams
//! freed something in it, and when ([`streams`](super::streams)).
//!
//! A page map finds the handle of an address, and the block at the beginning of each 2 MiB.

use std::ops::Range;

use super::addresses::Addresses;
use super::streams::{Gate, Users, note_use};
use crate::allocator::free_index::StreamList;
use crate::allocator::{NIL, Slab, SlabIndex};
use crate::device::{Device, DevicePtr, GRANULE, HandleId, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// Addresses from the first to the one behind the last.
pub(super) type Span = Range<u64>;

/// Part of the arena, free or in use by one tensor.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) span: Span,
    /// The neighbours by address, as far as memory is mapped.
    previous: SlabIndex,
    next: SlabIndex,
    /// While in use: the next block of the same tensor.
    pub(super) link: SlabIndex,
    pub(super) is_free: bool,
}

/// Physical memory as the driver gave it.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    pub(super) id: HandleId,
    pub(super) span: Span,
    /// Which streams freed memory in it, and before which of their fences.
    pub(super) users: Users,
    /// Stitched ranges that map it.
    pub(super) views: Vec<SlabIndex>,
    /// Those of them that were in use not long ago, a bit for each.
    pub(super) recent: u64,
}

impl Handle {
    pub(super) fn size(&self) -> Bytes {
        self.span.end - self.span.start
    }
}

/// The handle of 2 MiB of the arena, and the block that its first byte belongs to.
#[derive(Debug, Clone, Copy)]
struct Page {
    handle: SlabIndex,
    block: SlabIndex,
}

/// The pages from an address on, as far as anything was mapped.
#[derive(Debug, Clone)]
struct Region {
    base: u64,
    pages: Vec<Page>,
}

/// Free blocks that are looked at before a search is given up: other streams may not be done with them.
const TRIES: usize = 8;

/// The stream of free blocks, which are in one list, whichever streams used them.
pub(super) const ALL: StreamId = StreamId(0);

/// Handles, and the blocks that they are cut into.
#[derive(Debug, Clone, Default)]
pub(super) struct Arena {
    pub(super) addresses: Addresses,
    pub(super) handles: Slab<Handle>,
    pub(super) blocks: Slab<Block>,
    regions: Vec<Region>,
    free: Box<StreamList>,
    /// Handles that are held.
    pub(super) count: u64,
}

impl Arena {
    /// Adds a handle that is mapped at `at`, all of it free.
    fn add(&mut self, id: HandleId, at: DevicePtr, size: Bytes) {
        let span = at.0..at.0 + size;
        let (users, views) = (Users::new(), Vec::new());
        let handle = Handle { id, span: span.clone(), users, views, recent: 0 };
        let handle = self.handles.insert(handle);
        let previous = self.block_before(span.start);
        let is_border = self.addresses.is_border(DevicePtr(span.end));
        let next = if is_border { NIL } else { self.block_at(span.end) };
        self.set_handle(&span, handle);
        let block = Block { span: span.clone(), previous, next, link: NIL, is_free: false };
        let block = self.blocks.insert(block);
        self.connect(previous, block);
        self.connect(block, next);
        self.claim(block, span);
        self.count += 1;
        self.list(block);
    }

    /// New handles of `each` bytes from `at` on, the last one perhaps smaller: `amount` bytes. After an error nothing
    /// has changed.
    pub(super) fn create(
        &mut self,
        device: &mut dyn Device,
        at: DevicePtr,
        (amount, each): (Bytes, Bytes),
    ) -> Result<()> {
        let made = device.create_for_use(at, amount, each)?;
        self.addresses.take(at, amount);
        let begins = (0..amount).step_by(each as usize);
        for (id, begin) in made.into_iter().zip(begins) {
            self.add(id, at.offset(begin), each.min(amount - begin));
        }
        Ok(())
    }

    /// Gives a handle back, all of which is free and which no view maps.
    pub(super) fn release(&mut self, device: &mut dyn Device, handle: SlabIndex) {
        let Handle { id, ref span, .. } = self.handles[handle];
        let span = span.clone();
        device.unmap(DevicePtr(span.start), span.end - span.start);
        device.release(id);
        let block = self.take(&span);
        let Block { previous, next, .. } = self.blocks[block];
        self.connect(previous, NIL);
        self.connect(NIL, next);
        self.blocks.remove(block);
        self.set_handle(&span, NIL);
        self.handles.remove(handle);
        self.count -= 1;
        self.addresses.give(device, DevicePtr(span.start), span.end - span.start);
        let addresses = &self.addresses;
        self.regions.retain(|region| addresses.is_border(DevicePtr(region.base)));
    }

    /// Whether all memory from one address to another is free, and so lies in one block.
    #[inline]
    pub(super) fn is_free(&self, span: &Span) -> bool {
        let block = self.block_at(span.start);
        block != NIL && self.blocks[block].is_free && self.blocks[block].span.end >= span.end
    }

    /// Takes free memory into use: the block that it is from now on.
    #[inline]
    pub(super) fn take(&mut self, span: &Span) -> SlabIndex {
        let free = self.block_at(span.start);
        self.unlist(free);
        let block = self.cut(free, span);
        self.blocks[block].link = NIL;
        block
    }

    /// Gives back a block that a stream used, which has not got to its fence number `epoch` yet. Says which recent
    /// views map the memory, a bit for each.
    #[inline]
    pub(super) fn give(&mut self, block: SlabIndex, stream: StreamId, epoch: u32) -> u64 {
        let Span { start, end } = self.blocks[block].span;
        let (mut at, mut recent) = (start, 0);
        while at < end {
            let handle = self.handle_at(at);
            let entry = &mut self.handles[handle];
            note_use(&mut entry.users, (stream, epoch));
            recent |= entry.recent;
            at = entry.span.end;
        }
        self.list(block);
        recent
    }

    /// The smallest free block of at least `size` bytes that the gate admits to: its first bytes.
    #[inline]
    pub(super) fn fit(&self, size: Bytes, gate: Gate<'_>) -> Option<Span> {
        let first = self.free.best_fit(size);
        let cursors = std::iter::successors(first, |&at| self.free.next(at));
        let blocks = cursors.take(TRIES).map(|at| self.blocks[at.block].span.start);
        let mut spans = blocks.map(|start| start..start + size);
        spans.find(|span| self.may_use(span, gate))
    }

    /// Whether the gate admits to all memory from one address to another.
    #[inline]
    pub(super) fn may_use(&self, span: &Span, gate: Gate<'_>) -> bool {
        gate.is_open() || self.handles_in(span).all(|id| gate.admits(&self.handles[id].users))
    }

    /// Who may still use memory from one address to another.
    pub(super) fn users_in(&self, span: &Span) -> impl Iterator<Item = (StreamId, u32)> + '_ {
        self.handles_in(span).flat_map(|handle| self.handles[handle].users.iter().copied())
    }

    /// All free memory, from the largest block down.
    pub(super) fn largest_first(&self) -> impl Iterator<Item = &Span> + '_ {
        self.free.smaller_than(Bytes::MAX).map(|block| &self.blocks[block].span)
    }

    /// The handle that an address lies in; `NIL` if there is none.
    #[inline]
    pub(super) fn handle_at(&self, at: u64) -> SlabIndex {
        self.page(at).map_or(NIL, |page| page.handle)
    }

    /// The block that an address lies in; `NIL` if nothing is mapped there.
    #[inline]
    pub(super) fn block_at(&self, at: u64) -> SlabIndex {
        let mut block = self.page(at).map_or(NIL, |page| page.block);
        while block != NIL && self.blocks[block].span.end <= at {
            block = self.blocks[block].next;
        }
        block
    }

    /// The handles that a span of mapped memory touches.
    #[inline]
    pub(super) fn handles_in(&self, span: &Span) -> impl Iterator<Item = SlabIndex> + '_ {
        let end = span.end;
        let first = Some(self.handle_at(span.start));
        std::iter::successors(first, move |&handle| {
            let border = self.handles[handle].span.end;
            (border < end).then(|| self.handle_at(border))
        })
    }

    /// Where the free memory at the beginning of a handle ends, and where that at its end begins.
    #[inline]
    pub(super) fn free_ends(&self, handle: SlabIndex) -> (u64, u64) {
        let Span { start, end } = self.handles[handle].span;
        let first = &self.blocks[self.block_at(start)];
        if first.is_free && first.span.end >= end {
            return (end, start);
        }
        let last = &self.blocks[self.block_at(end - 1)];
        let until = if first.is_free { first.span.end } else { start };
        (until, if last.is_free { last.span.start.max(start) } else { end })
    }

    /// Handles that are held, in no particular order.
    pub(super) fn held(&self) -> Vec<SlabIndex> {
        let pages = self.regions.iter().flat_map(|region| &region.pages);
        let mut held: Vec<_> = pages.map(|page| page.handle).collect();
        held.dedup();
        held.retain(|&handle| handle != NIL);
        held
    }

    /// What is free in front of an address, where more will be mapped.
    pub(super) fn tail(&self, at: DevicePtr) -> Option<&Span> {
        let block = self.block_before(at.0);
        (block != NIL && self.blocks[block].is_free).then(|| &self.blocks[block].span)
    }

    /// Cuts `span` out of free memory that is not listed any more, and lists what is left on both sides.
    #[inline]
    fn cut(&mut self, block: SlabIndex, span: &Span) -> SlabIndex {
        let mut block = block;
        self.blocks[block].is_free = false;
        if self.blocks[block].span.start < span.start {
            let (left, rest) = self.split(block, span.start);
            self.list(left);
            block = rest;
        }
        if self.blocks[block].span.end > span.end {
            let (rest, right) = self.split(block, span.end);
            self.list(right);
            block = rest;
        }
        block
    }

    /// Makes a block free, merges it with free neighbours, and lists it.
    #[inline]
    fn list(&mut self, block: SlabIndex) {
        let mut block = block;
        let Block { previous, next, .. } = self.blocks[block];
        if next != NIL && self.blocks[next].is_free {
            self.unlist(next);
            block = self.merge(block, next);
        }
        if previous != NIL && self.blocks[previous].is_free {
            self.unlist(previous);
            block = self.merge(previous, block);
        }
        let entry = &mut self.blocks[block];
        entry.is_free = true;
        let Span { start, end } = entry.span;
        self.free.insert(end - start, start, block);
    }

    #[inline]
    fn unlist(&mut self, block: SlabIndex) {
        let Span { start, end } = self.blocks[block].span;
        self.free.remove(end - start, start);
    }

    /// Cuts a block at an address. The smaller part gets a new number.
    #[inline]
    fn split(&mut self, block: SlabIndex, at: u64) -> (SlabIndex, SlabIndex) {
        let whole = self.blocks[block].clone();
        let Block { span: Span { start, end }, previous, next, .. } = whole;
        if at - start < end - at {
            let left = self.blocks.insert(Block { span: start..at, next: block, ..whole });
            self.blocks[block].span.start = at;
            self.blocks[block].previous = left;
            self.connect(previous, left);
            self.claim(left, start..at);
            (left, block)
        } else {
            let right = self.blocks.insert(Block { span: at..end, previous: block, ..whole });
            self.blocks[block].span.end = at;
            self.blocks[block].next = right;
            self.connect(right, next);
            self.claim(right, at..end);
            (block, right)
        }
    }

    /// Makes one block of two neighbours. The larger one keeps its number.
    #[inline]
    fn merge(&mut self, left: SlabIndex, right: SlabIndex) -> SlabIndex {
        let (a, b) = (self.blocks[left].clone(), self.blocks[right].clone());
        let (kept, gone) = match a.span.end - a.span.start < b.span.end - b.span.start {
            true => (right, a.span.clone()),
            false => (left, b.span.clone()),
        };
        self.blocks.remove(if kept == left { right } else { left });
        let entry = &mut self.blocks[kept];
        entry.span = a.span.start..b.span.end;
        self.connect(a.previous, kept);
        self.connect(kept, b.next);
        self.claim(kept, gone);
        kept
    }

    /// Makes `left` and `right` neighbours; `NIL` stands for none.
    #[inline]
    fn connect(&mut self, left: SlabIndex, right: SlabIndex) {
        if left != NIL {
            self.blocks[left].next = right;
        }
        if right != NIL {
            self.blocks[right].previous = left;
        }
    }

    /// The block that ends at an address.
    fn block_before(&self, at: u64) -> SlabIndex {
        if self.addresses.is_border(DevicePtr(at)) { NIL } else { self.block_at(at - 1) }
    }

    #[inline]
    fn page(&self, at: u64) -> Option<&Page> {
        let place = |region: &Region| (at.wrapping_sub(region.base) / GRANULE) as usize;
        self.regions.iter().find_map(|region| region.pages.get(place(region)))
    }

    /// The pages that begin in a span of one region.
    #[inline]
    fn pages_from(&mut self, span: &Span) -> &mut [Page] {
        let in_region = |region: &&mut Region| {
            (span.start.wrapping_sub(region.base) / GRANULE) < region.pages.len() as u64
        };
        let region = self.regions.iter_mut().find(in_region).expect("memory of the arena");
        let place = |at: u64| (at - region.base).div_ceil(GRANULE) as usize;
        let (first, last) = (place(span.start), place(span.end));
        &mut region.pages[first..last]
    }

    /// The block begins all pages that begin in `span`.
    #[inline]
    fn claim(&mut self, block: SlabIndex, span: Span) {
        self.pages_from(&span).iter_mut().for_each(|page| page.block = block);
    }

    /// The pages of `span` belong to a handle; `NIL`: to none, and to no block.
    fn set_handle(&mut self, span: &Span, handle: SlabIndex) {
        let base = self.addresses.base(DevicePtr(span.start)).0;
        if !self.regions.iter().any(|region| region.base == base) {
            self.regions.push(Region { base, pages: Vec::new() });
        }
        let region = self.regions.iter_mut().find(|region| region.base == base);
        let pages = &mut region.expect("it was just made").pages;
        let needed = ((span.end - base) / GRANULE) as usize;
        pages.resize(pages.len().max(needed), Page { handle: NIL, block: NIL });
        self.pages_from(span).fill(Page { handle, block: NIL });
    }
}
