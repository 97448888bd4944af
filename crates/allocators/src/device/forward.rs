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
    (@ streams) => {
        $crate::forward!(synchronize, fence, reached, stream_wait, drop_fence, elapse);
    };
    (@ memory_info) => {
        fn memory_info(&self) -> $crate::device::MemoryInfo {
            self.device.memory_info()
        }
    };
    (@ malloc) => {
        $crate::forward!(@ malloc(size: u64) -> $crate::device::Result<$crate::device::DevicePtr>);
    };
    (@ free) => {
        $crate::forward!(@ free(at: $crate::device::DevicePtr) -> ());
    };
    (@ reserve) => {
        $crate::forward!(@ reserve(size: u64) -> $crate::device::Result<$crate::device::DevicePtr>);
    };
    (@ unreserve) => {
        $crate::forward!(@ unreserve(at: $crate::device::DevicePtr, size: u64) -> ());
    };
    (@ create) => {
        $crate::forward!(@ create(size: u64) -> $crate::device::Result<$crate::device::HandleId>);
    };
    (@ release) => {
        $crate::forward!(@ release(handle: $crate::device::HandleId) -> ());
    };
    (@ map) => {
        $crate::forward!(@ map(
            at: $crate::device::DevicePtr,
            handles: &[$crate::device::HandleId]
        ) -> $crate::device::Result<()>);
    };
    (@ set_access) => {
        $crate::forward!(@ set_access(
            at: $crate::device::DevicePtr,
            size: u64
        ) -> $crate::device::Result<()>);
    };
    (@ unmap) => {
        $crate::forward!(@ unmap(at: $crate::device::DevicePtr, size: u64) -> ());
    };
    (@ synchronize) => {
        $crate::forward!(@ synchronize() -> ());
    };
    (@ fence) => {
        $crate::forward!(@ fence(
            stream: ::gmlake_core::program::StreamId
        ) -> $crate::device::Fence);
    };
    (@ reached) => {
        $crate::forward!(@ reached(fence: $crate::device::Fence) -> bool);
    };
    (@ stream_wait) => {
        $crate::forward!(@ stream_wait(
            stream: ::gmlake_core::program::StreamId,
            fence: $crate::device::Fence
        ) -> ());
    };
    (@ drop_fence) => {
        $crate::forward!(@ drop_fence(fence: $crate::device::Fence) -> ());
    };
    (@ elapse) => {
        $crate::forward!(@ elapse(events: u64, ns: u64) -> ());
    };
    (@ $method:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn $method(&mut self, $($argument: $type),*) -> $answer {
            self.device.$method($($argument),*)
        }
    };
}
pub use forward;
