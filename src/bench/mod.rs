//! The benchmark of allocators: a fixed set of traces, every allocator under the checker, and four questions.
//!
//! ```text
//!   set ──▶ each trace ──▶ each allocator: a run under the checker ──▶ memory, driver time
//!                                          a run by itself ──────────▶ host time
//!                                          runs on cards ────────────▶ the smallest that is enough
//!                              Row for each of both ──▶ Summary of each allocator ──▶ table, picture, JSON
//!                                   └──▶ Submission ──▶ a file that anybody can check
//! ```
//!
//! There is no total. Whoever wants less memory may pay with driver time; the picture shows which do.

pub mod chart;
mod data;
mod run;
mod set;
pub mod show;
mod submission;

pub use data::{Bench, Row, Summary};
pub use run::run;
pub use set::{Part, Set, TraceEntry};
pub use submission::{Difference, Submission};
