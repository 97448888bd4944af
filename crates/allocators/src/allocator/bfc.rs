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

use std::collections::BTreeMap;

use super::last_users::LastUsers;
use super::pool::{Place, Policy};
use super::spec::settings;
use super::{BlockView, Counter};
use crate::device::{Device, DeviceError, DevicePtr, Result};
use crate::holes::Holes;
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, MIB, round_up};

/// All sizes are multiples of this.
const UNIT: Bytes = 256;
const FIRST_REGION: Bytes = 2 * MIB;
/// A chunk that is this much too large is split in any case.
const MOST_WASTE: Bytes = 128 * MIB;
/// When the device has no room for a region, this share of it is tried next.
const BACKPEDAL: f32 = 0.9;

settings! {
    BfcOptions {
        preallocate: Bytes = size("preallocate", "0"),
            "one region of this size and no other, as in JAX; 0: regions as needed";
        garbage_collection: bool = switch("garbage_collection", "off"),
            "give free regions back before running out of memory, as TensorFlow does";
    }
}

/// Best fit with coalescing, in regions that double.
#[derive(Debug, Clone, Default)]
pub(super) struct Bfc {
    options: BfcOptions,
    /// Bytes that may be held; not known before the first region.
    limit: Option<Bytes>,
    next_region: Bytes,
    held: Bytes,
    /// Sizes by address.
    regions: BTreeMap<u64, Bytes>,
    /// Free chunks.
    free: Holes,
    users: LastUsers,
}

impl Bfc {
    pub(super) fn new(options: BfcOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The limit, and with it the size of the first region.
    fn limit(&mut self, device: &dyn Device) -> Bytes {
        *self.limit.get_or_insert_with(|| {
            let free = device.memory_info().free;
            let (limit, first) = match self.options.preallocate {
                0 => (free, free.min(FIRST_REGION)),
                size => (size.min(free), size.min(free)),
            };
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
        self.regions.insert(at.0, bytes);
        self.join(at.0, bytes);
        Ok(())
    }

    /// Takes a chunk, or the front of it.
    fn find(&mut self, size: Bytes) -> Option<(u64, Bytes)> {
        let at = self.free.best(size)?;
        let whole = self.free.get(at)?;
        let is_split = whole >= 2 * size || whole - size >= MOST_WASTE;
        let taken = if is_split { size } else { whole };
        self.free.take(at, taken);
        Some((at, taken))
    }

    /// Makes a chunk free, and one with its neighbours in its region.
    fn join(&mut self, at: u64, size: Bytes) {
        self.free.give(at, size, |at| self.regions.contains_key(&at));
    }

    /// Regions without a chunk in use.
    fn idle_regions(&self) -> Vec<u64> {
        let idle = self.regions.iter().filter(|&(&at, &size)| self.free.get(at) == Some(size));
        idle.map(|(&at, _)| at).collect()
    }

    /// Gives idle regions back if a request of `size` bytes could be served then.
    fn collect(&mut self, device: &mut dyn Device, size: Bytes) -> bool {
        let idle = self.idle_regions();
        let bytes: Bytes = idle.iter().map(|at| self.regions[at]).sum();
        let available = self.limit(device).saturating_sub(self.held) + bytes;
        let is_of_use = self.options.garbage_collection && bytes > 0 && size <= available;
        if is_of_use {
            self.release(device, &idle);
        }
        is_of_use
    }

    fn release(&mut self, device: &mut dyn Device, regions: &[u64]) {
        for at in regions {
            let Some(size) = self.regions.remove(at) else { continue };
            self.free.take(*at, size);
            self.held -= size;
            self.users.forget(DevicePtr(*at), size);
            device.free(DevicePtr(*at));
        }
    }

    fn search(&mut self, device: &mut dyn Device, size: Bytes) -> Result<(u64, Bytes)> {
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
        let (at, size) = self.search(device, size)?;
        self.users.take(device, (DevicePtr(at), size), stream);
        Ok(Place { at: DevicePtr(at), size })
    }

    fn give(&mut self, _device: &mut dyn Device, place: Place, stream: StreamId) {
        self.users.note(place.at, place.size, stream);
        self.join(place.at.0, place.size);
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

    fn free(&self) -> Vec<BlockView> {
        let free = self.free.iter();
        free.map(|(at, size)| BlockView::free(DevicePtr(at), size, StreamId(0))).collect()
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("regions", self.regions.len() as u64), ("stream waits", self.users.waits)]
    }
}
