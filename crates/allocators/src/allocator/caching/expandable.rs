//! Expandable segments: one long range of addresses for each pool and stream, and pages mapped to it as needed.
//!
//! ```text
//!   reservation   [ allocated ][ free   ][ allocated ][ unmapped ...                    ]
//!                  page 0      page 1      page 2       page 3 ...
//!   request that needs one page more:                  ^ map here; merges with a free block to its left
//! ```
//!
//! A page is one handle: 2 MiB in the small pool, the size of a large segment (20 MiB) in the large one. Unmapped
//! ranges are blocks of the same chain. Only a flush takes pages back.

use super::block::{Block, BlockState, Blocks};
use super::sizes::SMALL_SEGMENT;
use super::{Caching, Wanted};
use crate::allocator::free_index::{Cursor, StreamList};
use crate::allocator::{NIL, SlabIndex};
use crate::device::{Device, DeviceError, DevicePtr, HandleId, Result};
use gmlake_core::units::{Bytes, round_up};

/// A range of addresses, and the pages that are mapped in it.
#[derive(Debug, Clone)]
pub struct Reservation {
    pub base: u64,
    pub page: Bytes,
    pub length: Bytes,
    /// The handle that is mapped at each page; grows with the highest page in use.
    pub handles: Vec<Option<HandleId>>,
}

impl Reservation {
    /// Creates and maps the pages of a range; all of them or none.
    pub fn map(&mut self, device: &mut dyn Device, at: u64, size: Bytes) -> Result<()> {
        let handles = device.create_for_use(DevicePtr(at), size, self.page)?;
        let first = self.page_of(at);
        let end = first + handles.len();
        self.handles.resize(self.handles.len().max(end), None);
        for (slot, handle) in self.handles[first..end].iter_mut().zip(handles) {
            *slot = Some(handle);
        }
        Ok(())
    }

    /// Unmaps and releases the pages of a range.
    fn unmap(&mut self, device: &mut dyn Device, low: u64, high: u64) {
        for number in self.page_of(low)..self.page_of(high) {
            let handle = self.handles[number].take();
            device.unmap(DevicePtr(self.base + number as u64 * self.page), self.page);
            device.release(handle.expect("a page of a free block is mapped"));
        }
    }

    fn page_of(&self, at: u64) -> usize {
        ((at - self.base) / self.page) as usize
    }
}

impl Blocks {
    /// From a best fit that is doubtful, goes on to the block that PyTorch would take.
    ///
    /// With the option on, it avoids the block before the large unmapped tail: while the next larger block together
    /// with the unmapped range behind it reaches less far, that one is better. With it off, expandable blocks are
    /// passed over.
    pub(super) fn step_over(
        &self,
        free: &StreamList,
        mut at: Cursor,
        expandable: bool,
    ) -> Option<Cursor> {
        while self.is_doubtful(at.block, expandable) {
            match free.next(at) {
                None if expandable => break,
                Some(next) if expandable && self.reach(next.block) >= self.reach(at.block) => break,
                next => at = next?,
            }
        }
        Some(at)
    }

    /// Whether another block than this best fit may be the one to take. With the option on, none is unless an unmapped
    /// range follows: the next block is no smaller, and reaches as far.
    #[inline(always)]
    pub(super) fn is_doubtful(&self, index: SlabIndex, expandable: bool) -> bool {
        self[index].is_expandable() && (!expandable || self.unmapped_behind(index) > 0)
    }

    /// Size of a block and of the unmapped range right behind it.
    fn reach(&self, index: SlabIndex) -> Bytes {
        self[index].size + self.unmapped_behind(index)
    }

    /// Size of the unmapped range right behind a block.
    #[inline(always)]
    fn unmapped_behind(&self, index: SlabIndex) -> Bytes {
        match self[index].next {
            NIL => 0,
            next if self[next].state == BlockState::Unmapped => self[next].size,
            _ => 0,
        }
    }
}

impl Caching {
    /// A free block of at least the wanted size, out of the free index, with new pages mapped for what is missing.
    pub(super) fn grow_expandable(
        &mut self,
        device: &mut dyn Device,
        wanted: Wanted,
    ) -> Result<Option<SlabIndex>> {
        let mut block = match self.room_to_grow(wanted) {
            Some(block) => block,
            None => match self.reserve(device, wanted) {
                Ok(block) => block,
                Err(DeviceError::OutOfMemory { .. }) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        if self.blocks[block].state == BlockState::Unmapped {
            let size = self.blocks[block].size.min(wanted.size);
            match self.map_pages(device, block, size)? {
                Some(mapped) => block = mapped,
                None => return Ok(None),
            }
        }
        while self.blocks[block].size < wanted.size {
            let missing = wanted.size - self.blocks[block].size;
            let next = self.blocks[block].next;
            if next == NIL {
                return Ok(None); // the device has less memory than is asked for
            }
            let size = self.blocks[next].size.min(missing);
            match self.map_pages(device, next, size)? {
                Some(mapped) => block = mapped,
                None => return Ok(None),
            }
        }
        self.take_out(block);
        Ok(Some(block))
    }

    /// The first place of the stream, in address order, where free and unmapped blocks side by side are large enough.
    fn room_to_grow(&self, wanted: Wanted) -> Option<SlabIndex> {
        let from = (wanted.stream, 0, 0)..=(wanted.stream, u64::MAX, SlabIndex::MAX);
        let unmapped = &self.pools[usize::from(wanted.pool)].unmapped;
        let candidates = unmapped.range(from).map(|&(_, _, range)| match self.blocks[range].prev {
            NIL => range,
            prev if self.blocks[prev].state == BlockState::Free => prev,
            _ => range,
        });
        candidates.into_iter().find(|&first| self.has_room(first, wanted.size))
    }

    fn has_room(&self, first: SlabIndex, size: Bytes) -> bool {
        let (mut found, mut at) = (0, first);
        while found < size && at != NIL {
            match self.blocks[at].state {
                BlockState::Free | BlockState::Unmapped => found += self.blocks[at].size,
                _ => break,
            }
            at = self.blocks[at].next;
        }
        found >= size
    }

    /// Bytes of a reservation: as much as the device has, and an eighth more, unless the settings ask for less.
    pub(super) fn reservation_length(&self, page: Bytes) -> Bytes {
        let full = self.total_memory + self.total_memory / 8;
        let asked = self.conf.expandable_reserve.map(|reserve| reserve.bytes(self.total_memory));
        round_up(asked.map_or(full, |asked| asked.min(full)), page).max(page)
    }

    /// A new reservation, as one unmapped block.
    fn reserve(&mut self, device: &mut dyn Device, wanted: Wanted) -> Result<SlabIndex> {
        let is_small = self.pools[usize::from(wanted.pool)].is_small;
        let page = if is_small { SMALL_SEGMENT } else { self.conf.large_segment_size };
        let length = self.reservation_length(page);
        let base = device.reserve(length)?;
        let reservation = Reservation { base: base.0, page, length, handles: Vec::new() };
        let block = self.add_segment(base.0, length, wanted.pool, wanted.stream);
        self.blocks[block].reservation = self.reservations.insert(reservation);
        self.put_unmapped(block);
        Ok(block)
    }

    pub(super) fn put_unmapped(&mut self, index: SlabIndex) {
        let block = &mut self.blocks[index];
        block.state = BlockState::Unmapped;
        let pool = &mut self.pools[usize::from(block.pool)];
        pool.unmapped.insert((block.stream, block.at, index));
    }

    fn take_unmapped(&mut self, index: SlabIndex) {
        let block = &self.blocks[index];
        let pool = &mut self.pools[usize::from(block.pool)];
        assert!(pool.unmapped.remove(&(block.stream, block.at, index)), "range is not unmapped");
    }

    /// Maps pages for the first `size` bytes of an unmapped block; all of them or none. What is mapped merges with
    /// its free neighbours, and the resulting free block is returned; `None` if the device has no memory.
    pub(super) fn map_pages(
        &mut self,
        device: &mut dyn Device,
        index: SlabIndex,
        size: Bytes,
    ) -> Result<Option<SlabIndex>> {
        let block = self.blocks[index];
        let reservation = &mut self.reservations[block.reservation];
        let size = round_up(size, reservation.page);
        match reservation.map(device, block.at, size) {
            Ok(()) => {
                self.ledger.grow(size);
                Ok(Some(self.turn_mapped(index, size)))
            }
            Err(DeviceError::OutOfMemory { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Turns the first `size` bytes of an unmapped block into a free one.
    fn turn_mapped(&mut self, index: SlabIndex, size: Bytes) -> SlabIndex {
        self.take_unmapped(index);
        let mapped = if size < self.blocks[index].size {
            let front = self.blocks.split_front(index, size);
            self.ranks.cut(&mut self.blocks[index].rank);
            self.put_unmapped(index);
            front
        } else {
            index
        };
        self.settle(mapped);
        mapped
    }

    /// Takes the whole pages inside a free block back; parts of pages at its ends stay, as blocks of their own.
    pub(super) fn unmap_pages(&mut self, device: &mut dyn Device, index: SlabIndex) {
        let block = self.blocks[index];
        let Reservation { base, page, .. } = self.reservations[block.reservation];
        let low = base + round_up(block.at - base, page);
        let high = base + (block.end() - base) / page * page;
        if low >= high {
            return;
        }
        self.take_out(index);
        // The GPU may still work on what was freed in stream order, and unmapping does not wait for it.
        device.synchronize();
        self.reservations[block.reservation].unmap(device, low, high);
        self.ledger.shrink(high - low);
        self.turn_unmapped(device, index, low, high);
    }

    fn turn_unmapped(&mut self, device: &mut dyn Device, index: SlabIndex, low: u64, high: u64) {
        if low > self.blocks[index].at {
            let front = self.blocks.split_front(index, low - self.blocks[index].at);
            self.ranks.cut(&mut self.blocks[front].rank);
            self.put_back(front);
        }
        let unmapped = if high < self.blocks[index].end() {
            let front = self.blocks.split_front(index, high - low);
            self.ranks.cut(&mut self.blocks[index].rank);
            self.put_back(index);
            front
        } else {
            index
        };
        let Block { prev, next, .. } = self.blocks[unmapped];
        if prev != NIL && self.blocks[prev].state == BlockState::Unmapped {
            self.take_unmapped(prev);
            self.blocks.absorb_prev(unmapped);
        }
        if next != NIL && self.blocks[next].state == BlockState::Unmapped {
            self.take_unmapped(next);
            self.blocks.absorb_next(unmapped);
        }
        if self.blocks[unmapped].is_split() {
            self.put_unmapped(unmapped);
        } else {
            self.unreserve(device, unmapped);
        }
    }

    /// Gives back reservations into which nothing was ever mapped, because the device had no memory for the first page.
    pub(super) fn unreserve_empty(&mut self, device: &mut dyn Device) {
        let unmapped = self.pools.iter().flat_map(|pool| &pool.unmapped);
        let empty = unmapped.map(|&(_, _, block)| block);
        let empty: Vec<_> = empty.filter(|&block| !self.blocks[block].is_split()).collect();
        for block in empty {
            self.take_unmapped(block);
            self.unreserve(device, block);
        }
    }

    /// Gives back a reservation that is one unmapped block.
    fn unreserve(&mut self, device: &mut dyn Device, block: SlabIndex) {
        let reservation = self.blocks[block].reservation;
        let Reservation { base, length, .. } = self.reservations[reservation];
        device.unreserve(DevicePtr(base), length);
        self.reservations.remove(reservation);
        self.blocks.remove(block);
    }
}
