//! Allocators: the contract of the port, random scripts, failures, adversaries.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod causes;
mod conformance;
mod faults;
mod lake_adversary;
mod plugin;
mod properties;
mod repetition;
