//! Questions: blame, out of memory, plan, tune, fleets.

#[path = "../common/mod.rs"]
mod common;

mod blame;
mod blame_category;
mod blame_cli;
mod blame_stacks;
mod cache;
mod fleet;
mod oom;
mod plan;
mod planning_cli;
mod settings;
mod tune;
