//! cuSPARSELt: matrices of which two of four values are zero, and that are kept without these.
//!
//! ```text
//! dense        a 0 0 b | 0 c d 0 | ...        16 bits a value: 4 values in 8 bytes
//! compressed   a b c d ...                    half of these bytes
//!              0 3 1 2 ...                    and 2 bits for each value that is left: where it was
//! ```
//!
//! The places are kept for whole tiles, 64 rows by 64 bytes. So a large matrix has 9/16 of the dense one's bytes, and
//! 10/16 where values have 8 or 32 bits. `examples/predict/compressed.py` writes the same for 60 matrices, from 32 x 32
//! to 16,384 x 4,096, here and on an H200 (cuSPARSELt 0.8.0, PyTorch 2.11).

use std::ffi::{c_int, c_void};

use crate::exports::state::put;

const INVALID_VALUE: c_int = 3;

/// What is kept of a matrix in the place that the caller has for its description.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Structured {
    dense_bytes: u64,
    /// Bytes that tell where the values were.
    places: u64,
    /// Bytes that it takes to compress the matrix.
    workspace: u64,
}

impl Structured {
    /// A matrix of these rows and columns, with values of a `cudaDataType`.
    fn new(rows: i64, columns: i64, kind: c_int) -> Structured {
        /// `CUDA_R_32F`
        const FLOAT: c_int = 0;
        /// `CUDA_R_16F` and `CUDA_R_16BF`
        const HALF: [c_int; 2] = [2, 14];
        const TILE: u64 = 64;
        let (bytes, places, workspace) = match kind {
            FLOAT => (4, 2, 4),
            _ if HALF.contains(&kind) => (2, 8, 8),
            _ => (1, 8, 8),
        };
        let [rows, columns] = [rows, columns].map(|count| count.max(0) as u64);
        let tiled = rows.next_multiple_of(TILE) * columns.next_multiple_of(TILE / bytes);
        Structured {
            dense_bytes: rows * columns * bytes,
            places: tiled / places,
            workspace: tiled / workspace,
        }
    }

    /// Bytes without the zeros.
    fn compressed(self) -> u64 {
        self.dense_bytes / 2 + self.places
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
        put(workspace, matrix.workspace as usize);
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
