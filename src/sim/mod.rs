//! The simulator: recorded traces through allocators on a simulated device.
//!
//! ```text
//!   open ──▶ Opened ──▶ run: one allocator ──▶ RunSummary
//!     │        │
//!     │        └──────▶ peak: what it held at one event
//!     ├───────────────▶ transcribe: one run as PyTorch would have recorded it
//!     └─ files of a job ─▶ job: which of them are its ranks
//! ```
//!
//! What is asked of runs is in the subjects: `compare`, `blame`, `plan`, `sweep`, `tune`, `fleet`, `inspect`.

mod cache;
mod choice;
mod coverage;
mod fingerprint;
mod frames;
pub mod job;
mod meter;
mod names;
mod open;
mod opened;
mod peak;
mod places;
mod recorded_row;
mod run;
mod run_count;
mod setup;
mod single;
mod spread;
mod tenants;
mod transcript;

pub use cache::RunCache;
pub use choice::{Choice, ChoiceError, Choices, choose, choose_one, choose_with, under};
pub(crate) use choice::{as_pytorchs, as_set, find};
pub(crate) use frames::{
    has_stacks, is_machinery, is_of_engine, is_of_program, is_python, node, without_arguments,
};
pub use names::title_of;
pub use open::{open, open_all, open_bytes};
pub use opened::Opened;
pub use places::Place;
pub(crate) use places::place_of;
pub(crate) use run::Stage;
pub use run::{RunError, Scenario, run};
pub use run_count::RunCount;
pub use setup::{Conf, DEFAULT_GPU_LAG, Memory, Setup, Supervision, note_of_pools};
pub use single::FileError;
pub(crate) use single::{check_assumptions, failed, run_one};
pub(crate) use spread::{Spread, each_rank};
pub use transcript::{TracksError, transcribe, write_tracks};
