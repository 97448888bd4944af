//! Traces: from a file to the event list that every allocator is fed with.
//!
//! ```text
//!  file ──input──▶ bytes ──TraceFormat::read──▶ Records (one per device) ──ingest──▶ Trace
//!        gzip, zstd,       pickle, JSON,         what the file says,                 dense ids, 16-byte events,
//!        xz, mmap, -       CSV, Chrome           entry by entry                      nothing left to look up
//! ```
//!
//! [`Records`] keep every recorded entry, PyTorch's own decisions included: they are the truth that our models are
//! verified against. A [`Trace`] keeps only what the *program* did: requests, frees, calls of `empty_cache`.

mod event;
mod ingest;
mod layout;
mod records;

pub use event::{AllocId, Event, EventKind, PoolId, StreamId};
pub use ingest::{Labels, StartBlock, Step, Trace, Warning, WarningKind, ingest};
pub use layout::Layout;
pub use records::{Action, Annotation, BlockState, Entry, Records, Segment, SegmentBlock};
