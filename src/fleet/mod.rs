//! A fleet: the recordings of many jobs and ranks, run through allocators into Parquet tables.
//!
//! ```text
//!   inputs ─▶ Listing: files, each with job, date, rank      nothing is opened yet
//!                │
//!                ▼
//!             Layout: parts of up to 64 files of one job and date, named by what their rows depend on
//!                │
//!                ├── a part that is there already is left alone; a shard takes every N-th part
//!                ▼
//!             run: each worker takes the next file ─▶ rows of its runs, ranks, steps, or its error
//!                │
//!                ▼  written under another name, then renamed
//!   OUT/runs/job=.../date=.../part-0123456789abcdef.parquet      and ranks/, steps/, errors/
//! ```
//!
//! The tables are read again by [`summarize`], one job at a time.
//!
//! There is no engine and no coordinator: whoever starts the same command again, here or as another shard, goes on
//! where the last one was, and the finished files are the same to the byte. So Slurm, Kubernetes or Ray only have to
//! start shards, and to start those again that died.

mod about;
mod config;
mod data;
mod layout;
mod listing;
mod manifest;
mod peers;
mod reading;
mod run;
pub mod show;
mod store;
mod summary;
mod tables;
mod task;

pub use config::Config;
pub use data::{
    CardCount, FleetJob, FleetSummary, FleetTotal, JobPeak, Problem, SizeHistogram, UnlikeRank,
};
pub use layout::{Layout, Part, Shard};
pub use listing::{FileEntry, Listing, list};
pub use run::{MOST_JOBS, Outcome, RunOptions, run};
pub use store::results;
pub use summary::summarize;
pub use tables::{SCHEMA_VERSION, TABLES, Table};
