//! Makes the n-th fallible call of a device fail, to see what an allocator does then.

use super::{Device, DeviceError, DevicePtr, Fence, HandleId, MemoryInfo};
use crate::trace::StreamId;
use crate::units::Bytes;

/// A device on which chosen calls fail. Calls that only give back never fail, as on a real device.
#[derive(Debug, Clone)]
pub struct Faulty<D> {
    /// The device itself.
    pub device: D,
    calls_until_fault: Option<u64>,
    out_of_memory: bool,
}

impl<D> Faulty<D> {
    /// Fails the call number `nth` (counted from zero, over the calls that can fail), once: as if memory had run out,
    /// or with a driver error.
    pub fn new(device: D, nth: u64, out_of_memory: bool) -> Self {
        Self { device, calls_until_fault: Some(nth), out_of_memory }
    }

    /// Whether the fault has happened.
    pub fn has_failed(&self) -> bool {
        self.calls_until_fault.is_none()
    }

    fn check(&mut self, call: &'static str, requested: Bytes) -> Result<(), DeviceError> {
        let Some(left) = self.calls_until_fault else { return Ok(()) };
        self.calls_until_fault = left.checked_sub(1);
        match self.calls_until_fault {
            Some(_) => Ok(()),
            None if self.out_of_memory => Err(DeviceError::OutOfMemory { requested, free: 0 }),
            None => Err(DeviceError::Driver { call, reason: "injected fault".to_owned() }),
        }
    }
}

impl<D: Device> Device for Faulty<D> {
    fn memory_info(&self) -> MemoryInfo {
        self.device.memory_info()
    }

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        self.check("cuMemAlloc", size)?;
        self.device.malloc(size)
    }

    fn free(&mut self, at: DevicePtr) {
        self.device.free(at);
    }

    fn reserve(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        self.check("cuMemAddressReserve", size)?;
        self.device.reserve(size)
    }

    fn unreserve(&mut self, at: DevicePtr, size: Bytes) {
        self.device.unreserve(at, size);
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId, DeviceError> {
        self.check("cuMemCreate", size)?;
        self.device.create(size)
    }

    fn release(&mut self, handle: HandleId) {
        self.device.release(handle);
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<(), DeviceError> {
        self.check("cuMemMap", 0)?;
        self.device.map(at, handles)
    }

    fn set_access(&mut self, at: DevicePtr, size: Bytes) -> Result<(), DeviceError> {
        self.check("cuMemSetAccess", size)?;
        self.device.set_access(at, size)
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        self.device.unmap(at, size);
    }

    fn synchronize(&mut self) {
        self.device.synchronize();
    }

    fn fence(&mut self, stream: StreamId) -> Fence {
        self.device.fence(stream)
    }

    fn reached(&mut self, fence: Fence) -> bool {
        self.device.reached(fence)
    }

    fn stream_wait(&mut self, stream: StreamId, fence: Fence) {
        self.device.stream_wait(stream, fence);
    }

    fn drop_fence(&mut self, fence: Fence) {
        self.device.drop_fence(fence);
    }

    fn elapse(&mut self, events: u64, ns: u64) {
        self.device.elapse(events, ns);
    }
}
