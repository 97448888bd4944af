//! `libgmlake_gpu.so`: the functions of CUDA's libraries, on a virtual GPU.
//!
//! Preloaded before a program starts, it answers in place of the CUDA runtime, cuBLAS, cuDNN, NCCL and the rest,
//! whether they are installed or not; under the name `libcuda.so.1` it is the driver.
//!
//! All of the virtual GPU's unsafe code is here. It does no more than to turn what C hands over into Rust and back.
#![allow(unsafe_code, non_snake_case)]
// CUDA's documentation says what each function may be handed, and how many arguments it has.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments, missing_docs)]

/// The functions that C calls. What one answers may be a function of the same meaning in another library. Without a
/// type behind the arguments, it is a status.
macro_rules! skins {
    (@out) => { ::std::ffi::c_int };
    (@out $out:ty) => { $out };
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),*) $(-> $out:ty)? = $answer:expr;
    )*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> skins!(@out $($out)?) {
            // SAFETY: the caller hands over what CUDA's documentation says, or the comment of a function of ours:
            // places that can be written to, ranges and lists of the size given, texts that end with a zero, and
            // device addresses, which are memory of this process.
            #[allow(unused_unsafe)]
            unsafe { $answer }
        })*
    };
}

mod blas;
mod collectives;
mod communicators;
mod copies;
mod decompositions;
mod devices;
mod dnn;
mod driver;
mod entry_points;
mod fourier;
mod host;
mod kernels;
mod launches;
mod libraries;
mod matrices;
mod messages;
mod monitor;
mod objects;
mod pages;
mod plan;
mod python;
mod recurrent;
mod reduction;
mod runtime;
mod shared;
mod signatures;
mod sparse;
mod state;
mod streams;
mod structured;
mod table;
mod tensors;
