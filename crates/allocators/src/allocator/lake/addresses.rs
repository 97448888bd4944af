//! Address ranges, cut out of a few long reservations: a call to reserve costs as much as mapping half a handle.

use std::collections::BTreeMap;

use crate::device::{Device, DevicePtr, Result};
use crate::holes::Holes;
use gmlake_core::units::{Bytes, GIB};

/// Addresses that are reserved at a time: address space costs nothing, so that the second one is rarely needed.
const RESERVATION: Bytes = 1024 * GIB;

/// Reservations, and the gaps in them.
#[derive(Debug, Clone, Default)]
pub(super) struct Addresses {
    /// Size by first address.
    reservations: BTreeMap<DevicePtr, Bytes>,
    /// Where nothing is mapped.
    gaps: Holes,
}

impl Addresses {
    /// Addresses for `size` bytes: the end of the last reservation, if there is room.
    pub(super) fn place(&mut self, device: &mut dyn Device, size: Bytes) -> Result<DevicePtr> {
        if let Some((at, _)) = self.gaps.iter().rev().find(|&(_, room)| room >= size) {
            return Ok(DevicePtr(at));
        }
        let room = RESERVATION.max(size);
        let at = device.reserve(room)?;
        self.reservations.insert(at, room);
        self.gaps.give(at.0, room, |_| true);
        Ok(at)
    }

    /// Something is mapped at the beginning of a gap.
    pub(super) fn take(&mut self, at: DevicePtr, size: Bytes) {
        self.gaps.take(at.0, size);
    }

    /// Whether a reservation begins here: memory on the two sides belongs to different ones.
    pub(super) fn is_border(&self, at: DevicePtr) -> bool {
        self.reservations.contains_key(&at)
    }

    /// Where the reservation begins that an address lies in.
    pub(super) fn base(&self, at: DevicePtr) -> DevicePtr {
        let (&base, _) = self.reservations.range(..=at).next_back().expect("it is reserved");
        base
    }

    /// Something was unmapped. Reservations that are empty go.
    pub(super) fn give(&mut self, device: &mut dyn Device, at: DevicePtr, size: Bytes) {
        let reservations = &self.reservations;
        self.gaps.give(at.0, size, |at| reservations.contains_key(&DevicePtr(at)));
        self.drop_empty(device);
    }

    /// Gives back reservations in which nothing is mapped.
    pub(super) fn drop_empty(&mut self, device: &mut dyn Device) {
        let gaps = &mut self.gaps;
        self.reservations.retain(|at, size| {
            let is_empty = gaps.get(at.0) == Some(*size);
            if is_empty {
                gaps.take(at.0, *size);
                device.unreserve(*at, *size);
            }
            !is_empty
        });
    }
}
