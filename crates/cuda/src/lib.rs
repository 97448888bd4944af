//! CUDA: the driver's calls, a GPU behind the device port, patterns in its memory, and load on its queue.
//!
//! Nothing above this module knows that CUDA exists, and nothing below `driver` is unsafe.
//! A [`DriverError`] is what the driver says; who returns one and says no more of it has no errors of its own.

mod background;
mod device;
pub mod driver;
mod gpu;
mod guest;
mod mismatches;
mod order;
mod pattern;
mod poison;

pub use background::{Background, Queue};
pub use device::CudaDevice;
pub use driver::DriverError;
pub use gpu::{Entered, Gpu, GpuError};
pub use guest::{Relaxed, is_capturing};
pub use pattern::{Coverage, Painter, Stamp};
pub use poison::Poison;
