//! A real GPU behind the device port.
//!
//! The device remembers all that it has given out, and gives everything back when it goes, whatever happened before.
//! Calls that cannot return an error keep the first one: look at [`CudaDevice::first_error`] after each request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::driver::{self, DriverError, Ordinal, PhysicalHandle, Stream};
use super::gpu::Gpu;
use super::order::Order;
use gmlake_allocators::device::{Device, DeviceError, DevicePtr, Fence, HandleId, MemoryInfo};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// What is given out when the driver has none; it is never reached. The failure is kept as the first error.
const NO_FENCE: Fence = Fence(u32::MAX);

#[derive(Debug, Clone, Copy)]
struct Handle {
    physical: PhysicalHandle,
    size: Bytes,
}

/// A GPU, and all that was obtained from it.
#[derive(Debug)]
pub struct CudaDevice {
    gpu: Gpu,
    /// The GPU itself, and those that may use its mapped memory.
    users: Vec<Ordinal>,
    handles: Vec<Option<Handle>>,
    vacant: Vec<HandleId>,
    mallocs: BTreeSet<DevicePtr>,
    reservations: BTreeMap<DevicePtr, Bytes>,
    mappings: BTreeMap<DevicePtr, Bytes>,
    order: Order,
    first_error: Option<DriverError>,
    synchronizations: Arc<AtomicU64>,
}

impl CudaDevice {
    /// Holds nothing of the GPU yet.
    pub fn new(gpu: Gpu) -> Self {
        Self {
            users: vec![gpu.ordinal()],
            gpu,
            handles: Vec::new(),
            vacant: Vec::new(),
            mallocs: BTreeSet::new(),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            order: Order::default(),
            first_error: None,
            synchronizations: Arc::default(),
        }
    }

    /// The first failure of a call that could not return it.
    #[inline]
    pub fn first_error(&self) -> Option<&DriverError> {
        self.first_error.as_ref()
    }

    /// The same, for those who go on after it: the next failure will be the first again.
    pub fn take_error(&mut self) -> Option<DriverError> {
        self.first_error.take()
    }

    /// Lets another GPU use what is mapped here, now and later, if the hardware can do that. Memory from
    /// [`Device::malloc`] is opened by other means (`cudaDeviceEnablePeerAccess`), which mapped memory ignores.
    pub fn add_peer(&mut self, peer: &Gpu) -> Result<(), DriverError> {
        let (here, there) = (self.gpu.ordinal(), peer.ordinal());
        if self.users.contains(&there) || !driver::can_access_peer(there, here)? {
            return Ok(());
        }
        self.users.push(there);
        let mut mappings = self.mappings.iter();
        mappings.try_for_each(|(at, &size)| driver::set_access(&[there], at.0, size))
    }

    /// Lets a stream's number mean a stream that the program owns, by its handle with the driver. A number that was
    /// not registered gets a stream of its own.
    pub fn register_stream(&mut self, id: StreamId, handle: u64) {
        self.order.register(id, Stream::from_raw(handle));
    }

    /// Counts the calls of [`Device::synchronize`], for those who must know that all frees are complete.
    pub fn synchronizations(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.synchronizations)
    }

    /// Gives everything back.
    ///
    /// # Errors
    /// The first failure, after all has been tried.
    pub fn close(&mut self) -> Result<(), DriverError> {
        // Nothing that is queued may still touch what is unmapped.
        self.note(driver::synchronize());
        for (at, size) in std::mem::take(&mut self.mappings) {
            self.note(driver::unmap(at.0, size));
        }
        for handle in std::mem::take(&mut self.handles).into_iter().flatten() {
            self.note(driver::release(handle.physical));
        }
        for (at, size) in std::mem::take(&mut self.reservations) {
            self.note(driver::address_free(at.0, size));
        }
        for at in std::mem::take(&mut self.mallocs) {
            self.note(driver::mem_free(at.0));
        }
        let first_error = &mut self.first_error;
        self.order.close(|result| drop(result.map_err(|error| first_error.get_or_insert(error))));
        self.vacant.clear();
        self.first_error.take().map_or(Ok(()), Err)
    }

    fn note(&mut self, result: Result<(), DriverError>) {
        if let Err(error) = result {
            self.first_error.get_or_insert(error);
        }
    }

    /// The error as the port knows it.
    #[cold]
    fn explain(&self, error: DriverError, requested: Bytes) -> DeviceError {
        if error.is_out_of_memory() {
            let free = driver::memory_info().map_or(0, |(free, _)| free);
            return DeviceError::OutOfMemory { requested, free };
        }
        let DriverError { call, name, text } = error;
        DeviceError::Driver { call, reason: format!("{name} ({text})") }
    }

    fn handle(&self, id: HandleId) -> Handle {
        self.handles.get(id.0 as usize).copied().flatten().expect("the allocator holds this handle")
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // A failure here has no one to hear it; those who want to know call `close` before.
        let _ = self.close();
    }
}

impl Device for CudaDevice {
    fn memory_info(&self) -> MemoryInfo {
        self.gpu.memory().unwrap_or(MemoryInfo { free: 0, total: 0 })
    }

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        let at = driver::mem_alloc(size).map_err(|error| self.explain(error, size))?;
        self.mallocs.insert(DevicePtr(at));
        Ok(DevicePtr(at))
    }

    fn free(&mut self, at: DevicePtr) {
        self.mallocs.remove(&at);
        self.note(driver::mem_free(at.0));
    }

    fn reserve(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        let at = driver::address_reserve(size).map_err(|error| self.explain(error, size))?;
        self.reservations.insert(DevicePtr(at), size);
        Ok(DevicePtr(at))
    }

    fn unreserve(&mut self, at: DevicePtr, size: Bytes) {
        self.reservations.remove(&at);
        self.note(driver::address_free(at.0, size));
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId, DeviceError> {
        let physical =
            driver::create(self.gpu.ordinal(), size).map_err(|error| self.explain(error, size))?;
        let handle = Some(Handle { physical, size });
        Ok(match self.vacant.pop() {
            Some(id) => {
                self.handles[id.0 as usize] = handle;
                id
            }
            None => {
                self.handles.push(handle);
                HandleId(self.handles.len() as u32 - 1)
            }
        })
    }

    fn release(&mut self, handle: HandleId) {
        let physical = self.handle(handle).physical;
        self.handles[handle.0 as usize] = None;
        self.vacant.push(handle);
        self.note(driver::release(physical));
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<(), DeviceError> {
        let mut place = at;
        for &id in handles {
            let Handle { physical, size } = self.handle(id);
            if let Err(error) = driver::map(place.0, size, 0, physical) {
                if place > at {
                    self.unmap(at, place.0 - at.0);
                }
                return Err(self.explain(error, size));
            }
            self.mappings.insert(place, size);
            place = place.offset(size);
        }
        Ok(())
    }

    fn set_access(&mut self, at: DevicePtr, size: Bytes) -> Result<(), DeviceError> {
        driver::set_access(&self.users, at.0, size).map_err(|error| self.explain(error, size))
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        while let Some((&place, _)) = self.mappings.range(at..at.offset(size)).next() {
            self.mappings.remove(&place);
        }
        self.note(driver::unmap(at.0, size));
    }

    fn synchronize(&mut self) {
        self.synchronizations.fetch_add(1, Ordering::Relaxed);
        self.note(driver::synchronize());
    }

    fn fence(&mut self, stream: StreamId) -> Fence {
        self.order.record(stream).unwrap_or_else(|error| {
            self.note(Err(error));
            NO_FENCE
        })
    }

    fn reached(&mut self, fence: Fence) -> bool {
        if fence == NO_FENCE {
            return false;
        }
        self.order.reached(fence).unwrap_or_else(|error| {
            self.note(Err(error));
            false
        })
    }

    fn stream_wait(&mut self, stream: StreamId, fence: Fence) {
        if fence != NO_FENCE {
            let result = self.order.wait(stream, fence);
            self.note(result);
        }
    }

    fn drop_fence(&mut self, fence: Fence) {
        if fence != NO_FENCE {
            self.order.forget(fence);
        }
    }
}
