//! Truth: what PyTorch, CUDA and other allocators did, done again.

#[path = "../common/mod.rs"]
mod common;

mod driver_pages;
mod exact;
mod gmlake_released;
mod originals;
mod traces;
