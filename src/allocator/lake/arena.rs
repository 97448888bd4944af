//! The arena: the addresses at which handles are mapped first.
//!
//! It is filled from left to right, so that a new handle continues the free memory at the end of the one before. Where
//! a handle was released, a gap stays until a new one fits in.

use std::collections::BTreeMap;

use super::addresses::Addresses;
use crate::allocator::SlabIndex;
use crate::device::{Device, DevicePtr};
use crate::units::Bytes;

/// Addresses, and where handles begin.
#[derive(Debug, Clone, Default)]
pub(super) struct Arena {
    pub(super) addresses: Addresses,
    /// The handle at each address where one begins.
    handles: BTreeMap<DevicePtr, SlabIndex>,
}

impl Arena {
    /// A handle is mapped at the beginning of a gap; says who its neighbours are.
    pub(super) fn fill(
        &mut self,
        at: DevicePtr,
        size: Bytes,
    ) -> (Option<SlabIndex>, Option<SlabIndex>) {
        self.addresses.take(at, size);
        let end = at.offset(size);
        let right = self.handles.get(&end).copied();
        (self.before(at), right.filter(|_| !self.addresses.is_border(end)))
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
        let left = self.handles.range(..at).next_back().map(|(_, &handle)| handle);
        left.filter(|_| !self.addresses.is_border(at))
    }

    /// A handle was unmapped.
    pub(super) fn clear(&mut self, device: &mut dyn Device, at: DevicePtr, size: Bytes) {
        self.handles.remove(&at);
        self.addresses.give(device, at, size);
    }
}
