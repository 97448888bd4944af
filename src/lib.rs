//! GPU memory allocators as plain state machines, and the traces to replay through them.
pub mod alloc_conf;
pub mod allocator;
pub mod device;
pub mod drive;
pub mod metrics;
pub mod report;
pub mod sim;
pub mod trace;
pub mod units;
