//! Questions: blame, out of memory, plan, tune, fleets.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod blame;
mod blame_category;
mod blame_cli;
mod blame_stacks;
mod cache;
mod cards;
mod emptying;
mod fleet;
mod fleet_again;
mod fleet_report;
mod folders;
mod limits;
mod oom;
mod plan;
mod planning_cli;
mod settings;
mod sweep;
mod tune;
mod words;
