//! The plug-in: the allocators of this library inside a stock PyTorch.
//!
//! PyTorch can load its allocator from a shared library (`torch.cuda.memory.CUDAPluggableAllocator`). Ours exports the
//! functions that it wants, and behind them runs the same allocator, on the same device port, as in every simulation:
//!
//! ```text
//!   torch ──▶ gmlake_malloc(size, device, stream)                             one for the process
//!                  │                                                            │
//!   c_interface.rs │ no panic crosses; out of memory becomes torch's exception  ▼
//!   ───────────────┼───────────────────────────────────────────────────────  Process
//!                  ▼                                                            │ one for each GPU, behind a lock
//!            GpuAllocator  address ─▶ block; streams ─▶ numbers; uses ─▶ fences ◀┘
//!                  │
//!                  ▼
//!               Allocator ──▶ Sleeper ──▶ Limited ──▶ Watched ──▶ CudaDevice
//! ```
//!
//! What PyTorch leaves to the plug-in, and how it is kept here:
//!
//! - **Streams.** Memory freed on a stream is reused on that stream at once: what comes later runs later. A block that
//!   `Tensor.record_stream` lent to other streams is only `free_requested` at first; a fence goes into each of those
//!   streams, and when all have been reached, the free is complete.
//! - **Unmapping** does not wait for the GPU, so the allocators synchronise before they take a mapping away.
//! - **CUDA graphs.** What a graph uses must stay where it is for as long as the graph lives. Memory asked for on a
//!   captured stream comes from an allocator of its own, which is dissolved when the last graph of its pool has gone.
//! - **The end.** Frees may come when the driver has gone already: nothing here needs it then, and nothing is dropped.
//!
//! The library's own history takes the place of PyTorch's, which there is none of with an allocator from outside.

mod arenas;
mod block;
mod c_interface;
mod capture;
mod completion;
mod conf;
mod debug;
mod failure;
mod gpu_allocator;
mod graph;
mod journal;
mod mount;
mod mount_interface;
mod pending;
mod process;
mod segments;
mod sleep;
mod sleeper;
mod snapshot;
mod stats;
mod streams;
mod sums;
mod watch;
mod watch_interface;

use std::io::Write;

pub use arenas::{tag, use_tag};
pub use conf::{Conf, DEFAULT_ALLOCATOR};
pub use failure::Failure;
pub use gpu_allocator::GpuAllocator;
pub use journal::{Event, Journal, Observer};
pub use mount::{Numbers, Served, Shown};
pub use process::Process;
pub use stats::Stats;
pub use sums::{Elsewhere, SUMS, Stat, Sum, Sums, Tallied};

/// Says something on standard error, if there is one: the program that we are in may have closed it.
pub fn print_error(text: &str) {
    // Standard error is closed: there is nowhere to report it.
    let _ = writeln!(std::io::stderr(), "{text}");
}
