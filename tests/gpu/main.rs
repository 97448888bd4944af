//! On a GPU, without one: the replayer and the plug-in, on a driver of our own.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod replay;
mod replay_files;
mod torch;
