//! Reading: every format, whole, cut, packed, wrapped, damaged, remote.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/flaky_server.rs"]
mod flaky_server;

mod bad_input;
mod cases;
mod coverage;
mod cuts;
mod devices;
mod extremes;
mod foreign;
mod formats;
mod inputs;
mod messages;
mod missing_entries;
mod other_tables;
mod remote;
mod strangers;
mod tables;
mod writers;
