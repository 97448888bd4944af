//! Memory of one virtual device: a capacity, and which addresses are taken.
//!
//! The rules are those of the driver on an H200: physical memory comes in pages of 2 MiB; a reservation takes addresses
//! and no memory; a handle takes its size until it has been released and its last mapping is gone. Unlike
//! [`SimDevice`](gmlake_allocators::device::SimDevice), which panics where an allocator of ours is wrong, this answers
//! whatever program runs above it: a wrong call gets an error.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use gmlake_allocators::device::DriverAddresses;
use gmlake_core::units::{Bytes, MIB, round_up};

/// Pages of physical memory.
const GRANULE: Bytes = 2 * MIB;

/// Why memory was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryError {
    /// There is not as much left.
    OutOfMemory,
    /// The call breaks the driver's rules.
    Invalid,
}

/// The address space that all devices of a process share, handed out in the driver's order.
#[derive(Debug, Clone)]
pub struct Addresses {
    bottom: u64,
    driver: DriverAddresses,
}

impl Addresses {
    /// All addresses from `bottom` up to `top`.
    pub fn between(bottom: u64, top: u64) -> Self {
        Self { bottom, driver: DriverAddresses::with_context(top - bottom) }
    }

    fn take(&mut self, size: Bytes) -> Result<u64, MemoryError> {
        let at = self.driver.take(size).ok_or(MemoryError::OutOfMemory)?;
        Ok(self.bottom + at)
    }

    fn reserve(&mut self, size: Bytes) -> Result<u64, MemoryError> {
        let at = self.driver.reserve(size).ok_or(MemoryError::OutOfMemory)?;
        Ok(self.bottom + at)
    }

    fn give(&mut self, at: u64) {
        self.driver.give(at - self.bottom);
    }
}

#[derive(Debug, Clone, Copy)]
struct Handle {
    size: Bytes,
    mappings: u32,
    released: bool,
}

/// The memory of one device.
#[derive(Debug, Default)]
pub struct Memory {
    capacity: Bytes,
    used: Bytes,
    /// Of `used`, what is besides allocations: the context, libraries, communicators.
    beside: Bytes,
    peak: Bytes,
    /// Size of each allocation, by address.
    mallocs: BTreeMap<u64, Bytes>,
    /// Size of each reservation, by address.
    reservations: BTreeMap<u64, Bytes>,
    /// Size and handle of each mapping, by address.
    mappings: BTreeMap<u64, (Bytes, u64)>,
    handles: FxHashMap<u64, Handle>,
    next_handle: u64,
}

impl Memory {
    /// A device with `capacity` bytes, all of them free.
    pub fn new(capacity: Bytes) -> Self {
        Self { capacity, next_handle: 0x1000, ..Self::default() }
    }

    /// Free bytes, and all bytes.
    pub fn info(&self) -> (Bytes, Bytes) {
        (self.capacity - self.used, self.capacity)
    }

    /// The most bytes that were ever in use.
    pub fn peak(&self) -> Bytes {
        self.peak
    }

    /// Raises what is taken besides allocations to `bytes`, as far as there is memory; it never falls.
    pub fn take_beside(&mut self, bytes: Bytes) {
        let more = bytes.saturating_sub(self.beside).min(self.capacity - self.used);
        self.beside += more;
        self.used += more;
        self.peak = self.peak.max(self.used);
    }

    fn take(&mut self, size: Bytes) -> Result<(), MemoryError> {
        if size > self.capacity - self.used {
            return Err(MemoryError::OutOfMemory);
        }
        self.used += size;
        self.peak = self.peak.max(self.used);
        Ok(())
    }

    /// `cudaMalloc`: the address of `size` bytes.
    ///
    /// # Errors
    /// If there is not as much memory left.
    pub fn malloc(&mut self, space: &mut Addresses, size: Bytes) -> Result<u64, MemoryError> {
        let size = round_up(size.max(1), GRANULE);
        self.take(size)?;
        let at = space.take(size).inspect_err(|_| self.used -= size)?;
        self.mallocs.insert(at, size);
        Ok(at)
    }

    /// `cudaFree`: the size that was freed.
    ///
    /// # Errors
    /// If nothing begins at this address.
    pub fn free(&mut self, space: &mut Addresses, at: u64) -> Result<Bytes, MemoryError> {
        let size = self.mallocs.remove(&at).ok_or(MemoryError::Invalid)?;
        space.give(at);
        self.used -= size;
        Ok(size)
    }

    /// `cuMemAddressReserve`: the address of a range without memory.
    ///
    /// # Errors
    /// If the size is not a multiple of 2 MiB, or there are no addresses left.
    pub fn reserve(&mut self, space: &mut Addresses, size: Bytes) -> Result<u64, MemoryError> {
        Self::check_size(size)?;
        let at = space.reserve(size)?;
        self.reservations.insert(at, size);
        Ok(at)
    }

    /// `cuMemAddressFree`
    ///
    /// # Errors
    /// If this is not a whole reservation, or a part of it is mapped.
    pub fn unreserve(
        &mut self,
        space: &mut Addresses,
        at: u64,
        size: Bytes,
    ) -> Result<(), MemoryError> {
        let is_mapped = self.mappings.range(at..at + size).next().is_some();
        if is_mapped || self.reservations.get(&at) != Some(&size) {
            return Err(MemoryError::Invalid);
        }
        self.reservations.remove(&at);
        space.give(at);
        Ok(())
    }

    /// `cuMemCreate`: a handle of physical memory.
    ///
    /// # Errors
    /// If the size is not a multiple of 2 MiB, or there is not as much memory left.
    pub fn create(&mut self, size: Bytes) -> Result<u64, MemoryError> {
        Self::check_size(size)?;
        self.take(size)?;
        self.next_handle += 0x10;
        let handle = Handle { size, mappings: 0, released: false };
        self.handles.insert(self.next_handle, handle);
        Ok(self.next_handle)
    }

    /// `cuMemRelease`
    ///
    /// # Errors
    /// If there is no such handle, or it was released before.
    pub fn release(&mut self, id: u64) -> Result<(), MemoryError> {
        let handle = self.handles.get_mut(&id).filter(|handle| !handle.released);
        handle.ok_or(MemoryError::Invalid)?.released = true;
        self.drop_if_dead(id);
        Ok(())
    }

    /// `cuMemMap`: a whole handle at an address.
    ///
    /// # Errors
    /// If the size is not the handle's, or the range is not free inside one reservation.
    pub fn map(&mut self, at: u64, size: Bytes, id: u64) -> Result<(), MemoryError> {
        let handle = self.handles.get_mut(&id).filter(|handle| handle.size == size);
        let handle = handle.ok_or(MemoryError::Invalid)?;
        let end = at + size;
        let reservation = self.reservations.range(..=at).next_back();
        let is_inside = reservation.is_some_and(|(base, length)| end <= base + length);
        let before = self.mappings.range(..end).next_back();
        let is_free = before.is_none_or(|(base, (length, _))| base + length <= at);
        if !is_inside || !is_free {
            return Err(MemoryError::Invalid);
        }
        handle.mappings += 1;
        self.mappings.insert(at, (size, id));
        Ok(())
    }

    /// `cuMemUnmap`: all mappings of a range.
    ///
    /// # Errors
    /// If an end of the range lies inside a mapping.
    pub fn unmap(&mut self, at: u64, size: Bytes) -> Result<(), MemoryError> {
        let end = at + size;
        let cuts = |edge: u64| {
            let before = self.mappings.range(..edge).next_back();
            before.is_some_and(|(base, (length, _))| edge < base + length)
        };
        if cuts(at) || cuts(end) {
            return Err(MemoryError::Invalid);
        }
        let found: Vec<_> =
            self.mappings.range(at..end).map(|(&base, &(_, id))| (base, id)).collect();
        for (base, id) in found {
            self.mappings.remove(&base);
            if let Some(handle) = self.handles.get_mut(&id) {
                handle.mappings -= 1;
            }
            self.drop_if_dead(id);
        }
        Ok(())
    }

    /// The beginning and the size of what `at` lies in: an allocation or a reservation.
    pub fn range_of(&self, at: u64) -> Option<(u64, Bytes)> {
        let around = |ranges: &BTreeMap<u64, Bytes>| {
            let (&base, &size) = ranges.range(..=at).next_back()?;
            (at < base + size).then_some((base, size))
        };
        around(&self.mallocs).or_else(|| around(&self.reservations))
    }

    fn check_size(size: Bytes) -> Result<(), MemoryError> {
        if size == 0 || !size.is_multiple_of(GRANULE) {
            return Err(MemoryError::Invalid);
        }
        Ok(())
    }

    fn drop_if_dead(&mut self, id: u64) {
        let dead = |handle: &&Handle| handle.released && handle.mappings == 0;
        if let Some(handle) = self.handles.get(&id).filter(dead) {
            self.used -= handle.size;
            self.handles.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_core::units::{GIB, TIB};

    const CONTEXT: Bytes = 527 * MIB;
    const PAGE: Bytes = GRANULE;

    fn device() -> (Memory, Addresses) {
        let mut memory = Memory::new(GIB + CONTEXT);
        memory.take_beside(CONTEXT);
        (memory, Addresses::between(TIB, 2 * TIB))
    }

    #[test]
    fn addresses_of_large_allocations_go_down_and_lie_in_the_space() {
        let (mut memory, mut space) = device();
        let first = memory.malloc(&mut space, 40 * MIB).unwrap();
        let second = memory.malloc(&mut space, 40 * MIB).unwrap();
        assert!(TIB < second && second < first && first < 2 * TIB);
        assert_eq!(memory.info(), (GIB - 80 * MIB, GIB + CONTEXT));
        assert_eq!(memory.free(&mut space, second), Ok(40 * MIB));
        assert_eq!(memory.free(&mut space, second), Err(MemoryError::Invalid));
        assert_eq!((memory.info().0, memory.peak()), (GIB - 40 * MIB, 80 * MIB + CONTEXT));
    }

    #[test]
    fn capacity_is_a_limit_and_a_refusal_takes_nothing() {
        let (mut memory, mut space) = device();
        let all = memory.malloc(&mut space, GIB).unwrap();
        assert_eq!(memory.malloc(&mut space, 1), Err(MemoryError::OutOfMemory));
        assert_eq!(memory.create(PAGE), Err(MemoryError::OutOfMemory));
        memory.free(&mut space, all).unwrap();
        assert_eq!(memory.info().0, GIB);
        let mut few = Addresses::between(TIB, TIB + GIB);
        assert_eq!(memory.malloc(&mut few, GIB), Err(MemoryError::OutOfMemory));
        assert_eq!(memory.info().0, GIB);
    }

    #[test]
    fn a_released_handle_lives_until_its_last_mapping_is_gone() {
        let (mut memory, mut space) = device();
        let at = memory.reserve(&mut space, 4 * PAGE).unwrap();
        let handle = memory.create(PAGE).unwrap();
        memory.map(at, PAGE, handle).unwrap();
        memory.map(at + 2 * PAGE, PAGE, handle).unwrap();
        memory.release(handle).unwrap();
        assert_eq!(memory.release(handle), Err(MemoryError::Invalid));
        memory.unmap(at, PAGE).unwrap();
        assert_eq!(memory.info().0, GIB - PAGE);
        memory.unmap(at, 4 * PAGE).unwrap();
        assert_eq!(memory.info().0, GIB);
        memory.unreserve(&mut space, at, 4 * PAGE).unwrap();
    }

    #[test]
    fn what_breaks_the_rules_is_refused() {
        let (mut memory, mut space) = device();
        assert_eq!(memory.reserve(&mut space, 5), Err(MemoryError::Invalid));
        assert_eq!(memory.create(PAGE + 1), Err(MemoryError::Invalid));
        let at = memory.reserve(&mut space, 2 * PAGE).unwrap();
        let handle = memory.create(2 * PAGE).unwrap();
        assert_eq!(memory.map(at, PAGE, handle), Err(MemoryError::Invalid));
        assert_eq!(memory.map(at + PAGE, 2 * PAGE, handle), Err(MemoryError::Invalid));
        memory.map(at, 2 * PAGE, handle).unwrap();
        assert_eq!(memory.map(at, 2 * PAGE, handle), Err(MemoryError::Invalid));
        assert_eq!(memory.unmap(at, PAGE), Err(MemoryError::Invalid));
        assert_eq!(memory.unreserve(&mut space, at, 2 * PAGE), Err(MemoryError::Invalid));
        assert_eq!(memory.range_of(at + 5), Some((at, 2 * PAGE)));
        assert_eq!(memory.range_of(at + 2 * PAGE), None);
    }
}
