//! Truth: what PyTorch, CUDA and other allocators did, done again.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod driver_pages;
mod exact;
mod gmlake_released;
mod originals;
mod pinned;
mod traces;
