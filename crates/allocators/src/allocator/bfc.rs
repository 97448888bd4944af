//! `xla-bfc`: the allocator of XLA and TensorFlow, best fit with coalescing (BFC).
//!
//! Memory is held in regions, a region is cut into chunks, and free chunks that touch are one. A request is rounded to
//! 256 bytes and gets the smallest free chunk that holds it, the lowest of several. The chunk is split only if it is at
//! least twice as large, or 128 MiB larger. Without a fit there is a new region: 2 MiB at first, twice the last one
//! after that, and as many times twice as it takes. Regions are never given back, unless `garbage_collection` is on,
//! as it is in TensorFlow; with `preallocate` there is only one, as in JAX by default.
//!
//! ```text
//!   regions   2 MiB  4 MiB   8 MiB            16 MiB                          the next: 32 MiB
//!   chunks    [####] [##|  ] [####|##|     ]  [####################|        ]
//! ```
//!
//! From `xla/tsl/framework/bfc_allocator.cc` (openxla/xla, 00df9ee). Its bins only make the search faster; its spatial
//! partitioning and timestamps, which the GPU client leaves off, are not here. The original knows nothing of streams
//! (its client orders them); here the next stream waits for the last one.

use std::collections::{BTreeMap, BTreeSet};

use super::last_users::LastUsers;
use super::pool::{Free, Place, Policy};
use super::{Counter, NIL, OptionError, OptionSpec, Options, Slab, SlabIndex};
use crate::device::{Device, DeviceError, DevicePtr, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, MIB, round_up};

/// All sizes are multiples of this.
const UNIT: Bytes = 256;
const FIRST_REGION: Bytes = 2 * MIB;
/// A chunk that is this much too large is split in any case.
const MOST_WASTE: Bytes = 128 * MIB;
/// When the device has no room for a region, this share of it is tried next.
const BACKPEDAL: f32 = 0.9;

#[derive(Debug, Clone, Copy)]
struct Chunk {
    at: u64,
    size: Bytes,
    prev: SlabIndex,
    next: SlabIndex,
    is_free: bool,
}

#[derive(Debug, Clone, Copy)]
struct Region {
    size: Bytes,
    first: SlabIndex,
}

/// Best fit with coalescing, in regions that double.
#[derive(Debug, Clone, Default)]
pub(super) struct Bfc {
    preallocate: Bytes,
    collects: bool,
    /// Bytes that may be held; not known before the first region.
    limit: Option<Bytes>,
    next_region: Bytes,
    held: Bytes,
    regions: BTreeMap<u64, Region>,
    chunks: Slab<Chunk>,
    /// Free chunks by size and address.
    free: BTreeSet<(Bytes, u64, SlabIndex)>,
    users: LastUsers,
}

impl Bfc {
    /// The options as a user sees them.
    pub(super) const SPECS: &'static [OptionSpec] = &[
        OptionSpec {
            name: "preallocate",
            default: "0",
            help: "one region of this size and no other, as in JAX; 0: regions as needed",
        },
        OptionSpec {
            name: "garbage_collection",
            default: "off",
            help: "give free regions back before running out of memory, as TensorFlow does",
        },
    ];

    /// Makes the policy from its options. Fails if a value is of the wrong kind.
    pub(super) fn from_options(options: &mut Options) -> Result<Self, OptionError> {
        Ok(Self {
            preallocate: options.size("preallocate", "0")?,
            collects: options.switch("garbage_collection", "off")?,
            ..Self::default()
        })
    }

    /// The limit, and with it the size of the first region.
    fn limit(&mut self, device: &dyn Device) -> Bytes {
        *self.limit.get_or_insert_with(|| {
            let free = device.memory_info().free;
            let limit = if self.preallocate > 0 { self.preallocate.min(free) } else { free };
            let first = if self.preallocate > 0 { limit } else { limit.min(FIRST_REGION) };
            self.next_region = round_up(first, UNIT).max(UNIT);
            limit
        })
    }

    /// Holds one more region, in which there is room for `size` bytes.
    fn extend(&mut self, device: &mut dyn Device, size: Bytes) -> Result<()> {
        let available = self.limit(device).saturating_sub(self.held) / UNIT * UNIT;
        if size > available {
            return Err(DeviceError::OutOfMemory { requested: size, free: available });
        }
        let is_small = size > self.next_region;
        while size > self.next_region {
            self.next_region *= 2;
        }
        let (at, bytes) = allocate_region(device, self.next_region.min(available), size)?;
        if !is_small {
            self.next_region *= 2;
        }
        self.held += bytes;
        let chunk = Chunk { at: at.0, size: bytes, prev: NIL, next: NIL, is_free: true };
        let first = self.chunks.insert(chunk);
        self.regions.insert(at.0, Region { size: bytes, first });
        self.free.insert((bytes, at.0, first));
        Ok(())
    }

    fn find(&mut self, size: Bytes) -> Option<SlabIndex> {
        let &(its_size, at, index) = self.free.range((size, 0, 0)..).next()?;
        self.free.remove(&(its_size, at, index));
        self.chunks[index].is_free = false;
        if its_size >= 2 * size || its_size - size >= MOST_WASTE {
            self.split(index, size);
        }
        Some(index)
    }

    /// Cuts a chunk after `size` bytes; the rest is free.
    fn split(&mut self, index: SlabIndex, size: Bytes) {
        let chunk = self.chunks[index];
        let (at, rest) = (chunk.at + size, chunk.size - size);
        let tail = Chunk { at, size: rest, prev: index, next: chunk.next, is_free: true };
        let tail = self.chunks.insert(tail);
        if chunk.next != NIL {
            self.chunks[chunk.next].prev = tail;
        }
        self.chunks[index].size = size;
        self.chunks[index].next = tail;
        self.free.insert((rest, at, tail));
    }

    /// Makes a chunk one with its successor.
    fn merge(&mut self, index: SlabIndex, next: SlabIndex) {
        let absorbed = self.chunks[next];
        self.chunks[index].size += absorbed.size;
        self.chunks[index].next = absorbed.next;
        if absorbed.next != NIL {
            self.chunks[absorbed.next].prev = index;
        }
        self.chunks.remove(next);
    }

    fn is_free(&self, index: SlabIndex) -> bool {
        index != NIL && self.chunks[index].is_free
    }

    fn unlist(&mut self, index: SlabIndex) {
        let Chunk { at, size, .. } = self.chunks[index];
        self.free.remove(&(size, at, index));
    }

    /// Regions without a chunk in use.
    fn idle_regions(&self) -> Vec<u64> {
        let is_idle = |region: &Region| {
            let first = &self.chunks[region.first];
            first.is_free && first.size == region.size
        };
        self.regions.iter().filter(|(_, region)| is_idle(region)).map(|(&at, _)| at).collect()
    }

    /// Gives idle regions back if a request of `size` bytes could be served then.
    fn collect(&mut self, device: &mut dyn Device, size: Bytes) -> bool {
        let idle = self.idle_regions();
        let bytes: Bytes = idle.iter().map(|at| self.regions[at].size).sum();
        let available = self.limit(device).saturating_sub(self.held) + bytes;
        let is_of_use = self.collects && bytes > 0 && size <= available;
        if is_of_use {
            self.release(device, &idle);
        }
        is_of_use
    }

    fn release(&mut self, device: &mut dyn Device, regions: &[u64]) {
        for at in regions {
            let Some(Region { size, first }) = self.regions.remove(at) else { continue };
            self.unlist(first);
            self.chunks.remove(first);
            self.held -= size;
            self.users.forget(DevicePtr(*at), size);
            device.free(DevicePtr(*at));
        }
    }

    fn search(&mut self, device: &mut dyn Device, size: Bytes) -> Result<SlabIndex> {
        if let Some(found) = self.find(size) {
            return Ok(found);
        }
        match self.extend(device, size) {
            Err(DeviceError::OutOfMemory { .. }) if self.collect(device, size) => {
                self.extend(device, size)?;
            }
            other => other?,
        }
        Ok(self.find(size).expect("the new region has room"))
    }
}

/// Memory of `bytes` bytes, or of the largest part of it that the device has, as long as it holds `least`.
fn allocate_region(
    device: &mut dyn Device,
    mut bytes: Bytes,
    least: Bytes,
) -> Result<(DevicePtr, Bytes)> {
    loop {
        match device.malloc(bytes) {
            Ok(at) => return Ok((at, bytes)),
            Err(error @ DeviceError::OutOfMemory { .. }) => {
                let less = round_up((bytes as f32 * BACKPEDAL) as Bytes, UNIT);
                bytes = if less < bytes { less } else { bytes - UNIT };
                if bytes < least {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

impl Policy for Bfc {
    fn round(&self, size: Bytes) -> Bytes {
        round_up(size, UNIT)
    }

    fn take(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place> {
        let key = self.search(device, size)?;
        let Chunk { at, size, .. } = self.chunks[key];
        self.users.take(device, (DevicePtr(at), size), stream);
        Ok(Place { at: DevicePtr(at), size, key })
    }

    fn give(&mut self, _device: &mut dyn Device, place: Place, stream: StreamId) {
        self.users.note(place.at, place.size, stream);
        let mut index = place.key;
        self.chunks[index].is_free = true;
        let Chunk { prev, next, .. } = self.chunks[index];
        if self.is_free(next) {
            self.unlist(next);
            self.merge(index, next);
        }
        if self.is_free(prev) {
            self.unlist(prev);
            self.merge(prev, index);
            index = prev;
        }
        let Chunk { at, size, .. } = self.chunks[index];
        self.free.insert((size, at, index));
    }

    fn trim(&mut self, device: &mut dyn Device) {
        let idle = self.idle_regions();
        self.release(device, &idle);
    }

    fn held(&self) -> Bytes {
        self.held
    }

    fn segment(&self, at: DevicePtr) -> DevicePtr {
        self.regions.range(..=at.0).next_back().map_or(at, |(&start, _)| DevicePtr(start))
    }

    fn walk_free(&self, visit: &mut dyn FnMut(Free)) {
        for &(size, at, _) in &self.free {
            visit(Free { at: DevicePtr(at), size, stream: StreamId(0) });
        }
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("regions", self.regions.len() as u64), ("stream waits", self.users.waits)]
    }
}
