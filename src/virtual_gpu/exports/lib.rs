//! `libgmlake_gpu.so`: the functions of CUDA's libraries, on a virtual GPU.
//!
//! This is the root of the shared library and not a module of the crate: nothing else may export CUDA's names. Preloaded
//! before a program starts, it answers in place of the CUDA runtime, cuBLAS, cuDNN, NCCL and the rest, whether they are
//! installed or not; under the name `libcuda.so.1` it is the driver. [`table`] lists every function.
//!
//! All of the virtual GPU's unsafe code is here. It does no more than to turn what C hands over into Rust and back.
#![allow(unsafe_code, non_snake_case)]
#![allow(clippy::missing_safety_doc, missing_docs)] // CUDA's documentation says what each function may be handed

mod blas;
mod collectives;
mod copies;
mod dnn;
mod driver;
mod launches;
mod libraries;
mod plan;
mod python;
mod reduction;
mod runtime;
mod state;
mod streams;
mod table;
