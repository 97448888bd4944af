//! Counts the driver calls that pass through to a device.

use std::cell::Cell;
use std::ops::{Add, Sub};

use super::{Device, DeviceError, DevicePtr, Fence, HandleId, MemoryInfo, forward};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// How often each driver call was made, failed calls included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CallCounts {
    /// `cuMemAlloc`
    pub mem_alloc: u64,
    /// `cuMemFree`
    pub mem_free: u64,
    /// `cuMemAddressReserve`
    pub address_reserve: u64,
    /// `cuMemAddressFree`
    pub address_free: u64,
    /// `cuMemCreate`
    pub create: u64,
    /// `cuMemRelease`
    pub release: u64,
    /// `cuMemMap`, one for each handle
    pub map: u64,
    /// `cuMemSetAccess`
    pub set_access: u64,
    /// `cuMemUnmap`
    pub unmap: u64,
}

impl CallCounts {
    /// Name and count of every call, in the order of the fields.
    #[must_use]
    pub fn rows(&self) -> [(&'static str, u64); 9] {
        [
            ("mem_alloc", self.mem_alloc),
            ("mem_free", self.mem_free),
            ("address_reserve", self.address_reserve),
            ("address_free", self.address_free),
            ("create", self.create),
            ("release", self.release),
            ("map", self.map),
            ("set_access", self.set_access),
            ("unmap", self.unmap),
        ]
    }

    /// All calls together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows().iter().map(|(_, count)| count).sum()
    }

    fn zip(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            mem_alloc: op(self.mem_alloc, other.mem_alloc),
            mem_free: op(self.mem_free, other.mem_free),
            address_reserve: op(self.address_reserve, other.address_reserve),
            address_free: op(self.address_free, other.address_free),
            create: op(self.create, other.create),
            release: op(self.release, other.release),
            map: op(self.map, other.map),
            set_access: op(self.set_access, other.set_access),
            unmap: op(self.unmap, other.unmap),
        }
    }
}

impl Add for CallCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}

impl Sub for CallCounts {
    type Output = Self;

    /// The calls made since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, |a, b| a - b)
    }
}

/// How often streams were put in order. These calls touch no memory, and are counted next to those that do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FenceCounts {
    /// `cuEventRecord`
    pub event_record: u64,
    /// `cuEventQuery`
    pub event_query: u64,
    /// `cuStreamWaitEvent`
    pub stream_wait: u64,
}

impl FenceCounts {
    /// Name and count of every call, in the order of the fields.
    #[must_use]
    pub fn rows(&self) -> [(&'static str, u64); 3] {
        [
            ("event_record", self.event_record),
            ("event_query", self.event_query),
            ("stream_wait", self.stream_wait),
        ]
    }
}

impl Sub for FenceCounts {
    type Output = Self;

    /// The calls made since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            event_record: self.event_record - earlier.event_record,
            event_query: self.event_query - earlier.event_query,
            stream_wait: self.stream_wait - earlier.stream_wait,
        }
    }
}

/// A device whose calls are counted.
#[derive(Debug, Clone)]
pub struct Counted<D> {
    /// The device itself.
    pub device: D,
    /// The calls so far.
    pub calls: CallCounts,
    /// The fences so far.
    pub fences: FenceCounts,
    /// Times that somebody asked how much memory there is. Who never asks learns of it by refusals only.
    inquiries: Cell<u64>,
}

impl<D> Counted<D> {
    /// Starts at zero calls.
    pub fn new(device: D) -> Self {
        let (calls, fences) = (CallCounts::default(), FenceCounts::default());
        Self { device, calls, fences, inquiries: Cell::new(0) }
    }

    /// Times that somebody asked how much memory there is.
    #[must_use]
    pub fn inquiries(&self) -> u64 {
        self.inquiries.get()
    }
}

impl<D: Device> Device for Counted<D> {
    forward!(synchronize, drop_fence, elapse);

    fn memory_info(&self) -> MemoryInfo {
        self.inquiries.set(self.inquiries.get() + 1);
        self.device.memory_info()
    }

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        self.calls.mem_alloc += 1;
        self.device.malloc(size)
    }

    fn free(&mut self, at: DevicePtr) {
        self.calls.mem_free += 1;
        self.device.free(at);
    }

    fn reserve(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        self.calls.address_reserve += 1;
        self.device.reserve(size)
    }

    fn unreserve(&mut self, at: DevicePtr, size: Bytes) {
        self.calls.address_free += 1;
        self.device.unreserve(at, size);
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId, DeviceError> {
        self.calls.create += 1;
        self.device.create(size)
    }

    fn release(&mut self, handle: HandleId) {
        self.calls.release += 1;
        self.device.release(handle);
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<(), DeviceError> {
        self.calls.map += handles.len() as u64;
        self.device.map(at, handles)
    }

    fn set_access(&mut self, at: DevicePtr, size: Bytes) -> Result<(), DeviceError> {
        self.calls.set_access += 1;
        self.device.set_access(at, size)
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        self.calls.unmap += 1;
        self.device.unmap(at, size);
    }

    fn create_each(
        &mut self,
        size: Bytes,
        count: usize,
        handles: &mut Vec<HandleId>,
    ) -> Result<(), DeviceError> {
        let before = handles.len();
        let outcome = self.device.create_each(size, count, handles);
        // The call that failed was made, too.
        self.calls.create += (handles.len() - before + usize::from(outcome.is_err())) as u64;
        outcome
    }

    fn release_each(&mut self, handles: &[HandleId]) {
        self.calls.release += handles.len() as u64;
        self.device.release_each(handles);
    }

    fn set_access_each(
        &mut self,
        at: DevicePtr,
        size: Bytes,
        count: usize,
    ) -> Result<(), DeviceError> {
        self.calls.set_access += count as u64;
        self.device.set_access_each(at, size, count)
    }

    fn fence(&mut self, stream: StreamId) -> Fence {
        self.fences.event_record += 1;
        self.device.fence(stream)
    }

    fn reached(&mut self, fence: Fence) -> bool {
        self.fences.event_query += 1;
        self.device.reached(fence)
    }

    fn stream_wait(&mut self, stream: StreamId, fence: Fence) {
        self.fences.stream_wait += 1;
        self.device.stream_wait(stream, fence);
    }
}
