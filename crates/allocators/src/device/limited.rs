//! A device of which a client may hold only so much: `set_per_process_memory_fraction`, for any allocator.

use super::{
    Device, DeviceError, DevicePtr, HandleId, MemoryInfo, Result, Watch, Watched, forward,
};
use gmlake_core::units::Bytes;

/// A device that refuses to give more than a limit, as if it had no more.
#[derive(Debug, Clone)]
pub struct Limited<D, W> {
    /// The device itself, whose book says what is held.
    pub device: Watched<D, W>,
    /// Bytes that may be held; [`Bytes::MAX`]: no limit.
    pub limit: Bytes,
}

impl<D: Device, W: Watch> Limited<D, W> {
    /// A device without a limit, of which nothing is held.
    pub fn new(device: D, watch: W) -> Self {
        let mut device = Watched::new(device, watch);
        device.keep_book();
        Self { device, limit: Bytes::MAX }
    }

    fn room(&self) -> Bytes {
        self.limit.saturating_sub(self.device.held())
    }

    fn check(&self, requested: Bytes) -> Result<()> {
        match requested > self.room() {
            true => Err(DeviceError::OutOfMemory { requested, free: self.memory_info().free }),
            false => Ok(()),
        }
    }
}

impl<D: Device, W: Watch> Device for Limited<D, W> {
    forward!(free, reserve, unreserve, release, map, set_access, unmap, streams);

    fn memory_info(&self) -> MemoryInfo {
        let MemoryInfo { free, total } = self.device.memory_info();
        MemoryInfo { free: free.min(self.room()), total }
    }

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr> {
        self.check(size)?;
        self.device.malloc(size)
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId> {
        self.check(size)?;
        self.device.create(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SimDevice;
    use gmlake_core::units::MIB;

    #[test]
    fn no_more_than_the_limit_is_held_whichever_way_it_was_had() {
        let mut gpu = Limited::new(SimDevice::new(64 * MIB), ());
        gpu.limit = 6 * MIB;
        let (handle, at) = (gpu.create(2 * MIB).unwrap(), gpu.malloc(4 * MIB).unwrap());
        let free = 0;
        let requested = 2 * MIB;
        assert_eq!(gpu.malloc(requested), Err(DeviceError::OutOfMemory { requested, free }));
        assert_eq!(gpu.create(requested), Err(DeviceError::OutOfMemory { requested, free }));
        gpu.release(handle);
        assert_eq!((gpu.device.held(), gpu.memory_info().free), (4 * MIB, 2 * MIB));
        gpu.free(at);
        gpu.limit = Bytes::MAX;
        assert_eq!((gpu.device.held(), gpu.memory_info().free), (0, 64 * MIB));
        assert!(gpu.create(64 * MIB).is_ok());
    }

    #[test]
    fn a_limit_below_what_is_held_only_stops_growth() {
        let mut gpu = Limited::new(SimDevice::new(64 * MIB), ());
        let at = gpu.malloc(32 * MIB).unwrap();
        gpu.limit = MIB;
        assert!(gpu.create(2 * MIB).is_err());
        gpu.free(at);
        assert_eq!(gpu.memory_info().free, MIB);
    }
}
