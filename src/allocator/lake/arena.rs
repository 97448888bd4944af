//! The arena: the addresses at which handles are mapped first.
//!
//! One long reservation, filled from left to right, so that a new handle continues the free memory at the end of the
//! one before. Where a handle was released, a gap stays until a new one fits in. A full reservation is followed by
//! another one.

use std::collections::BTreeMap;

use crate::allocator::SlabIndex;
use crate::device::{Device, DeviceError, DevicePtr};
use crate::units::{Bytes, GIB};

/// Addresses that are reserved at a time: address space costs nothing, so that the second one is rarely needed.
const RESERVATION: Bytes = 1024 * GIB;

/// Reservations, the gaps in them, and where handles begin and end.
#[derive(Debug, Clone, Default)]
pub(super) struct Arena {
    reservations: Vec<(DevicePtr, Bytes)>,
    /// Where nothing is mapped: address to size.
    gaps: BTreeMap<DevicePtr, Bytes>,
    /// The handle at each address where one begins.
    handles: BTreeMap<DevicePtr, SlabIndex>,
}

impl Arena {
    /// Addresses for `size` bytes: the end of the last reservation, if there is room.
    ///
    /// # Errors
    /// If the driver has no more addresses.
    pub(super) fn place(
        &mut self,
        device: &mut dyn Device,
        size: Bytes,
    ) -> Result<DevicePtr, DeviceError> {
        if let Some((&at, _)) = self.gaps.iter().rev().find(|&(_, &room)| room >= size) {
            return Ok(at);
        }
        let room = RESERVATION.max(size);
        let at = device.reserve(room)?;
        self.reservations.push((at, room));
        self.gaps.insert(at, room);
        Ok(at)
    }

    /// A handle is mapped at the beginning of a gap; says who its neighbours are.
    pub(super) fn fill(
        &mut self,
        at: DevicePtr,
        size: Bytes,
    ) -> (Option<SlabIndex>, Option<SlabIndex>) {
        let room = self.gaps.remove(&at).expect("a handle is placed at the beginning of a gap");
        if room > size {
            self.gaps.insert(at.offset(size), room - size);
        }
        let right = self.handles.get(&at.offset(size)).copied();
        let is_border = |at: DevicePtr| self.reservations.iter().any(|&(base, _)| base == at);
        (self.before(at), right.filter(|_| !is_border(at.offset(size))))
    }

    /// The last handle that begins at an address or before it.
    pub(super) fn at(&self, at: DevicePtr) -> Option<SlabIndex> {
        self.handles.range(..=at).next_back().map(|(_, &handle)| handle)
    }

    /// Notes which handle begins at an address.
    pub(super) fn note(&mut self, at: DevicePtr, handle: SlabIndex) {
        self.handles.insert(at, handle);
    }

    /// The handle that ends where a gap begins.
    pub(super) fn before(&self, at: DevicePtr) -> Option<SlabIndex> {
        let is_border = self.reservations.iter().any(|&(base, _)| base == at);
        let left = self.handles.range(..at).next_back().map(|(_, &handle)| handle);
        left.filter(|_| !is_border)
    }

    /// A handle was unmapped. Reservations that are empty go.
    pub(super) fn clear(&mut self, device: &mut dyn Device, at: DevicePtr, size: Bytes) {
        self.handles.remove(&at);
        let (mut at, mut size) = (at, size);
        let is_border = |at: DevicePtr| self.reservations.iter().any(|&(base, _)| base == at);
        if !is_border(at.offset(size))
            && let Some(room) = self.gaps.remove(&at.offset(size))
        {
            size += room;
        }
        if !is_border(at)
            && let Some((&before, &room)) = self.gaps.range(..at).next_back()
            && before.offset(room) == at
        {
            self.gaps.remove(&before);
            (at, size) = (before, size + room);
        }
        self.gaps.insert(at, size);
        self.drop_empty(device);
    }

    /// Gives back reservations without a handle.
    pub(super) fn drop_empty(&mut self, device: &mut dyn Device) {
        let gaps = &mut self.gaps;
        self.reservations.retain(|&(at, size)| {
            let is_empty = gaps.get(&at) == Some(&size);
            if is_empty {
                gaps.remove(&at);
                device.unreserve(at, size);
            }
            !is_empty
        });
    }
}
