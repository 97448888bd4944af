//! Traces: from a file to the event list that every allocator is fed with.
//!
//! ```text
//!  file ───load──▶ bytes ──TraceFormat::read──▶ Records (one per device) ──ingest──▶ Trace
//!        gzip, zstd,       pickle, JSON,         what the file says,                 dense ids, 16-byte events,
//!        xz, mmap, -       CSV, Chrome           entry by entry                      nothing left to look up
//! ```
//!
//! [`Records`] keep every recorded entry, PyTorch's own decisions included: they are the truth that our models are
//! verified against. A [`Trace`] keeps only what the *program* did: requests, frees, calls of `empty_cache`.

mod actions;
mod both;
mod chrome;
mod coverage;
mod csv;
mod draft;
mod empty;
mod error;
mod format;
mod if_object;
mod ingest;
mod json;
mod json_lines;
mod json_reader;
mod json_several;
mod load;
mod minimalloc;
mod numbers;
mod options;
mod origins;
mod packing;
mod perfetto;
mod pickle;
mod plausible;
mod records;
mod rmm;
mod room;
mod settings;
mod several;
mod snapshot;
mod stack_table;
mod stacks;
mod steps;
pub mod text;
mod torch;
mod whole;
mod wrapped;
mod writer;

pub use both::both;
pub use coverage::{Bounded, Certainty, Coverage, CoverageKind, Gap};
pub use csv::write_csv;
pub use draft::Draft;
pub use error::{Position, Result, TraceError};
pub use format::TraceFormat;
pub use gmlake_core::program::*;
pub use ingest::ingest;
pub use load::{choose_device, is_recording, load, load_bytes, unpack};
pub use minimalloc::write_minimalloc;
pub use options::{LoadOptions, MAX_INPUT};
pub use perfetto::owner;
pub use perfetto::{Level, MOST_TRACKS, Perfetto};
pub use pickle::RECORD_HOST;
pub use records::{Annotation, Records, Total};
pub use snapshot::write_snapshot;
pub use stacks::{Frame, Stack, Stacks};
pub use writer::{Marks, Writer};
