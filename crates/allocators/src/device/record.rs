//! A device's own books, kept by somebody else: what an allocator holds, and where each byte really is.
//!
//! [`Record`] notes every call that went through in plain ordered maps. All physical memory lies on one line: each
//! `cuMemAlloc` and each `cuMemCreate` gets the next bytes of it, which are never used again. So any virtual range can
//! be translated, and handles that came one after the other and are mapped so are one piece:
//!
//! ```text
//!   virtual      ┌──── at ─────────────────────────┐            translate(at, 10 MiB) =
//!                │  h7 (4 MiB)  │ h8 │  h3 (4 MiB)  │              [20..26 MiB, 8..12 MiB]
//!                └──────────────┴────┴──────────────┘
//!   physical      20..24 MiB   24..26    8..12 MiB
//! ```
//!
//! Two ranges share memory exactly when their translations overlap, whatever their addresses are. The record also
//! guards ranges that are in somebody's hands: a call that would take the memory from under one panics.

use std::collections::{BTreeMap, BTreeSet};

use super::call::{Call, DriverCall};
use super::watched::{Lent, Watch, Watched};
use super::{Device, DevicePtr, Fence, GRANULE, HandleId, LastUse, Order};
use gmlake_core::units::Bytes;

/// A piece of physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// First byte on the line of all memory that ever came from the device.
    pub start: u64,
    /// Length in bytes.
    pub size: Bytes,
}

impl Extent {
    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        self.start + self.size
    }
}

/// Who may still touch a guarded range.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Guard {
    /// A client.
    Held,
    /// Streams, unless the device has been synchronised more often than this; and if it is known which, with the
    /// moments of their last use, unless they are known to be done.
    Pending(u64, Vec<LastUse>),
}

#[derive(Debug, Clone, Copy)]
struct Handle {
    start: u64,
    size: Bytes,
    mappings: u32,
    is_released: bool,
}

#[derive(Debug, Clone, Copy)]
struct Mapping {
    handle: HandleId,
    start: u64,
    size: Bytes,
    is_accessible: bool,
}

/// All that went through to a device and is still there.
#[derive(Debug, Clone, Default)]
pub struct Record {
    mallocs: BTreeMap<DevicePtr, (u64, Bytes)>,
    reservations: BTreeMap<DevicePtr, Bytes>,
    handles: BTreeMap<HandleId, Handle>,
    mappings: BTreeMap<DevicePtr, Mapping>,
    guards: BTreeMap<DevicePtr, (Bytes, Guard)>,
    /// The end of the line.
    end: u64,
    physical: Bytes,
    synchronisations: u64,
    order: Order,
    /// Ranges of addresses that were freed, with the streams that used them last, and when.
    freed: BTreeMap<DevicePtr, (Bytes, Vec<LastUse>)>,
}

impl Record {
    /// The device, with every call noted here.
    pub fn watch<'a>(&'a mut self, device: &'a mut dyn Device) -> Watched<Lent<'a>, &'a mut Self> {
        Watched::new(Lent { device }, self)
    }

    /// Physical memory held, in bytes: `cuMemAlloc`s, and handles that are not released or still mapped somewhere.
    pub fn physical(&self) -> Bytes {
        self.physical
    }

    /// The same from scratch, for comparison.
    pub fn recount_physical(&self) -> Bytes {
        let mallocs: Bytes = self.mallocs.values().map(|&(_, size)| size).sum();
        mallocs + self.handles.values().map(|handle| handle.size).sum::<Bytes>()
    }

    /// The memory that is held: where each piece of it begins and ends.
    pub fn memory(&self) -> BTreeMap<u64, u64> {
        let malloced = self.mallocs.values().map(|&(start, size)| (start, start + size));
        let created =
            self.handles.values().map(|handle| (handle.start, handle.start + handle.size));
        malloced.chain(created).collect()
    }

    /// Whether nothing is held: no memory, no addresses, no fence.
    pub fn is_empty(&self) -> bool {
        let has_memory = !self.mallocs.is_empty() || !self.handles.is_empty();
        !has_memory && self.reservations.is_empty() && self.order.is_empty()
    }

    /// Ranges of addresses that were obtained and begin up to `at`: the last of each kind.
    pub(crate) fn ranges_until(
        &self,
        at: DevicePtr,
    ) -> impl Iterator<Item = (DevicePtr, Bytes)> + use<> {
        let malloced =
            self.mallocs.range(..=at).next_back().map(|(&base, &(_, size))| (base, size));
        let reserved =
            self.reservations.range(..=at).next_back().map(|(&base, &size)| (base, size));
        malloced.into_iter().chain(reserved)
    }

    /// Ranges of addresses with memory of their own: of each object, the first address.
    pub(crate) fn backed(&self) -> impl Iterator<Item = (DevicePtr, Bytes)> {
        let mut shown = BTreeSet::new();
        let malloced = self.mallocs.iter().map(|(&base, &(_, size))| (base, size));
        let mapped = self.mappings.iter().filter(move |(_, mapping)| shown.insert(mapping.handle));
        malloced.chain(mapped.map(|(&base, mapping)| (base, mapping.size)))
    }

    /// What has happened before what.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// A range was freed that streams had used until then: its mapping may only go when they are done.
    pub fn note_freed(&mut self, at: DevicePtr, size: Bytes, uses: Vec<LastUse>) {
        self.freed.insert(at, (size, uses));
    }

    /// A range is in use again.
    pub fn note_reused(&mut self, at: DevicePtr, size: Bytes) {
        // What remains of a longer range is forgotten with it: fewer checks, and none that is wrong.
        while let Some((&inside, _)) = self.freed.range(at..at.offset(size)).next() {
            self.freed.remove(&inside);
        }
    }

    fn assert_done(&mut self, call: &str, at: DevicePtr, size: Bytes) {
        for (&place, (_, uses)) in self.freed.range(at..at.offset(size)) {
            for &(stream, moment) in uses {
                let is_done = self.order.has_happened(stream, moment);
                assert!(is_done, "{call} of {at} + {size}: {stream:?} may still be using {place}");
            }
        }
        self.note_reused(at, size);
    }

    /// How often the device was synchronised.
    pub fn synchronisations(&self) -> u64 {
        self.synchronisations
    }

    /// The memory behind a virtual range, in order.
    ///
    /// # Errors
    /// Names the first address that has no memory, or no access.
    pub fn translate(&self, at: DevicePtr, size: Bytes) -> Result<Vec<Extent>, String> {
        if let Some((&base, &(start, whole))) = self.mallocs.range(..=at).next_back()
            && at.0 < base.0 + whole
        {
            let offset = at.0 - base.0;
            return match offset + size <= whole {
                true => Ok(vec![Extent { start: start + offset, size }]),
                false => {
                    Err(format!("{at} + {size} leaves the {whole} bytes of cuMemAlloc {base}"))
                }
            };
        }
        let mut extents: Vec<Extent> = Vec::new();
        let (mut cursor, end) = (at, at.offset(size));
        let first = self.mappings.range(..=at).next_back().map_or(at, |(&base, _)| base);
        for (&base, mapping) in self.mappings.range(first..end) {
            if base > cursor || base.offset(mapping.size) <= cursor {
                break;
            }
            if !mapping.is_accessible {
                return Err(format!("no access was set at {cursor}"));
            }
            let offset = cursor.0 - base.0;
            let (start, size) = (mapping.start + offset, mapping.size - offset);
            let size = size.min(end.0 - cursor.0);
            match extents.last_mut().filter(|last| last.end() == start) {
                Some(last) => last.size += size,
                None => extents.push(Extent { start, size }),
            }
            cursor = cursor.offset(size);
        }
        if cursor < end {
            return Err(format!("nothing is mapped at {cursor}"));
        }
        Ok(extents)
    }

    /// Guards a range that was handed out.
    ///
    /// # Panics
    /// If it overlaps another one.
    pub fn guard(&mut self, at: DevicePtr, size: Bytes) {
        if let Some((other, length)) = self.guarded(at, size, |_| true) {
            panic!("{at} + {size} was handed out over {other} + {length}, which is in use");
        }
        self.guards.insert(at, (size, Guard::Held));
    }

    /// From now on only streams use the range, and none once the device has been synchronised, or all of these are
    /// known to be done with what they had queued at these moments. `uses` is empty if they are not known.
    ///
    /// # Panics
    /// If it is not guarded.
    pub fn guard_pending(&mut self, at: DevicePtr, uses: Vec<LastUse>) {
        let synchronisations = self.synchronisations;
        let (_, guard) = self.guards.get_mut(&at).unwrap_or_else(|| panic!("{at} is not guarded"));
        *guard = Guard::Pending(synchronisations, uses);
    }

    /// The range is no longer used.
    ///
    /// # Panics
    /// If it is not guarded.
    pub fn unguard(&mut self, at: DevicePtr) {
        self.guards.remove(&at).unwrap_or_else(|| panic!("{at} is not guarded"));
    }

    /// Whether a range waits only for streams, and the device has been synchronised since.
    pub fn is_settled(&self, at: DevicePtr) -> bool {
        self.guards.get(&at).is_some_and(|(_, guard)| !self.is_in_use(guard))
    }

    fn is_in_use(&self, guard: &Guard) -> bool {
        let has_happened = |&(stream, moment): &LastUse| self.order.has_happened(stream, moment);
        match guard {
            Guard::Held => true,
            Guard::Pending(since, uses) => {
                let are_done = !uses.is_empty() && uses.iter().all(has_happened);
                self.synchronisations == *since && !are_done
            }
        }
    }

    /// The last guarded range that overlaps this one. Guarded ranges never overlap each other, so only settled ones
    /// can hide another.
    fn guarded(
        &self,
        at: DevicePtr,
        size: Bytes,
        counts: impl Fn(&Guard) -> bool,
    ) -> Option<(DevicePtr, Bytes)> {
        self.guards
            .range(..at.offset(size))
            .rev()
            .take_while(|&(&base, &(length, _))| base.offset(length) > at)
            .find(|&(_, (_, guard))| counts(guard))
            .map(|(&base, &(length, _))| (base, length))
    }

    fn assert_unused(&self, call: &str, at: DevicePtr, size: Bytes) {
        if let Some((used, length)) = self.guarded(at, size, |guard| self.is_in_use(guard)) {
            panic!("{call} of {at} + {size} takes the memory from under {used} + {length}");
        }
    }

    fn assert_new_addresses(&self, at: DevicePtr, size: Bytes) {
        let end = at.offset(size);
        let reserved = self.reservations.range(..end).next_back().map(|(b, &s)| b.offset(s));
        let malloced = self.mallocs.range(..end).next_back().map(|(b, &(_, s))| b.offset(s));
        for other_end in [reserved, malloced].into_iter().flatten() {
            assert!(other_end <= at, "the device gave out {at} + {size}, which is taken");
        }
    }

    /// The next bytes of the line.
    fn next(&mut self, size: Bytes) -> u64 {
        self.physical += size;
        self.end += size;
        self.end - size
    }

    fn handle(&mut self, id: HandleId) -> &mut Handle {
        self.handles.get_mut(&id).unwrap_or_else(|| panic!("{id:?} is not held"))
    }

    fn forget_if_dead(&mut self, id: HandleId) {
        let handle = *self.handle(id);
        if handle.is_released && handle.mappings == 0 {
            self.physical -= handle.size;
            self.handles.remove(&id);
        }
    }

    fn create(&mut self, id: HandleId, size: Bytes) {
        let start = self.next(size);
        let handle = Handle { start, size, mappings: 0, is_released: false };
        let old = self.handles.insert(id, handle);
        assert!(old.is_none(), "the device gave out {id:?}, which is taken");
    }

    fn release(&mut self, handle: HandleId) {
        let entry = self.handle(handle);
        assert!(!std::mem::replace(&mut entry.is_released, true), "{handle:?} released twice");
        self.forget_if_dead(handle);
    }

    fn check_map(&mut self, at: DevicePtr, handles: &[HandleId]) {
        let size = handles.iter().map(|&id| self.handle(id).size).sum();
        let end = at.offset(size);
        let inside = self.reservations.range(..=at).next_back();
        let inside = inside.is_some_and(|(base, &length)| end <= base.offset(length));
        assert!(inside && at.0.is_multiple_of(GRANULE), "cuMemMap of {at} + {size}: not reserved");
        let before = self.mappings.range(..end).next_back();
        let free = before.is_none_or(|(base, mapping)| base.offset(mapping.size) <= at);
        assert!(free, "cuMemMap of {at} + {size} over {before:?}");
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        self.assert_unused("cuMemUnmap", at, size);
        self.assert_done("cuMemUnmap", at, size);
        for (base, mapping) in self.whole_mappings("cuMemUnmap", at, size) {
            self.mappings.remove(&base);
            self.handle(mapping.handle).mappings -= 1;
            self.forget_if_dead(mapping.handle);
        }
    }

    fn note_map(&mut self, at: DevicePtr, handles: &[HandleId]) {
        let mut cursor = at;
        for &handle in handles {
            let entry = self.handle(handle);
            assert!(!entry.is_released, "{handle:?} was released before it was mapped");
            entry.mappings += 1;
            let (start, size) = (entry.start, entry.size);
            self.mappings.insert(cursor, Mapping { handle, start, size, is_accessible: false });
            cursor = cursor.offset(size);
        }
    }

    /// Sizes of the mappings that make up a range, which must begin and end with one.
    fn whole_mappings(&self, call: &str, at: DevicePtr, size: Bytes) -> Vec<(DevicePtr, Mapping)> {
        let end = at.offset(size);
        let inside: Vec<_> = self.mappings.range(at..end).map(|(&a, &m)| (a, m)).collect();
        let mut cursor = at;
        for &(base, mapping) in &inside {
            assert_eq!(base, cursor, "{call} of {at} + {size}: nothing is mapped at {cursor}");
            cursor = base.offset(mapping.size);
        }
        assert_eq!(cursor, end, "{call} of {at} + {size} does not cover whole mappings");
        inside
    }
}

impl Watch for Record {
    /// What a call takes away must not be in use.
    fn before(&mut self, call: &DriverCall<'_>) {
        let (at, size) = (call.at, call.amount.size);
        match call.call {
            Call::MemFree => {
                let entry = self.mallocs.remove(&at);
                let (_, size) =
                    entry.unwrap_or_else(|| panic!("cuMemFree of {at}, which is not held"));
                self.assert_unused("cuMemFree", at, size);
                // The call itself waits for the GPU.
                self.note_reused(at, size);
                self.physical -= size;
            }
            Call::AddressFree => {
                let known = self.reservations.remove(&at);
                assert_eq!(known, Some(size), "cuMemAddressFree of {at} + {size}");
                let mapped = self.mappings.range(at..at.offset(size)).next();
                assert!(mapped.is_none(), "cuMemAddressFree of {at} with {mapped:?} in it");
            }
            Call::Release => call.handles.iter().for_each(|&handle| self.release(handle)),
            Call::Map => self.check_map(at, call.handles),
            Call::SetAccess => drop(self.whole_mappings("cuMemSetAccess", at, size)),
            Call::Unmap => self.unmap(at, size),
            Call::Synchronize => {
                self.synchronisations += 1;
                self.order.synchronize();
            }
            Call::StreamWait => {
                if let Some((stream, fence)) = call.stream.zip(call.fence) {
                    self.order.wait(stream, fence);
                }
            }
            _ => {}
        }
    }

    fn after(&mut self, call: &DriverCall<'_>) {
        let (at, size) = (call.at, call.amount.size);
        match call.call {
            _ if !call.is_done() => {}
            Call::MemAlloc => {
                self.assert_new_addresses(at, size);
                let start = self.next(size);
                self.mallocs.insert(at, (start, size));
            }
            Call::AddressReserve => {
                self.assert_new_addresses(at, size);
                self.reservations.insert(at, size);
            }
            Call::Create => call.handles.iter().for_each(|&handle| self.create(handle, size)),
            Call::Map => self.note_map(at, call.handles),
            Call::SetAccess => {
                for (_, mapping) in self.mappings.range_mut(at..at.offset(size)) {
                    mapping.is_accessible = true;
                }
            }
            Call::EventRecord => {
                if let Some((fence, stream)) = call.fence.zip(call.stream) {
                    self.order.record(fence, stream);
                }
            }
            Call::EventQuery if call.reached => {
                call.fence.into_iter().for_each(|fence| self.order.reached(fence));
            }
            _ => {}
        }
    }

    fn dropped(&mut self, fence: Fence) {
        self.order.forget(fence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SimDevice;
    use gmlake_core::units::MIB;

    /// Two aliases of one handle, in the two halves of one reservation.
    fn aliases(record: &mut Record, gpu: &mut SimDevice) -> (DevicePtr, HandleId) {
        let mut watched = record.watch(gpu);
        let at = watched.reserve(4 * MIB).unwrap();
        let handle = watched.create(2 * MIB).unwrap();
        watched.map(at, &[handle]).unwrap();
        watched.map(at.offset(2 * MIB), &[handle]).unwrap();
        (at, handle)
    }

    #[test]
    fn aliases_translate_to_the_same_memory_once_access_is_set() {
        let (mut record, mut gpu) = (Record::default(), SimDevice::new(8 * MIB));
        let (at, _) = aliases(&mut record, &mut gpu);
        assert!(record.translate(at, 1).unwrap_err().contains("no access"));
        record.watch(&mut gpu).set_access(at, 4 * MIB).unwrap();
        let extents = record.translate(at.offset(MIB), 2 * MIB).unwrap();
        assert_eq!(extents, [MIB, 0].map(|start| Extent { start, size: MIB }));
        assert!(record.translate(at, 4 * MIB + 1).unwrap_err().contains("nothing is mapped"));
        assert_eq!((record.physical(), record.recount_physical()), (2 * MIB, 2 * MIB));
    }

    #[test]
    fn memory_lives_as_long_as_its_handle_or_a_mapping() {
        let (mut record, mut gpu) = (Record::default(), SimDevice::new(8 * MIB));
        let (at, handle) = aliases(&mut record, &mut gpu);
        record.watch(&mut gpu).release(handle);
        record.watch(&mut gpu).unmap(at, 2 * MIB);
        assert_eq!(record.physical(), 2 * MIB);
        record.watch(&mut gpu).unmap(at.offset(2 * MIB), 2 * MIB);
        assert_eq!((record.physical(), gpu.used()), (0, 0));
        record.watch(&mut gpu).unreserve(at, 4 * MIB);
        assert!(record.is_empty() && gpu.is_pristine());
    }

    #[test]
    #[should_panic(expected = "from under")]
    fn unmapping_what_is_held_is_noticed() {
        let (mut record, mut gpu) = (Record::default(), SimDevice::new(8 * MIB));
        let (at, _) = aliases(&mut record, &mut gpu);
        record.guard(at.offset(MIB), 512);
        record.watch(&mut gpu).unmap(at, 4 * MIB);
    }

    #[test]
    #[should_panic(expected = "from under")]
    fn freeing_what_a_stream_uses_is_noticed() {
        let (mut record, mut gpu) = (Record::default(), SimDevice::new(8 * MIB));
        let at = record.watch(&mut gpu).malloc(MIB).unwrap();
        record.guard(at, MIB);
        record.watch(&mut gpu).synchronize();
        record.guard_pending(at, Vec::new());
        record.watch(&mut gpu).free(at);
    }

    #[test]
    fn synchronising_settles_what_was_pending() {
        let (mut record, mut gpu) = (Record::default(), SimDevice::new(8 * MIB));
        let at = record.watch(&mut gpu).malloc(MIB).unwrap();
        record.guard(at, MIB);
        record.guard_pending(at, Vec::new());
        assert!(!record.is_settled(at));
        record.watch(&mut gpu).synchronize();
        assert!(record.is_settled(at));
        record.watch(&mut gpu).free(at);
        assert!(gpu.is_pristine());
    }

    #[test]
    #[should_panic(expected = "nothing is mapped at")]
    fn access_to_a_range_with_a_hole_is_a_bug() {
        let (mut record, mut gpu) = (Record::default(), SimDevice::new(8 * MIB));
        let mut watched = record.watch(&mut gpu);
        let at = watched.reserve(6 * MIB).unwrap();
        let handles = [watched.create(2 * MIB).unwrap(), watched.create(2 * MIB).unwrap()];
        watched.map(at, &handles[..1]).unwrap();
        watched.map(at.offset(4 * MIB), &handles[1..]).unwrap();
        let _ = watched.set_access(at, 6 * MIB);
    }
}
