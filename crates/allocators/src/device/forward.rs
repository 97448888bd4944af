//! Forwarding: what a wrapper leaves to the device inside it.
//!
//! A wrapper says of some calls what it has to say, and names the others in one line:
//!
//! ```text
//!   impl<D: Device> Device for Faulty<D> {
//!       fn malloc(...) { ...fail, if it is its turn... self.device.malloc(size) }
//!       forward!(memory_info, free, unreserve, release, unmap, streams);
//!   }
//! ```
//!
//! The device is in the field `device`; `streams` stands for all calls about streams and time. [`super::Device`]'s
//! calls of many at once are not here: their defaults go through the wrapper's own calls one by one, which is what most
//! wrappers want.

/// Writes the named methods of [`super::Device`], each of which asks `self.device` and adds nothing.
#[macro_export]
macro_rules! forward {
    ($($method:ident),+ $(,)?) => { $( $crate::forward!(@ $method); )+ };
    (@ memory_info) => {
        fn memory_info(&self) -> $crate::device::MemoryInfo {
            self.device.memory_info()
        }
    };
    (@ malloc) => {
        fn malloc(
            &mut self,
            size: ::gmlake_core::units::Bytes,
        ) -> $crate::device::Result<$crate::device::DevicePtr> {
            self.device.malloc(size)
        }
    };
    (@ free) => {
        fn free(&mut self, at: $crate::device::DevicePtr) {
            self.device.free(at);
        }
    };
    (@ reserve) => {
        fn reserve(
            &mut self,
            size: ::gmlake_core::units::Bytes,
        ) -> $crate::device::Result<$crate::device::DevicePtr> {
            self.device.reserve(size)
        }
    };
    (@ unreserve) => {
        fn unreserve(&mut self, at: $crate::device::DevicePtr, size: ::gmlake_core::units::Bytes) {
            self.device.unreserve(at, size);
        }
    };
    (@ create) => {
        fn create(
            &mut self,
            size: ::gmlake_core::units::Bytes,
        ) -> $crate::device::Result<$crate::device::HandleId> {
            self.device.create(size)
        }
    };
    (@ release) => {
        fn release(&mut self, handle: $crate::device::HandleId) {
            self.device.release(handle);
        }
    };
    (@ map) => {
        fn map(
            &mut self,
            at: $crate::device::DevicePtr,
            handles: &[$crate::device::HandleId],
        ) -> $crate::device::Result<()> {
            self.device.map(at, handles)
        }
    };
    (@ set_access) => {
        fn set_access(
            &mut self,
            at: $crate::device::DevicePtr,
            size: ::gmlake_core::units::Bytes,
        ) -> $crate::device::Result<()> {
            self.device.set_access(at, size)
        }
    };
    (@ unmap) => {
        fn unmap(&mut self, at: $crate::device::DevicePtr, size: ::gmlake_core::units::Bytes) {
            self.device.unmap(at, size);
        }
    };
    (@ streams) => {
        $crate::forward!(synchronize, fence, reached, stream_wait, drop_fence, elapse);
    };
    (@ synchronize) => {
        fn synchronize(&mut self) {
            self.device.synchronize();
        }
    };
    (@ fence) => {
        fn fence(&mut self, stream: ::gmlake_core::program::StreamId) -> $crate::device::Fence {
            self.device.fence(stream)
        }
    };
    (@ reached) => {
        fn reached(&mut self, fence: $crate::device::Fence) -> bool {
            self.device.reached(fence)
        }
    };
    (@ stream_wait) => {
        fn stream_wait(
            &mut self,
            stream: ::gmlake_core::program::StreamId,
            fence: $crate::device::Fence,
        ) {
            self.device.stream_wait(stream, fence);
        }
    };
    (@ drop_fence) => {
        fn drop_fence(&mut self, fence: $crate::device::Fence) {
            self.device.drop_fence(fence);
        }
    };
    (@ elapse) => {
        fn elapse(&mut self, events: u64, ns: u64) {
            self.device.elapse(events, ns);
        }
    };
}
pub use forward;
