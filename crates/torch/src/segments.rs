//! Memory that comes from the driver and goes back, as PyTorch counts and records it.
//!
//! ```text
//!   GpuAllocator ──▶ Timed<Limited<Segments<CudaDevice>>>
//!                                     │ counts pieces and bytes; where somebody listens, keeps what happened,
//!                                     └ in order, for the history
//! ```

use rustc_hash::FxHashMap;

use gmlake_allocators::device::{Device, DeviceError, DevicePtr, HandleId, forward};
use gmlake_core::program::Action;
use gmlake_core::units::Bytes;

/// A segment came or went: what happened, its first byte and its size.
pub(super) type Change = (Action, DevicePtr, Bytes);

/// A device whose segments are counted.
#[derive(Debug)]
pub struct Segments<D> {
    /// The device itself.
    pub(super) device: D,
    /// Sizes that came (positive) and went (negative) since somebody asked.
    changes: Vec<i64>,
    /// What happened, if that is wanted.
    pub(super) story: Option<Vec<Change>>,
    mallocs: FxHashMap<DevicePtr, Bytes>,
    handles: FxHashMap<HandleId, Bytes>,
    /// Calls that obtained memory, and that gave it back.
    pub(super) calls: (u64, u64),
}

impl<D: Device> Segments<D> {
    /// A device of which nothing is held.
    pub(super) fn new(device: D) -> Self {
        Self {
            device,
            changes: Vec::new(),
            story: None,
            mallocs: FxHashMap::default(),
            handles: FxHashMap::default(),
            calls: (0, 0),
        }
    }

    /// The sizes that came and went since this was asked last.
    #[inline]
    pub(super) fn take_changes(&mut self) -> Vec<i64> {
        if self.changes.is_empty() { Vec::new() } else { std::mem::take(&mut self.changes) }
    }

    fn came(&mut self, size: Bytes) {
        self.changes.push(size as i64);
        self.calls.0 += 1;
    }

    fn went(&mut self, size: Bytes) {
        self.changes.push(-(size as i64));
        self.calls.1 += 1;
    }

    fn tell(&mut self, action: Action, at: DevicePtr, size: Bytes) {
        if let Some(story) = &mut self.story {
            story.push((action, at, size));
        }
    }
}

impl<D: Device> Device for Segments<D> {
    forward!(
        memory_info,
        reserve,
        unreserve,
        set_access,
        synchronize,
        fence,
        reached,
        stream_wait,
        drop_fence,
        elapse
    );

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        let at = self.device.malloc(size)?;
        self.mallocs.insert(at, size);
        self.came(size);
        self.tell(Action::SegmentAlloc, at, size);
        Ok(at)
    }

    fn free(&mut self, at: DevicePtr) {
        let size = self.mallocs.remove(&at).unwrap_or(0);
        self.went(size);
        self.tell(Action::SegmentFree, at, size);
        self.device.free(at);
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId, DeviceError> {
        let handle = self.device.create(size)?;
        self.handles.insert(handle, size);
        self.came(size);
        Ok(handle)
    }

    fn release(&mut self, handle: HandleId) {
        let size = self.handles.remove(&handle).unwrap_or(0);
        self.went(size);
        self.device.release(handle);
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<(), DeviceError> {
        self.device.map(at, handles)?;
        if self.story.is_some() {
            let size = handles.iter().map(|handle| self.handles.get(handle).unwrap_or(&0)).sum();
            self.tell(Action::SegmentMap, at, size);
        }
        Ok(())
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        self.tell(Action::SegmentUnmap, at, size);
        self.device.unmap(at, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_allocators::device::SimDevice;
    use gmlake_core::units::MIB;

    #[test]
    fn what_comes_and_goes_is_counted_and_kept() {
        let mut gpu = Segments::new(SimDevice::new(64 * MIB));
        let at = gpu.malloc(2 * MIB).unwrap();
        gpu.story = Some(Vec::new());
        let range = gpu.reserve(8 * MIB).unwrap();
        let handles = [gpu.create(4 * MIB).unwrap(), gpu.create(4 * MIB).unwrap()];
        gpu.map_for_use(range, &handles, 8 * MIB).unwrap();
        gpu.free(at);
        gpu.unmap(range, 8 * MIB);
        handles.into_iter().for_each(|handle| gpu.release(handle));
        let mib = MIB as i64;
        assert_eq!(gpu.take_changes(), [2 * mib, 4 * mib, 4 * mib, -2 * mib, -4 * mib, -4 * mib]);
        assert!(gpu.take_changes().is_empty());
        assert_eq!(gpu.calls, (3, 3));
        let story = gpu.story.take().unwrap();
        let expected = [
            (Action::SegmentMap, range, 8 * MIB),
            (Action::SegmentFree, at, 2 * MIB),
            (Action::SegmentUnmap, range, 8 * MIB),
        ];
        assert_eq!(story, expected);
    }
}
