//! Comparisons for people and for programs.
//!
//! A report is one file in this folder; the command line makes `--export-NAME` of it. What columns there are is settled
//! in [`columns`](super::columns), once for all reports.

pub mod cards;
mod csv;
pub mod job;
mod json;
pub mod table;
mod timeline;
mod verdict;

pub use csv::write_csv;
pub use json::write_comparisons;
pub use table::write_markdown;
pub use timeline::write_timeline;
pub use verdict::verdict;
