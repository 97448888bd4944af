//! cuSPARSELt: matrices of which two of four values are zero, and that are kept without these.
//!
//! ```text
//! dense        a 0 0 b | 0 c d 0 | ...        16 bits a value: 4 values in 8 bytes
//! compressed   a b c d ...                    half of these bytes
//!              0 3 1 2 ...                    and 2 bits for each value that is left: where it was
//! ```
//!
//! So a compressed matrix has 9/16 of the dense one's bytes, and 10/16 where values have 8 bits. PyTorch 2.4 relied on
//! that. It was not measured, nor were the workspaces for compression and for products.

use std::ffi::{c_int, c_void};

use crate::exports::libraries::{SPARSE, used};
use crate::exports::state::put;
use crate::workspace::Guess;

const INVALID_VALUE: c_int = 3;

/// What is kept of a matrix in the place that the caller has for its description.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Structured {
    dense_bytes: u64,
    is_of_bytes: bool,
}

impl Structured {
    /// A matrix of these rows and columns, with values of a `cudaDataType`.
    fn new(rows: i64, columns: i64, kind: c_int) -> Structured {
        /// `CUDA_R_32F`
        const FLOAT: c_int = 0;
        /// `CUDA_R_16F` and `CUDA_R_16BF`
        const HALF: [c_int; 2] = [2, 14];
        let bytes = match kind {
            FLOAT => 4,
            _ if HALF.contains(&kind) => 2,
            _ => 1,
        };
        let values = rows.max(0) as u64 * columns.max(0) as u64;
        Structured { dense_bytes: values * bytes, is_of_bytes: bytes == 1 }
    }

    /// Bytes without the zeros.
    fn compressed(self) -> u64 {
        let sixteenths = if self.is_of_bytes { 10 } else { 9 };
        (self.dense_bytes * sixteenths).div_ceil(16)
    }
}

skins! {
    cusparseLtStructuredDescriptorInit(
        _handle: *const c_void, to: *mut Structured, rows: i64, columns: i64, _leading: i64,
        _alignment: u32, kind: c_int, _order: c_int, _sparsity: c_int
    ) = put(to, Structured::new(rows, columns, kind));
    cusparseLtSpMMACompressedSize2(
        _handle: *const c_void, of: *const Structured, to: *mut usize, workspace: *mut usize
    ) = {
        let Some(&matrix) = of.as_ref() else { return INVALID_VALUE };
        let guess = Guess { what: SPARSE, bytes: 0, ends: (0, matrix.dense_bytes), chances: (0, 25) };
        put(workspace, used("cusparseLtSpMMACompressedSize2", &[], guess) as usize);
        put(to, matrix.compressed() as usize)
    };
    cusparseLtMatmulAlgGetAttribute(
        _handle: *const c_void, _of: *const c_void, attribute: c_int, to: *mut c_int, _size: usize
    ) = {
        /// `CUSPARSELT_MATMUL_SPLIT_K`, which is one where nothing is split.
        const SPLIT: c_int = 3;
        put(to, c_int::from(attribute == SPLIT))
    };
}
