//! `rmm-pool`: the pool of RAPIDS' memory manager, best fit with one free list for each stream.
//!
//! A request is rounded to 256 bytes and gets the smallest free block of its own stream, the lowest of several, cut to
//! size. Without one it takes a block from another stream's list, for which it waits; then whole lists of other streams
//! are merged into its own; and only then the pool grows, by as much as it holds already. Blocks that touch are one,
//! but never across what came from the device in two pieces. The pool never shrinks by itself.
//!
//! ```text
//!   stream 1   [free] ... [free]     1. best fit here
//!   stream 2   [  free  ]            2. best fit there, after a wait    3. all of this list becomes stream 1's
//!   device                           4. max(request, what the pool holds); half of that, and so on, if there is less
//! ```
//!
//! From `pool_memory_resource_impl.cpp`, `stream_ordered_memory_resource.hpp` and `coalescing_free_list.hpp`
//! (rapidsai/rmm, 5d50a37). One difference: after a merge we record the stream's event again. The original does not, so
//! that a third stream which takes such a block waits for too early an event.

use std::collections::BTreeMap;

use super::pool::{Place, Policy};
use super::spec::settings;
use super::{BlockView, Counter};
use crate::device::{Device, DeviceError, DevicePtr, Fence, Result};
use crate::holes::Holes;
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, round_up};

/// All sizes are multiples of this.
const UNIT: Bytes = 256;

/// The free blocks of a stream, and the end of what it had queued when the last of them was freed.
#[derive(Debug, Clone, Default)]
struct FreeList {
    stream: StreamId,
    /// A list that was merged into another is gone until its stream needs one again.
    exists: bool,
    event: Option<Fence>,
    blocks: Holes,
}

impl FreeList {
    /// Takes the front of the best fit.
    fn take(&mut self, size: Bytes) -> Option<u64> {
        let at = self.blocks.best(size)?;
        self.blocks.take(at, size);
        Some(at)
    }

    /// Records the stream's event, in place of the last one.
    fn record(&mut self, device: &mut dyn Device) {
        if let Some(last) = self.event.replace(device.fence(self.stream)) {
            device.drop_fence(last);
        }
    }
}

settings! {
    RmmPoolOptions {
        initial: Bytes = size("initial", "0"), "size to begin with";
        maximum: Bytes = size("maximum", "0"), "largest size of the pool; 0: no limit";
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct RmmPool {
    initial: Bytes,
    maximum: Option<Bytes>,
    held: Bytes,
    /// What came from the device, by address.
    upstream: BTreeMap<u64, Bytes>,
    /// In the order in which the streams were first seen.
    lists: Vec<FreeList>,
    waits: u64,
    merges: u64,
}

impl RmmPool {
    pub(super) fn new(options: RmmPoolOptions) -> Self {
        let maximum = Some(options.maximum / UNIT * UNIT).filter(|&size| size > 0);
        Self { initial: round_up(options.initial, UNIT), maximum, ..Self::default() }
    }

    /// The number of a stream's list.
    fn list_of(&mut self, stream: StreamId) -> usize {
        if let Some(place) = self.lists.iter().position(|list| list.stream == stream) {
            return place;
        }
        self.lists.push(FreeList { stream, ..FreeList::default() });
        self.lists.len() - 1
    }

    /// Adds a free block to a list. Blocks are one with their neighbours, unless those came from the device apart.
    fn insert(&mut self, list: usize, at: u64, size: Bytes) {
        self.lists[list].blocks.give(at, size, |at| self.upstream.contains_key(&at));
        self.lists[list].exists = true;
    }

    /// Makes the stream of a list wait for that of another.
    fn wait(&mut self, device: &mut dyn Device, list: usize, other: usize) {
        if let Some(event) = self.lists[other].event {
            device.stream_wait(self.lists[list].stream, event);
            self.waits += 1;
        }
    }

    fn others(&self, list: usize) -> Vec<usize> {
        (0..self.lists.len()).filter(|&other| other != list && self.lists[other].exists).collect()
    }

    fn take_from_other(
        &mut self,
        device: &mut dyn Device,
        list: usize,
        size: Bytes,
    ) -> Option<u64> {
        for other in self.others(list) {
            if let Some(at) = self.lists[other].take(size) {
                self.wait(device, list, other);
                return Some(at);
            }
        }
        None
    }

    fn take_from_merged(
        &mut self,
        device: &mut dyn Device,
        list: usize,
        size: Bytes,
    ) -> Option<u64> {
        for other in self.others(list) {
            self.wait(device, list, other);
            self.merges += 1;
            self.lists[other].exists = false;
            for (at, its_size) in std::mem::take(&mut self.lists[other].blocks).iter() {
                self.insert(list, at, its_size);
            }
            self.lists[list].record(device);
            if let Some(at) = self.lists[list].take(size) {
                return Some(at);
            }
        }
        None
    }

    /// Bytes to grow by for a request; fewer than the request if the pool may not grow as much.
    fn growth(&self, size: Bytes) -> Bytes {
        match self.maximum {
            None if self.held == 0 => size.max(self.initial),
            None => size.max(self.held),
            Some(_) if self.held == 0 && self.initial >= size => self.initial,
            Some(maximum) => match maximum.saturating_sub(self.held) {
                left if size <= left => size.max(left / 2),
                _ => 0,
            },
        }
    }

    /// The front of a block from the device: as large as the pool would grow, or half of it, and so on.
    fn grow(&mut self, device: &mut dyn Device, list: usize, size: Bytes) -> Result<u64> {
        let mut growth = self.growth(size);
        if growth < size {
            let free = self.maximum.map_or(0, |maximum| maximum.saturating_sub(self.held));
            return Err(DeviceError::OutOfMemory { requested: size, free });
        }
        loop {
            match device.malloc(growth) {
                Ok(at) => {
                    self.held += growth;
                    self.upstream.insert(at.0, growth);
                    self.insert(list, at.0, growth);
                    self.lists[list].blocks.take(at.0, size);
                    return Ok(at.0);
                }
                Err(DeviceError::OutOfMemory { .. }) if growth > size => {
                    growth = size.max(growth / 2);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn search(&mut self, device: &mut dyn Device, list: usize, size: Bytes) -> Result<u64> {
        if let Some(at) = self.lists[list].take(size) {
            return Ok(at);
        }
        self.lists[list].exists = true;
        let found = self.take_from_other(device, list, size);
        if let Some(at) = found.or_else(|| self.take_from_merged(device, list, size)) {
            return Ok(at);
        }
        self.grow(device, list, size)
    }

    /// Free blocks within a range, as the number of their list, address and size.
    fn free_within(&self, at: u64, size: Bytes) -> Vec<(usize, u64, Bytes)> {
        let of_list = |(list, blocks): (usize, &FreeList)| {
            let inside = blocks.blocks.within(at..at + size);
            inside.map(|(at, size)| (list, at, size)).collect::<Vec<_>>()
        };
        self.lists.iter().enumerate().flat_map(of_list).collect()
    }
}

impl Policy for RmmPool {
    fn round(&self, size: Bytes) -> Bytes {
        round_up(size, UNIT)
    }

    fn take(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place> {
        let list = self.list_of(stream);
        let at = DevicePtr(self.search(device, list, size)?);
        Ok(Place { at, size })
    }

    fn give(&mut self, device: &mut dyn Device, place: Place, stream: StreamId) {
        let list = self.list_of(stream);
        self.lists[list].record(device);
        self.insert(list, place.at.0, place.size);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        for (at, size) in self.upstream.clone() {
            let free = self.free_within(at, size);
            if free.iter().map(|block| block.2).sum::<Bytes>() == size {
                for (list, at, size) in free {
                    self.lists[list].blocks.take(at, size);
                }
                self.upstream.remove(&at);
                self.held -= size;
                device.free(DevicePtr(at));
            }
        }
        let idle = self.lists.iter_mut().filter(|list| list.blocks.largest() == 0);
        idle.filter_map(|list| list.event.take()).for_each(|event| device.drop_fence(event));
    }

    fn held(&self) -> Bytes {
        self.held
    }

    fn segment(&self, at: DevicePtr) -> DevicePtr {
        self.upstream.range(..=at.0).next_back().map_or(at, |(&start, _)| DevicePtr(start))
    }

    fn free(&self) -> Vec<BlockView> {
        let of_list = |list: &FreeList| {
            let view = |(at, size)| BlockView::free(DevicePtr(at), size, list.stream);
            list.blocks.iter().map(view).collect::<Vec<_>>()
        };
        self.lists.iter().flat_map(of_list).collect()
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("stream waits", self.waits), ("merged lists", self.merges)]
    }
}
