//! Replay: the same allocators, on a real GPU.
//!
//! ```text
//!             ┌──── Watched (log, times) ── CudaDevice ── libcuda        what the calls took
//!   Trace ────┤ same allocator code, same loop                             ║ equal call by call
//!             └──── Watched (log, prices) ── SimDevice ── its addresses  what they should have taken
//! ```
//!
//! Each run is made twice: on the GPU, where every driver call is timed and every allocation can be stamped with a
//! pattern of its own; and on the simulated device, which is given the addresses that the GPU handed out. Both must
//! make the same calls, and the cost model is held against the clock, at the machine's pace of the moment
//! (`probe.rs`).

mod building;
pub mod calibrate;
pub mod chart;
mod probe;
mod run;
mod stamped;
mod summary;
mod twin;
mod workload;

pub use building::{
    BlockTimes, Building, LATENCY_TOTALS, PAPER_LEAST_ALLOCS, PAPER_TABLE_1, TABLE_1_CHUNKS,
    Table1Row, building, latency, latency_chunks, native_latency, table_1,
};
pub use run::{Pace, Plan, ReplayError, replay};
pub use stamped::Verified;
pub use summary::{CallRow, LogDifference, ReplaySummary, StepReplay};
pub use workload::scaled;
