//! GPU memory allocators as plain state machines, and the recorded programs to replay through them.
//!
//! ```text
//!   trace        a file: what a program asked of its allocator, and what PyTorch made of it
//!     │
//!     ▼
//!   drive        the event loop ──▶ allocator   one of a list, each handed its device with every request
//!     │                                 │
//!     ▼                                 ▼
//!   metrics      the result          device     simulated, recorded, or a wrapper that counts, fails or watches
//!     │
//!     ▼
//!   report       tables, data, plots            sim   puts all this together: open, run, compare, inspect, verify
//! ```
//!
//! A run by hand:
//!
//! ```
//! use gmlake::allocator::{Environment, Options, find};
//! use gmlake::alloc_conf::AllocConf;
//! use gmlake::device::SimDevice;
//! use gmlake::drive::{OnOom, Replay};
//! use gmlake::trace::{Labels, LoadOptions, choose_device, ingest, load_bytes};
//! use gmlake::units::GIB;
//!
//! let csv = b"event,id,size,stream\nalloc,a,30000000,0\nfree,a,,\nalloc,b,50000000,0\n";
//! let records = load_bytes(csv, &LoadOptions::default())?;
//! let records = choose_device(records, None, "by hand".as_ref())?;
//! let trace = ingest(&records, &Labels::default());
//!
//! let caching = find("caching").expect("it is on the list");
//! let mut allocator = caching
//!     .build(&Options::default(), &Environment::new(AllocConf::default()))?;
//! let mut gpu = SimDevice::new(80 * GIB);
//! let mut replay = Replay::new(&trace, OnOom::Skip);
//! let _ = replay.advance(0..trace.events.len(), allocator.as_mut(), &mut gpu, &mut ())?;
//!
//! // The 30 MB are cached when 50 MB are asked for, but they are too small to serve.
//! assert_eq!(allocator.peak().reserved, (30 + 48) << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use ::{gmlake_cuda as cuda, gmlake_plugin as plugin, gmlake_traces as trace};
pub use gmlake_allocators::{allocator, device, drive, simulation};
pub use gmlake_core::{alloc_conf, beside, devices, input_error, printable, units};

pub(crate) use gmlake_core::reader_error;

pub mod bench;
pub mod blame;
pub mod compare;
pub mod fleet;
pub mod host_memory;
pub mod inspect;
pub mod page;
pub mod pinned;
pub mod plan;
pub mod remote;
pub mod replay;
pub mod report;
pub mod run;
pub mod sim;
pub mod sweep;
pub mod tune;
pub mod verify;
