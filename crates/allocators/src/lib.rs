//! GPU memory allocators as plain state machines, the device that each is handed, and the loop that drives them; beside
//! them PyTorch's allocator for pinned memory of the host.

pub mod allocator;
pub mod device;
pub mod drive;
mod holes;
pub mod pinned;
pub mod simulation;
