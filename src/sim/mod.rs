//! Simulation: allocators on simulated devices, and recordings as the truth to compare with.

pub mod recording;
