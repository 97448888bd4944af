//! Plug-ins: allocators of other people, from shared libraries with the C interface of `gmlake_allocator.h`.
//!
//! ```text
//!   libmine.so ──entry──▶ library: the version, the names ──▶ Spec, as those of our own list
//!                                                               │ build
//!   its instance ◀──allocate, free──  guest  ◀── hosted ◀───────┘
//!        └───────────memory calls──▶  host ──▶ the device
//! ```
//!
//! A plug-in runs in our process: nothing can keep one from crashing it. Whatever else it does wrong is one clear line.
//! Whoever writes one in Rust implements [`PlugIn`] and calls [`export!`].

pub mod abi;
mod guest;
mod host;
mod library;
mod sdk;

pub use library::{PlugInError, load};
pub use sdk::{Block, Host, NoMemory, PlugIn, table};
