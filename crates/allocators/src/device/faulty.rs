//! Makes the n-th fallible call of a device fail, to see what an allocator does then.

use super::{Device, DeviceError, DevicePtr, HandleId, Result, forward};
use gmlake_core::units::Bytes;

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

    fn check(&mut self, call: &'static str, requested: Bytes) -> Result<()> {
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
    forward!(memory_info, free, unreserve, release, unmap, streams);

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr> {
        self.check("cuMemAlloc", size)?;
        self.device.malloc(size)
    }

    fn reserve(&mut self, size: Bytes) -> Result<DevicePtr> {
        self.check("cuMemAddressReserve", size)?;
        self.device.reserve(size)
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId> {
        self.check("cuMemCreate", size)?;
        self.device.create(size)
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<()> {
        self.check("cuMemMap", 0)?;
        self.device.map(at, handles)
    }

    fn set_access(&mut self, at: DevicePtr, size: Bytes) -> Result<()> {
        self.check("cuMemSetAccess", size)?;
        self.device.set_access(at, size)
    }
}
