//! cuFFT: plans, and their work areas. PyTorch allocates these itself.

use std::ffi::c_int;

use crate::workspace::Fourier;

use crate::exports::state::put;

/// `CUFFT_INVALID_VALUE`
const INVALID_VALUE: c_int = 4;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftCreate(to: *mut c_int) -> c_int {
    // SAFETY: the caller hands over a place for the plan.
    unsafe { put(to, 1) }
}

/// Whether a `cudaDataType` is real, and bytes of a complex number of its precision.
fn precision(kind: c_int) -> (bool, u64) {
    let complex = match kind {
        1 | 5 => 16,
        2 | 6 | 14 | 15 => 4,
        _ => 8,
    };
    (matches!(kind, 0..=2 | 14), complex)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftXtMakePlanMany(
    _plan: c_int,
    rank: c_int,
    sizes: *const i64,
    _input_sizes: *const i64,
    _input_stride: i64,
    _input_distance: i64,
    input: c_int,
    _output_sizes: *const i64,
    _output_stride: i64,
    _output_distance: i64,
    output: c_int,
    batch: i64,
    to: *mut usize,
    _execution: c_int,
) -> c_int {
    if sizes.is_null() || rank < 1 {
        return INVALID_VALUE;
    }
    // SAFETY: the caller hands over `rank` sizes.
    let sizes = unsafe { std::slice::from_raw_parts(sizes, rank as usize) };
    let (real_input, complex) = precision(input);
    let transform = Fourier {
        sizes: sizes.iter().map(|&size| size.max(0) as u64).collect(),
        batch: batch.max(0) as u64,
        real: real_input || precision(output).0,
        complex,
    };
    // SAFETY: the caller hands over a place for the size.
    unsafe { put(to, transform.workspace() as usize) }
}
