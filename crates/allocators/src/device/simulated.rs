//! A GPU without a GPU: address space, physical memory and a capacity, under the driver's rules.
//!
//! The rules are those probed on an H200: reservations, mappings and further aliases take no physical memory, `create`
//! takes exactly its size, and a released handle keeps its memory until its last mapping is gone. What a real driver
//! answers with `CUDA_ERROR_INVALID_VALUE` is a bug in the allocator, and panics here.
//!
//! Each reservation is a row of slots, one per 2 MiB; a mapped handle fills as many slots as it is long:
//!
//! ```text
//!   reservation at 0x1_0000_0000    ┌────┬────┬────┬────┬────┬────┐
//!   map(+4 MiB, [h7 (4 MiB)])       │    │    │ h7 │ ~  │    │    │      ~ = continues
//!                                   └────┴────┴────┴────┴────┴────┘
//! ```

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::fence::Queue;
use super::pages::Pages;
use super::{
    Device, DeviceError, DevicePtr, DriverAddresses, Fence, GRANULE, HandleId, MemoryInfo, Result,
};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, TIB, round_up};

/// How the simulated device chooses addresses. They matter only where an allocator breaks ties between equal blocks
/// by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AddressPolicy {
    /// As the CUDA driver hands them out to a new process ([`DriverAddresses`]).
    Driver,
    /// One counter for `malloc` and `reserve` alike: from 4 GiB upwards, advanced by size + 2 MiB, nothing used again.
    #[default]
    Ascending,
    /// The mirror image: from 128 TiB downwards.
    Descending,
    /// The k-th `malloc` gets the k-th recorded address as long as the sizes agree; from the first difference on, and
    /// for reservations, as `Ascending`.
    Recorded(VecDeque<(DevicePtr, Bytes)>),
    /// The k-th `malloc` or `reserve` gets the k-th of these addresses, those of another device, as long as the sizes
    /// agree; from the first difference on as `Ascending`.
    Answers(VecDeque<(DevicePtr, Bytes)>),
}

const LOWEST: u64 = 0x1_0000_0000;
const HIGHEST: u64 = 128 * TIB;

/// Slot of a reservation: nothing mapped, the continuation of the handle to the left, or handle number + `FIRST`.
type Slot = u32;
const EMPTY: Slot = 0;
const CONTINUES: Slot = 1;
const FIRST: Slot = 2;

#[derive(Debug, Clone)]
struct Reservation {
    size: Bytes,
    /// Grows up to the highest slot in use, so that a large reservation costs nothing.
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy)]
struct Handle {
    size: Bytes,
    mappings: u32,
    released: bool,
}

/// A simulated GPU with a given amount of memory.
#[derive(Debug, Clone)]
pub struct SimDevice {
    capacity: Bytes,
    /// What others hold besides.
    others: Bytes,
    used: Bytes,
    peak_used: Bytes,
    policy: AddressPolicy,
    next_address: u64,
    /// Those of [`AddressPolicy::Driver`].
    driver: DriverAddresses,
    mallocs: FxHashMap<DevicePtr, Bytes>,
    /// The pages that they are in, if the device takes whole ones.
    pages: Option<Pages>,
    /// Whether any of them got its address from a recording.
    has_recorded: bool,
    reservations: BTreeMap<DevicePtr, Reservation>,
    handles: Vec<Handle>,
    recycled: Vec<HandleId>,
    queue: Queue,
}

impl SimDevice {
    /// A device with `capacity` bytes of memory and ascending addresses.
    pub fn new(capacity: Bytes) -> Self {
        Self::with_policy(capacity, AddressPolicy::Ascending)
    }

    /// A device with `capacity` bytes of memory, and addresses as the policy says.
    pub fn with_policy(capacity: Bytes, policy: AddressPolicy) -> Self {
        let next_address = if policy == AddressPolicy::Descending { HIGHEST } else { LOWEST };
        Self {
            capacity,
            others: 0,
            used: 0,
            peak_used: 0,
            policy,
            next_address,
            driver: DriverAddresses::with_context(HIGHEST),
            mallocs: FxHashMap::default(),
            pages: None,
            has_recorded: false,
            reservations: BTreeMap::new(),
            handles: Vec::new(),
            recycled: Vec::new(),
            queue: Queue::default(),
        }
    }

    /// The same device, whose GPU lags this many events behind the program. A new one does all at once.
    #[must_use]
    pub fn lagging(self, events: u64) -> Self {
        Self { queue: Queue::lagging(events), ..self }
    }

    /// The same device, which says of its fences what another one said when it was asked.
    #[must_use]
    pub fn answering(self, reached: VecDeque<bool>) -> Self {
        Self { queue: Queue::answering(reached), ..self }
    }

    /// The same device, of which others hold this many bytes besides: its total is that much larger.
    #[must_use]
    pub fn beside(self, others: Bytes) -> Self {
        Self { others, ..self }
    }

    /// The same device, which packs what `malloc` hands out into pages of 2 MiB, as a driver does. A new one takes just
    /// what is asked for.
    #[must_use]
    pub fn packing(self) -> Self {
        Self { pages: Some(Pages::default()), ..self }
    }

    /// Physical memory in use, in bytes.
    pub fn used(&self) -> Bytes {
        self.used
    }

    /// The most physical memory that was ever in use, in bytes.
    pub fn peak_used(&self) -> Bytes {
        self.peak_used
    }

    /// Whether everything was given back: no memory, no reservation, no handle, no fence.
    pub fn is_pristine(&self) -> bool {
        self.used == 0
            && self.mallocs.is_empty()
            && self.reservations.is_empty()
            && self.recycled.len() == self.handles.len()
            && self.queue.is_empty()
    }

    fn take_memory(&mut self, size: Bytes) -> Result<()> {
        let free = self.capacity - self.used;
        if size > free {
            return Err(DeviceError::OutOfMemory { requested: size, free });
        }
        self.used += size;
        self.peak_used = self.peak_used.max(self.used);
        Ok(())
    }

    fn take_addresses(&mut self, size: Bytes) -> Result<DevicePtr> {
        if self.policy == AddressPolicy::Driver {
            let at = self.driver.reserve(size).map(DevicePtr);
            return at.ok_or(DeviceError::OutOfMemory { requested: size, free: 0 });
        }
        let step = round_up(size, GRANULE).saturating_add(GRANULE);
        let exhausted = DeviceError::OutOfMemory { requested: size, free: 0 };
        if let AddressPolicy::Answers(queue) = &mut self.policy {
            let answer = queue.pop_front().filter(|&(_, answered)| answered == size);
            match answer.filter(|&(at, _)| self.is_vacant(at, size)) {
                Some((at, _)) => return Ok(at),
                None => self.leave_answers(),
            }
        }
        if self.policy == AddressPolicy::Descending {
            let next = self.next_address.checked_sub(step).ok_or_else(|| exhausted.clone())?;
            self.next_address = next;
            return if next >= LOWEST { Ok(DevicePtr(next)) } else { Err(exhausted) };
        }
        self.step_over_mallocs(size);
        let at = DevicePtr(self.next_address);
        let next = self.next_address.checked_add(step).ok_or_else(|| exhausted.clone())?;
        self.next_address = next;
        Ok(at)
    }

    /// Recorded addresses may lie where ascending ones come to.
    fn step_over_mallocs(&mut self, size: Bytes) {
        if !self.has_recorded {
            return;
        }
        loop {
            let (at, end) = (self.next_address, self.next_address.saturating_add(size));
            let meets = |(base, size): &(&DevicePtr, &Bytes)| base.0 < end && at < base.0 + **size;
            let over = self.mallocs.iter().filter(meets).map(|(base, size)| base.0 + size).max();
            let Some(over) = over else { return };
            self.next_address = round_up(over, GRANULE) + GRANULE;
        }
    }

    /// Whether memory that is held lies between `at` and `at + size`.
    fn meets_malloc(&self, at: DevicePtr, size: Bytes) -> bool {
        let mut held = self.mallocs.iter();
        held.any(|(base, held)| base.0 < at.0.saturating_add(size) && at.0 < base.0 + held)
    }

    /// Whether nothing that is live lies between `at` and `at + size`.
    fn is_vacant(&self, at: DevicePtr, size: Bytes) -> bool {
        let reservation = self.reservations.range(..at.offset(size)).next_back();
        reservation.is_none_or(|(base, reservation)| base.0 + reservation.size <= at.0)
            && !self.mallocs.contains_key(&at)
    }

    /// Goes on above everything that is live.
    fn leave_answers(&mut self) {
        let reserved = self.reservations.iter().map(|(base, entry)| base.0 + entry.size);
        let allocated = self.mallocs.iter().map(|(base, size)| base.0 + size);
        let highest = reserved.chain(allocated).max().unwrap_or(0).max(LOWEST);
        self.next_address = round_up(highest, GRANULE) + GRANULE;
        self.policy = AddressPolicy::Ascending;
    }

    fn malloc_address(&mut self, size: Bytes) -> Result<DevicePtr> {
        if self.policy == AddressPolicy::Driver {
            let at = self.driver.take(size).map(DevicePtr);
            return at.ok_or(DeviceError::OutOfMemory { requested: size, free: 0 });
        }
        if let AddressPolicy::Recorded(queue) = &mut self.policy {
            let next = queue.pop_front();
            match next {
                // What was given back in the recording by now may be held here still.
                Some((at, recorded)) if recorded == size && !self.meets_malloc(at, size) => {
                    self.has_recorded = true;
                    return Ok(at);
                }
                _ => self.policy = AddressPolicy::Ascending,
            }
        }
        self.take_addresses(size)
    }

    fn give_addresses(&mut self, at: DevicePtr) {
        if self.policy == AddressPolicy::Driver {
            self.driver.give(at.0);
        }
    }

    /// The reservation that holds `at`, its base, and the slot of `at`.
    fn locate(&mut self, at: DevicePtr, size: Bytes) -> (&mut Reservation, usize) {
        let (base, reservation) = self
            .reservations
            .range_mut(..=at)
            .next_back()
            .unwrap_or_else(|| panic!("{at} is in no reservation"));
        let offset = at.0 - base.0;
        assert!(
            offset + size <= reservation.size,
            "{at} + {size} leaves the reservation at {base}"
        );
        assert!(offset.is_multiple_of(GRANULE), "{at} is not aligned to 2 MiB");
        (reservation, (offset / GRANULE) as usize)
    }

    #[inline]
    fn new_handle(&mut self, size: Bytes) -> HandleId {
        let handle = Handle { size, mappings: 0, released: false };
        match self.recycled.pop() {
            Some(id) => {
                self.handles[id.0 as usize] = handle;
                id
            }
            None => {
                self.handles.push(handle);
                HandleId(self.handles.len() as u32 - 1)
            }
        }
    }

    #[inline]
    fn drop_if_dead(&mut self, id: HandleId) {
        let handle = self.handles[id.0 as usize];
        if handle.released && handle.mappings == 0 {
            self.used -= handle.size;
            self.recycled.push(id);
        }
    }
}

impl Device for SimDevice {
    fn memory_info(&self) -> MemoryInfo {
        MemoryInfo { free: self.capacity - self.used, total: self.capacity + self.others }
    }

    #[inline]
    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr> {
        assert!(size > 0, "malloc of nothing");
        let physical = self.pages.as_ref().map_or(size, |pages| pages.lack(size));
        self.take_memory(physical)?;
        match self.malloc_address(size) {
            Ok(at) => {
                self.mallocs.insert(at, size);
                if let Some(pages) = &mut self.pages {
                    pages.take(at, size);
                }
                Ok(at)
            }
            Err(error) => {
                self.used -= physical;
                Err(error)
            }
        }
    }

    #[inline]
    fn free(&mut self, at: DevicePtr) {
        let size = self.mallocs.remove(&at).unwrap_or_else(|| panic!("free of unknown {at}"));
        self.used -= self.pages.as_mut().map_or(size, |pages| pages.give(at, size));
        self.give_addresses(at);
    }

    fn reserve(&mut self, size: Bytes) -> Result<DevicePtr> {
        assert!(size > 0 && size.is_multiple_of(GRANULE), "reserve of {size}");
        let at = self.take_addresses(size)?;
        self.reservations.insert(at, Reservation { size, slots: Vec::new() });
        Ok(at)
    }

    fn unreserve(&mut self, at: DevicePtr, size: Bytes) {
        let gone =
            self.reservations.remove(&at).unwrap_or_else(|| panic!("no reservation at {at}"));
        assert_eq!(gone.size, size, "only a whole reservation can be freed");
        assert!(gone.slots.iter().all(|&slot| slot == EMPTY), "{at} is still mapped");
        self.give_addresses(at);
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId> {
        assert!(size > 0 && size.is_multiple_of(GRANULE), "create of {size}");
        self.take_memory(size)?;
        Ok(self.new_handle(size))
    }

    #[inline]
    fn release(&mut self, handle: HandleId) {
        let entry = &mut self.handles[handle.0 as usize];
        assert!(!std::mem::replace(&mut entry.released, true), "handle {handle:?} released twice");
        self.drop_if_dead(handle);
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<()> {
        let size = handles.iter().map(|id| self.handles[id.0 as usize].size).sum();
        let (reservation, first) = self.locate(at, size);
        let end = first + (size / GRANULE) as usize;
        let mut slots = std::mem::take(&mut reservation.slots);
        slots.resize(slots.len().max(end), EMPTY);
        assert!(slots[first..end].iter().all(|&slot| slot == EMPTY), "{at} is already mapped");
        let mut slot = first;
        for id in handles {
            let handle = &mut self.handles[id.0 as usize];
            assert!(!handle.released, "released handle {id:?} mapped");
            handle.mappings += 1;
            let length = (handle.size / GRANULE) as usize;
            slots[slot..slot + length].fill(CONTINUES);
            slots[slot] = id.0 + FIRST;
            slot += length;
        }
        self.locate(at, size).0.slots = slots;
        Ok(())
    }

    fn set_access(&mut self, at: DevicePtr, size: Bytes) -> Result<()> {
        let (reservation, first) = self.locate(at, size);
        let end = first + (size / GRANULE) as usize;
        let mapped = reservation.slots.get(first..end);
        let whole =
            mapped.is_some_and(|slots| slots.first().is_some_and(|&slot| slot != CONTINUES));
        assert!(whole, "set_access to a range that is not mapped whole, at {at}");
        Ok(())
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        let (reservation, first) = self.locate(at, size);
        let end = first + (size / GRANULE) as usize;
        let mut slots = std::mem::take(&mut reservation.slots);
        assert!(end <= slots.len(), "unmap of unmapped {at}");
        assert_ne!(slots[first], CONTINUES, "unmap from the middle of a handle at {at}");
        assert_ne!(slots.get(end), Some(&CONTINUES), "unmap up to the middle of a handle at {at}");
        for slot in &mut slots[first..end] {
            if *slot >= FIRST {
                let id = HandleId(*slot - FIRST);
                self.handles[id.0 as usize].mappings -= 1;
                self.drop_if_dead(id);
            }
            *slot = EMPTY;
        }
        self.locate(at, size).0.slots = slots;
    }

    fn create_each(
        &mut self,
        size: Bytes,
        count: usize,
        handles: &mut Vec<HandleId>,
    ) -> Result<()> {
        assert!(size > 0 && size.is_multiple_of(GRANULE), "create of {size}");
        let fits = ((self.capacity - self.used) / size).min(count as u64) as usize;
        if fits > 0 {
            self.take_memory(size * fits as u64)?;
        }
        handles.extend((0..fits).map(|_| self.new_handle(size)));
        if fits < count { self.take_memory(size) } else { Ok(()) }
    }

    fn set_access_each(&mut self, at: DevicePtr, size: Bytes, count: usize) -> Result<()> {
        self.set_access(at, size * count as u64)
    }

    fn synchronize(&mut self) {
        self.queue.finish();
    }

    fn fence(&mut self, _stream: StreamId) -> Fence {
        self.queue.record()
    }

    fn reached(&mut self, fence: Fence) -> bool {
        self.queue.reached(fence)
    }

    fn stream_wait(&mut self, _stream: StreamId, fence: Fence) {
        self.queue.assert_known(fence);
    }

    fn drop_fence(&mut self, fence: Fence) {
        self.queue.forget(fence);
    }

    fn elapse(&mut self, events: u64, _ns: u64) {
        self.queue.elapse(events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_core::units::MIB;

    #[test]
    fn memory_of_a_released_handle_lives_as_long_as_its_last_mapping() {
        let mut gpu = SimDevice::new(8 * MIB);
        let at = gpu.reserve(8 * MIB).unwrap();
        let handle = gpu.create(4 * MIB).unwrap();
        gpu.map(at, &[handle]).unwrap();
        gpu.map(at.offset(4 * MIB), &[handle]).unwrap();
        gpu.set_access(at, 8 * MIB).unwrap();
        gpu.release(handle);
        gpu.unmap(at, 4 * MIB);
        assert_eq!(gpu.used(), 4 * MIB);
        gpu.unmap(at.offset(4 * MIB), 4 * MIB);
        gpu.unreserve(at, 8 * MIB);
        assert!(gpu.is_pristine());
    }

    #[test]
    fn out_of_memory_changes_nothing() {
        let mut gpu = SimDevice::new(4 * MIB);
        let first = gpu.malloc(2 * MIB).unwrap();
        let refused = gpu.create(4 * MIB);
        assert_eq!(refused, Err(DeviceError::OutOfMemory { requested: 4 * MIB, free: 2 * MIB }));
        assert_eq!(gpu.used(), 2 * MIB);
        gpu.free(first);
        assert!(gpu.is_pristine());
        assert_eq!(gpu.peak_used(), 2 * MIB);
    }

    #[test]
    fn calls_made_at_once_are_as_calls_made_one_by_one() {
        let (mut at_once, mut one_by_one) = (SimDevice::new(7 * MIB), SimDevice::new(7 * MIB));
        let (mut some, mut same) = (Vec::new(), Vec::new());
        let outcome = at_once.create_each(2 * MIB, 5, &mut some);
        let refused = (0..5)
            .try_for_each(|_| one_by_one.create(2 * MIB).map(|handle| same.push(handle)))
            .unwrap_err();
        assert_eq!((outcome, &some), (Err(refused), &same));
        assert_eq!(at_once.used(), one_by_one.used());
        at_once.release_each(&some);
        assert!(at_once.is_pristine());
    }

    #[test]
    fn addresses_follow_the_policy() {
        let mut up = SimDevice::new(TIB);
        assert_eq!(up.malloc(4 * MIB).unwrap(), DevicePtr(0x1_0000_0000));
        assert_eq!(up.reserve(2 * MIB).unwrap(), DevicePtr(0x1_0060_0000));
        let mut down = SimDevice::with_policy(TIB, AddressPolicy::Descending);
        assert!(down.malloc(MIB).unwrap() > down.malloc(MIB).unwrap());
        let mut driver = SimDevice::with_policy(TIB, AddressPolicy::Driver);
        let large = driver.malloc(60 * MIB).unwrap();
        let next = driver.malloc(32 * MIB).unwrap();
        assert_eq!(next.offset(32 * MIB), large);
        driver.free(large);
        assert_eq!(driver.malloc(30 * MIB).unwrap(), large.offset(32 * MIB));
        assert_eq!(driver.reserve(64 * MIB).unwrap(), DevicePtr(0x3_0200_0000));
        let recorded = [(DevicePtr(512), MIB), (DevicePtr(4096), 2 * MIB)];
        let mut replay = SimDevice::with_policy(TIB, AddressPolicy::Recorded(recorded.into()));
        assert_eq!(replay.malloc(MIB).unwrap(), DevicePtr(512));
        assert_eq!(replay.malloc(MIB).unwrap(), DevicePtr(0x1_0000_0000));
    }

    #[test]
    fn recorded_addresses_end_where_they_meet_what_is_still_held() {
        let first = DevicePtr(LOWEST + 64 * MIB);
        let recorded = [(first, 8 * MIB), (first.offset(4 * MIB), 2 * MIB)];
        let policy = AddressPolicy::Recorded(recorded.into());
        let mut gpu = SimDevice::with_policy(TIB, policy);
        assert_eq!(gpu.malloc(8 * MIB).unwrap(), first);
        let second = gpu.malloc(2 * MIB).unwrap();
        assert!(second.0 + 2 * MIB <= first.0 || first.0 + 8 * MIB <= second.0, "{second}");
    }

    #[test]
    fn ascending_addresses_step_over_recorded_ones() {
        let low = DevicePtr(LOWEST + MIB);
        let policy = AddressPolicy::Recorded([(low, 6 * MIB)].into());
        let mut gpu = SimDevice::with_policy(TIB, policy);
        assert_eq!(gpu.malloc(6 * MIB).unwrap(), low);
        assert_eq!(gpu.malloc(2 * MIB).unwrap(), DevicePtr(LOWEST + 10 * MIB));
        gpu.free(low);
    }

    #[test]
    #[should_panic(expected = "already mapped")]
    fn mapping_over_a_mapping_is_a_bug() {
        let mut gpu = SimDevice::new(8 * MIB);
        let at = gpu.reserve(4 * MIB).unwrap();
        let handles = [gpu.create(2 * MIB).unwrap(), gpu.create(4 * MIB).unwrap()];
        gpu.map(at, &handles[..1]).unwrap();
        let _ = gpu.map(at, &handles[1..]);
    }
}
