//! The small pool: requests up to 1 MiB (after rounding), out of 2 MiB segments from `cuMemAlloc`.
//!
//! Both GMLakes leave small requests to PyTorch's own scheme, and so do we: best fit by (stream, size, address), a
//! block is split when 512 bytes or more are left over, and a free block merges with its free neighbours.
//!
//! ```text
//!   segment, 2 MiB   ┌──────┬───────┬──────────────────────┐
//!                    │ used │ free  │ used                 │    blocks are linked to their neighbours by address
//!                    └──────┴───────┴──────────────────────┘
//! ```
//!
//! The owner keeps the accounts: what a block was asked for, whether its free waits for a stream, and what to do when
//! the device has no more memory.

use super::caching::SMALL_SEGMENT;
use super::free_index::FreeIndex;
use super::{NIL, Slab, SlabIndex};
use crate::device::{Device, DevicePtr, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// A block of the small pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SmallBlock {
    pub(crate) at: DevicePtr,
    pub(crate) size: Bytes,
    pub(crate) stream: StreamId,
    /// First byte of its segment.
    pub(crate) segment: DevicePtr,
    pub(crate) is_free: bool,
    previous: SlabIndex,
    next: SlabIndex,
}

/// Blocks for small requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct SmallPool {
    blocks: Slab<SmallBlock>,
    free: FreeIndex,
    segments: u64,
}

impl SmallPool {
    /// A block of exactly `size` bytes (rounded) out of what is there; `None` if nothing fits.
    #[inline]
    pub(crate) fn malloc(&mut self, size: Bytes, stream: StreamId) -> Option<SlabIndex> {
        let list = self.free.list_mut(stream)?;
        let at = list.best_fit(size)?;
        list.remove_at(at);
        let index = at.block;
        let block = &mut self.blocks[index];
        block.is_free = false;
        if block.size > size {
            self.split(index, size);
        }
        Some(index)
    }

    /// Asks the device for one more segment. Errors: out of memory, or a driver error.
    pub(crate) fn grow(&mut self, device: &mut dyn Device, stream: StreamId) -> Result<()> {
        let at = device.malloc(SMALL_SEGMENT)?;
        self.adopt(at, stream);
        Ok(())
    }

    /// Takes on a segment that is at `at`.
    pub(crate) fn adopt(&mut self, at: DevicePtr, stream: StreamId) {
        let index = self.blocks.insert(SmallBlock {
            at,
            size: SMALL_SEGMENT,
            stream,
            segment: at,
            is_free: true,
            previous: NIL,
            next: NIL,
        });
        self.segments += 1;
        self.free.open(stream);
        self.list(index);
    }

    /// Takes a block back, and merges it with its free neighbours.
    #[inline]
    pub(crate) fn free(&mut self, index: SlabIndex) {
        let SmallBlock { previous, next, .. } = self.blocks[index];
        self.blocks[index].is_free = true;
        let mut index = index;
        if next != NIL && self.blocks[next].is_free {
            self.unlist(next);
            self.join(index, next);
        }
        if previous != NIL && self.blocks[previous].is_free {
            self.unlist(previous);
            self.join(previous, index);
            index = previous;
        }
        self.list(index);
    }

    /// Hands every segment that is free as a whole to the caller: address and stream.
    pub(crate) fn take_idle(&mut self) -> Vec<(DevicePtr, StreamId)> {
        let is_whole = |index: &SlabIndex| self.blocks[*index].size == SMALL_SEGMENT;
        let idle: Vec<_> = self.free.iter().filter(is_whole).collect();
        let mut taken = Vec::with_capacity(idle.len());
        for &index in &idle {
            self.unlist(index);
            let SmallBlock { at, stream, .. } = self.blocks[index];
            taken.push((at, stream));
            self.blocks.remove(index);
        }
        self.segments -= idle.len() as u64;
        taken
    }

    /// Gives back every segment that is free as a whole, and says how many bytes those were.
    pub(crate) fn trim(&mut self, device: &mut dyn Device) -> Bytes {
        let idle = self.take_idle();
        idle.iter().for_each(|&(at, _)| device.free(at));
        idle.len() as u64 * SMALL_SEGMENT
    }

    #[inline]
    pub(crate) fn block(&self, index: SlabIndex) -> &SmallBlock {
        &self.blocks[index]
    }

    pub(crate) fn segments(&self) -> u64 {
        self.segments
    }

    /// Every free block, in no particular order.
    pub(crate) fn free_blocks(&self) -> impl Iterator<Item = &SmallBlock> {
        self.blocks.iter().map(|(_, block)| block).filter(|block| block.is_free)
    }

    /// Cuts the surplus off a block, and lists it as free.
    fn split(&mut self, index: SlabIndex, size: Bytes) {
        let block = self.blocks[index];
        let rest = self.blocks.insert(SmallBlock {
            at: block.at.offset(size),
            size: block.size - size,
            is_free: true,
            previous: index,
            ..block
        });
        if block.next != NIL {
            self.blocks[block.next].previous = rest;
        }
        let head = &mut self.blocks[index];
        head.size = size;
        head.next = rest;
        self.list(rest);
    }

    /// Makes `right` a part of its left neighbour.
    fn join(&mut self, left: SlabIndex, right: SlabIndex) {
        let SmallBlock { size, next, .. } = self.blocks[right];
        self.blocks[left].size += size;
        self.blocks[left].next = next;
        if next != NIL {
            self.blocks[next].previous = left;
        }
        self.blocks.remove(right);
    }

    #[inline]
    fn list(&mut self, index: SlabIndex) {
        let SmallBlock { stream, size, at, .. } = self.blocks[index];
        self.free.of(stream).insert(size, at.0, index);
    }

    #[inline]
    fn unlist(&mut self, index: SlabIndex) {
        let SmallBlock { stream, size, at, .. } = self.blocks[index];
        self.free.of(stream).remove(size, at.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::allocator::caching::round_plain;
    use crate::device::SimDevice;
    use gmlake_core::units::KIB;

    const STREAM: StreamId = StreamId(0);

    /// The obvious twin: a list of (address, size, free) for each segment, searched from end to end.
    #[derive(Default)]
    struct Plain {
        blocks: Vec<(u64, Bytes, bool)>,
    }

    impl Plain {
        fn malloc(&mut self, size: Bytes) -> Option<u64> {
            let fits = |block: &&(u64, Bytes, bool)| block.2 && block.1 >= size;
            let &(at, found, _) =
                self.blocks.iter().filter(fits).min_by_key(|block| (block.1, block.0))?;
            let place = self.blocks.iter().position(|block| block.0 == at)?;
            self.blocks[place] = (at, size, false);
            if found > size {
                self.blocks.insert(place + 1, (at + size, found - size, true));
            }
            Some(at)
        }

        fn free(&mut self, at: u64) {
            let place = self.blocks.iter().position(|block| block.0 == at).unwrap();
            self.blocks[place].2 = true;
            for left in [place, place.wrapping_sub(1)] {
                let Some(&[(at, size, true), (right, more, true)]) = self
                    .blocks
                    .get(left..left.wrapping_add(2))
                    .map(|pair| pair.first_chunk().unwrap())
                else {
                    continue;
                };
                if at + size == right {
                    self.blocks[left].1 += more;
                    self.blocks.remove(left + 1);
                }
            }
        }
    }

    /// Whether it is a request, for how many bytes, and otherwise which block is freed.
    fn step() -> impl Strategy<Value = (bool, Bytes, prop::sample::Index)> {
        (any::<bool>(), 1..600 * KIB, any::<prop::sample::Index>())
    }

    proptest! {
        #[test]
        fn places_every_block_where_the_obvious_twin_does(
            script in prop::collection::vec(step(), 1..200)
        ) {
            let mut gpu = SimDevice::new(1 << 40);
            let (mut pool, mut plain) = (SmallPool::default(), Plain::default());
            let mut live = Vec::new();
            for (is_malloc, size, pick) in script {
                if is_malloc || live.is_empty() {
                    let size = round_plain(size);
                    let index = pool.malloc(size, STREAM).unwrap_or_else(|| {
                        pool.grow(&mut gpu, STREAM).unwrap();
                        let list = pool.free.of(STREAM);
                        let fresh = list.best_fit(SMALL_SEGMENT).unwrap().block;
                        plain.blocks.push((pool.block(fresh).at.0, SMALL_SEGMENT, true));
                        pool.malloc(size, STREAM).unwrap()
                    });
                    prop_assert_eq!(plain.malloc(size), Some(pool.block(index).at.0));
                    live.push(index);
                } else {
                    let index = live.swap_remove(pick.index(live.len()));
                    plain.free(pool.block(index).at.0);
                    pool.free(index);
                }
            }
            for index in live {
                pool.free(index);
            }
            pool.trim(&mut gpu);
            prop_assert!(gpu.is_pristine() && pool.segments() == 0);
        }
    }
}
