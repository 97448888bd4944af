//! A virtual GPU: what CUDA's libraries answer to a PyTorch that runs on a machine without a GPU.
//!
//! Requests for memory come from code that runs on the host: operators, autograd, optimizers, PyTorch's allocator.
//! Kernels only fill memory. So everything above the CUDA libraries is the real thing, the libraries below it are ours,
//! and PyTorch makes the same requests in the same order as on the card that is described here:
//!
//! ```text
//!   stock PyTorch          operators, autograd, the caching allocator and its recorder
//!      │ cudaMalloc, cudaLaunchKernel, cublasGemmEx, ncclAllReduce, ...
//!      ▼
//!   exports/               libgmlake_gpu.so: C functions, the only unsafe code
//!      ▼
//!   VirtualGpu             Properties   which card this is
//!                          images       which code of a kernel the card runs
//!                          Memory       capacity and addresses, one for each device that the program sees
//!                          HostMemory   pinned and managed memory
//!                          Known        which bytes have a value: copies are done, kernels are not
//!                          Timeline     streams, events, and when they complete
//!                          HostPace     how long the host of a real GPU takes for what this one does
//!                          Graphs       captures
//!                          Post         small data between the processes of a job
//! ```
//!
//! Nothing here touches memory behind an address: that is left to `exports`, where it can be unsafe.

mod duration;
mod exports;
mod gpu;
mod graphs;
mod host_memory;
mod host_pace;
pub mod images;
mod known;
mod memory;
mod philox;
mod post;
mod properties;
mod quiet;
mod timeline;
mod visible;
pub mod workspace;

pub use duration::{ALIGNED, Precision, Work};
pub use gpu::{Conf, VirtualGpu};
pub use graphs::{Capture, Graphs, KeptCopy};
pub use host_memory::{HostKind, HostMemory, HostRange};
pub use host_pace::HostPace;
pub use known::Known;
pub use memory::{Addresses, Memory, MemoryError};
pub use philox::philox;
pub use post::{Parcel, Post};
pub use properties::{Multiprocessor, Properties};
pub use timeline::{Asker, Completion, Timeline};
