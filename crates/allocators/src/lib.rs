//! GPU memory allocators as plain state machines, the device that each is handed, and the loop that drives them.

pub mod allocator;
pub mod device;
pub mod drive;
