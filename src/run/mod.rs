//! A run: one trace through one allocator, as numbers. All subjects speak of it.
//!
//! ```text
//!   RunSummary    peaks, calls, counters, steps
//!     Timeline    memory over time
//!     Prices      what the driver's calls cost
//!     Peak        every block at the moment at which most was held, and the Causes of what was wasted
//! ```

mod causes;
mod peak;
mod prices;
mod summary;
mod timeline;

pub use causes::{Cause, Causes, Growth};
pub use peak::{Moment, Peak, PeakBlock};
pub use prices::{CallNanos, Prices};
pub(crate) use summary::label;
pub use summary::{RECORDED, RunSummary, StepSummary, converged_after, utilization};
pub use timeline::Timeline;
