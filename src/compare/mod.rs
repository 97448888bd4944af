//! Comparisons: a trace through several allocators, side by side.
//!
//! ```text
//!   files ──▶ run: each allocator on each file ──▶ Comparison ──▶ show: tables, JSON, CSV, Markdown, the sentence
//!                                                      │
//!                     columns: name, unit, getter ─────┴────────▶ chart: pictures
//! ```

pub mod chart;
mod columns;
mod comparison;
mod job;
mod run;
pub mod show;

pub use chart::{CHARTS, Chart};
pub use columns::{Better, Column, Row, Tables, Unit, When};
pub use comparison::Comparison;
pub use job::{JobComparison, RankComparison, Spread};
pub use run::{compare, compare_files, compare_job};
pub use show::table::columns;
