//! The simulator: recorded traces through allocators on a simulated device.
//!
//! ```text
//!   open ──▶ Opened ──▶ run: one allocator ──▶ RunSummary ──┐
//!     │                 run: the next one  ──▶ RunSummary ──┴──▶ compare: Comparison, one for each file
//!     ├───────────────▶ inspect: what is in the file
//!     ├───────────────▶ blame: whose bytes are live at one moment
//!     ├───────────────▶ transcribe: one run as PyTorch would have recorded it
//!     └─ files of a job ─▶ plan: the smallest device that runs it, and the cards that do
//! ```

pub mod blame;
mod cache;
mod choice;
mod compare;
mod coverage;
mod failure;
mod fingerprint;
mod floor;
mod frames;
mod ground;
mod in_depth;
mod inspect;
pub mod job;
mod knobs;
mod live_peak;
mod names;
mod open;
mod opened;
mod peak;
mod placements;
mod places;
pub mod plan;
mod reconstruct;
mod recorded_row;
pub mod recording;
mod run;
mod run_count;
mod setup;
mod single;
mod spread;
pub mod sweep;
mod transcript;
mod tune;

pub use cache::RunCache;
pub use choice::{Choice, ChoiceError, Choices, choose, under};
pub use compare::{compare, compare_files, compare_job};
pub use failure::FileError;
pub use in_depth::compare_in_depth;
pub use inspect::{
    DeviceEntries, EntryCount, Failure, Inspection, Peak, SegmentTotals, Share, SizeClass,
    StackTotals, inspect,
};
pub use open::{OpenOptions, open, open_all, open_bytes};
pub use opened::Opened;
pub use peak::{at_event, at_peak};
pub use run::{RunError, run, run_cached};
pub use run_count::RunCount;
pub use setup::{Conf, DEFAULT_GPU_LAG, Memory, Setup};
pub use transcript::{TracksError, transcribe, write_tracks};
pub use tune::{TuneOptions, tune};
