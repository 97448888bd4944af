//! Allocators: the contract of the port, random scripts, failures, adversaries.

#[path = "../common/mod.rs"]
mod common;

mod causes;
mod conformance;
mod faults;
mod lake_adversary;
mod properties;
mod repetition;
