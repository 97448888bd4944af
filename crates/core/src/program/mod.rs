//! The program: what one job asked of its allocator, event by event, and what was held at a moment.
//!
//! This is the vocabulary that traces, allocators and reports share. It knows neither files nor allocators.

mod entry;
mod event;
mod layout;
mod lifetime;
mod live;
mod repeated;
pub mod synthetic;
mod trace;
mod warning;

pub use entry::{Action, Entry};
pub use event::{AllocId, Event, EventKind, PoolId, StreamId};
pub use layout::{BlockState, Layout, Segment, SegmentBlock};
pub use lifetime::{Lifetime, lifetimes};
pub use live::{LiveBytes, least_memory, live, most_live, peak_live_bytes};
pub use trace::{Labels, StartBlock, Step, Trace};
pub use warning::{Warning, WarningKind};
