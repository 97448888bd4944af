//! A device of which a client may hold only so much: `set_per_process_memory_fraction`, for any allocator.

use super::{Device, DeviceError, DevicePtr, HandleId, MemoryInfo, forward};
use gmlake_core::units::Bytes;

use std::collections::BTreeMap;

/// A device that refuses to give more than a limit, as if it had no more.
#[derive(Debug, Clone)]
pub struct Limited<D> {
    /// The device itself.
    pub device: D,
    /// Bytes that may be held; [`Bytes::MAX`]: no limit.
    pub limit: Bytes,
    held: Bytes,
    sizes: BTreeMap<DevicePtr, Bytes>,
    handles: BTreeMap<HandleId, Bytes>,
}

impl<D: Device> Limited<D> {
    /// A device without a limit, of which nothing is held.
    pub fn new(device: D) -> Self {
        let (sizes, handles) = (BTreeMap::new(), BTreeMap::new());
        Self { device, limit: Bytes::MAX, held: 0, sizes, handles }
    }

    /// Bytes of memory that are held.
    pub fn held(&self) -> Bytes {
        self.held
    }

    fn check(&self, requested: Bytes) -> Result<(), DeviceError> {
        match requested > self.limit.saturating_sub(self.held) {
            true => Err(DeviceError::OutOfMemory { requested, free: self.memory_info().free }),
            false => Ok(()),
        }
    }
}

impl<D: Device> Device for Limited<D> {
    forward!(
        reserve,
        unreserve,
        map,
        set_access,
        unmap,
        synchronize,
        fence,
        reached,
        stream_wait,
        drop_fence,
        elapse
    );

    fn memory_info(&self) -> MemoryInfo {
        let MemoryInfo { free, total } = self.device.memory_info();
        MemoryInfo { free: free.min(self.limit.saturating_sub(self.held)), total }
    }

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        self.check(size)?;
        let at = self.device.malloc(size)?;
        self.sizes.insert(at, size);
        self.held += size;
        Ok(at)
    }

    fn free(&mut self, at: DevicePtr) {
        self.held -= self.sizes.remove(&at).unwrap_or(0);
        self.device.free(at);
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId, DeviceError> {
        self.check(size)?;
        let handle = self.device.create(size)?;
        self.handles.insert(handle, size);
        self.held += size;
        Ok(handle)
    }

    fn release(&mut self, handle: HandleId) {
        self.held -= self.handles.remove(&handle).unwrap_or(0);
        self.device.release(handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SimDevice;
    use gmlake_core::units::MIB;

    #[test]
    fn no_more_than_the_limit_is_held_whichever_way_it_was_had() {
        let mut gpu = Limited::new(SimDevice::new(64 * MIB));
        gpu.limit = 6 * MIB;
        let (handle, at) = (gpu.create(2 * MIB).unwrap(), gpu.malloc(4 * MIB).unwrap());
        let free = 0;
        let requested = 2 * MIB;
        assert_eq!(gpu.malloc(requested), Err(DeviceError::OutOfMemory { requested, free }));
        assert_eq!(gpu.create(requested), Err(DeviceError::OutOfMemory { requested, free }));
        gpu.release(handle);
        assert_eq!((gpu.held(), gpu.memory_info().free), (4 * MIB, 2 * MIB));
        gpu.free(at);
        gpu.limit = Bytes::MAX;
        assert_eq!((gpu.held(), gpu.memory_info().free), (0, 64 * MIB));
        assert!(gpu.create(64 * MIB).is_ok());
    }

    #[test]
    fn a_limit_below_what_is_held_only_stops_growth() {
        let mut gpu = Limited::new(SimDevice::new(64 * MIB));
        let at = gpu.malloc(32 * MIB).unwrap();
        gpu.limit = MIB;
        assert!(gpu.create(2 * MIB).is_err());
        gpu.free(at);
        assert_eq!(gpu.memory_info().free, MIB);
    }
}
