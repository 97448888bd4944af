//! How large things are: what a wrapper has to remember to know how many handles and bytes a call is about.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{DevicePtr, HandleId};
use crate::units::Bytes;

/// How many handles and bytes a call is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Handles.
    pub handles: u64,
    /// Bytes.
    pub size: Bytes,
}

/// Sizes of what a device has given out.
#[derive(Debug, Clone, Default)]
pub(super) struct Extents {
    mallocs: FxHashMap<DevicePtr, Bytes>,
    handles: Vec<Bytes>,
    /// Where each mapping begins.
    mapped: BTreeMap<DevicePtr, Bytes>,
}

impl Extents {
    pub(super) fn malloc(&mut self, at: DevicePtr, size: Bytes) {
        self.mallocs.insert(at, size);
    }

    /// Size of what is freed; nothing, if that is unknown.
    pub(super) fn free(&mut self, at: DevicePtr) -> Amount {
        Amount { handles: 1, size: self.mallocs.remove(&at).unwrap_or(0) }
    }

    pub(super) fn create(&mut self, handle: HandleId, size: Bytes) {
        let place = handle.0 as usize;
        self.handles.resize(self.handles.len().max(place + 1), 0);
        self.handles[place] = size;
    }

    pub(super) fn of(&self, handles: &[HandleId]) -> Amount {
        let size = |handle: &HandleId| self.handles.get(handle.0 as usize).copied().unwrap_or(0);
        Amount { handles: handles.len() as u64, size: handles.iter().map(size).sum() }
    }

    pub(super) fn map(&mut self, at: DevicePtr, handles: &[HandleId]) {
        let mut place = at;
        for handle in handles {
            let size = self.of(std::slice::from_ref(handle)).size;
            self.mapped.insert(place, size);
            place = place.offset(size);
        }
    }

    /// Handles mapped between `at` and `at + size`.
    pub(super) fn within(&self, at: DevicePtr, size: Bytes) -> Amount {
        let handles = self.mapped.range(at..at.offset(size)).count() as u64;
        Amount { handles, size }
    }

    pub(super) fn unmap(&mut self, at: DevicePtr, size: Bytes) -> Amount {
        let mut amount = Amount { handles: 0, size };
        while let Some((&place, _)) = self.mapped.range(at..at.offset(size)).next() {
            self.mapped.remove(&place);
            amount.handles += 1;
        }
        amount
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    #[test]
    fn handles_in_a_range_are_counted() {
        let mut extents = Extents::default();
        extents.create(HandleId(0), 2 * MIB);
        extents.create(HandleId(3), 4 * MIB);
        let at = DevicePtr(1 << 32);
        extents.map(at, &[HandleId(3), HandleId(0), HandleId(3)]);
        assert_eq!(extents.of(&[HandleId(3), HandleId(0)]), Amount { handles: 2, size: 6 * MIB });
        assert_eq!(extents.within(at.offset(4 * MIB), 6 * MIB).handles, 2);
        assert_eq!(extents.unmap(at, 6 * MIB), Amount { handles: 2, size: 6 * MIB });
        assert_eq!(extents.within(at, 10 * MIB).handles, 1);
    }

    #[test]
    fn what_is_unknown_has_no_size() {
        let mut extents = Extents::default();
        assert_eq!(extents.free(DevicePtr(8)).size, 0);
        extents.malloc(DevicePtr(8), 512);
        assert_eq!(extents.free(DevicePtr(8)), Amount { handles: 1, size: 512 });
    }
}
