//! cuSPARSE: sizes of sparse matrices, of products of them, and of the workspaces for these.
//!
//! How many values a product or sum of two sparse matrices has depends on where theirs are. Nothing here looks: values
//! are taken to lie at random, each place as likely as any other.
//!
//! Triangular solvers, products by blocks (BSR) and sampled products say that they need no workspace. That was not
//! measured.

use std::ffi::{c_char, c_int, c_void};

use crate::workspace::{self, Sparse};

use crate::exports::objects::Objects;
use crate::exports::state::{self, put};

/// `cusparseStatus_t`
type Status = c_int;
const SUCCESS: Status = 0;
const INVALID_VALUE: Status = 3;

/// Sparse matrices.
static MATRICES: Objects<Sparse> = Objects::new();
/// Columns of dense matrices.
static DENSE: Objects<u64> = Objects::new();

#[unsafe(no_mangle)]
pub extern "C" fn cusparseGetErrorString(code: Status) -> *const c_char {
    state::numbered("cuSPARSE", code)
}

/// # Safety
/// `to` can be written to.
unsafe fn create(to: *mut *mut c_void, rows: i64, columns: i64, nonzero: i64) -> Status {
    let [rows, columns, nonzero] = [rows, columns, nonzero].map(|count| count.max(0) as u64);
    // SAFETY: as the caller promises.
    unsafe { MATRICES.create(to, Sparse { rows, columns, nonzero }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseCreateCoo(
    to: *mut *mut c_void,
    rows: i64,
    columns: i64,
    nonzero: i64,
) -> Status {
    // SAFETY: the caller hands over a place for the matrix.
    unsafe { create(to, rows, columns, nonzero) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseCreateCsr(
    to: *mut *mut c_void,
    rows: i64,
    columns: i64,
    nonzero: i64,
) -> Status {
    // SAFETY: the caller hands over a place for the matrix.
    unsafe { create(to, rows, columns, nonzero) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseDestroySpMat(of: *mut c_void) -> Status {
    MATRICES.forget(of);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseCreateDnMat(
    to: *mut *mut c_void,
    _rows: i64,
    columns: i64,
) -> Status {
    // SAFETY: the caller hands over a place for the matrix.
    unsafe { DENSE.create(to, columns.max(0) as u64) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseDestroyDnMat(of: *mut c_void) -> Status {
    DENSE.forget(of);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpMatGetSize(
    of: *mut c_void,
    rows: *mut i64,
    columns: *mut i64,
    nonzero: *mut i64,
) -> Status {
    let Some(matrix) = MATRICES.get(of) else { return INVALID_VALUE };
    // SAFETY: the caller hands over places for all three.
    unsafe {
        put(rows, matrix.rows as i64);
        put(columns, matrix.columns as i64);
        put(nonzero, matrix.nonzero as i64)
    }
}

/// A product with a dense matrix. With one column it is a product with a vector.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpMM_bufferSize(
    _handle: *mut c_void,
    _a_op: c_int,
    _b_op: c_int,
    _alpha: *const c_void,
    a: *mut c_void,
    _b: *mut c_void,
    _beta: *const c_void,
    c: *mut c_void,
    _compute: c_int,
    algorithm: c_int,
    to: *mut usize,
) -> Status {
    /// `CUSPARSE_SPMM_CSR_ALG2`
    const BY_ROWS: c_int = 6;
    let Some(matrix) = MATRICES.get(a) else { return INVALID_VALUE };
    let is_vector = DENSE.get(c) == Some(1);
    let bytes = if is_vector {
        matrix.vector_product()
    } else {
        matrix.dense_product(algorithm == BY_ROWS)
    };
    // SAFETY: the caller hands over a place for the size.
    unsafe { put(to, bytes as usize) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpMV_bufferSize(
    _handle: *mut c_void,
    _op: c_int,
    _alpha: *const c_void,
    a: *mut c_void,
    _x: *mut c_void,
    _beta: *const c_void,
    _y: *mut c_void,
    _compute: c_int,
    _algorithm: c_int,
    to: *mut usize,
) -> Status {
    let Some(matrix) = MATRICES.get(a) else { return INVALID_VALUE };
    // SAFETY: the caller hands over a place for the size.
    unsafe { put(to, matrix.vector_product() as usize) }
}

/// The first step of a product of two sparse matrices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpGEMM_workEstimation(
    _handle: *mut c_void,
    _a_op: c_int,
    _b_op: c_int,
    _alpha: *const c_void,
    a: *mut c_void,
    _b: *mut c_void,
    _beta: *const c_void,
    _c: *mut c_void,
    _compute: c_int,
    _algorithm: c_int,
    _plan: *mut c_void,
    to: *mut usize,
) -> Status {
    let Some(a) = MATRICES.get(a) else { return INVALID_VALUE };
    // SAFETY: the caller hands over a place for the size.
    unsafe { put(to, a.estimate() as usize) }
}

/// The second step. After it the size of the product is known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpGEMM_compute(
    _handle: *mut c_void,
    _a_op: c_int,
    _b_op: c_int,
    _alpha: *const c_void,
    a: *mut c_void,
    b: *mut c_void,
    _beta: *const c_void,
    c: *mut c_void,
    _compute: c_int,
    _algorithm: c_int,
    _plan: *mut c_void,
    to: *mut usize,
) -> Status {
    let (Some(a), Some(b)) = (MATRICES.get(a), MATRICES.get(b)) else { return INVALID_VALUE };
    MATRICES.change(c, |product| product.nonzero = a.times(&b));
    // SAFETY: the caller hands over a place for the size.
    unsafe { put(to, a.sparse_product(&b) as usize) }
}

/// Sums of two sparse matrices of one element type ask for a workspace alike.
macro_rules! sums {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            _handle: *mut c_void, rows: c_int, _columns: c_int, _alpha: *const c_void,
            _a: *mut c_void, _a_nonzero: c_int, _a_values: *const c_void, _a_rows: *const c_int,
            _a_columns: *const c_int, _beta: *const c_void, _b: *mut c_void, _b_nonzero: c_int,
            _b_values: *const c_void, _b_rows: *const c_int, _b_columns: *const c_int,
            _c: *mut c_void, _c_values: *const c_void, _c_rows: *const c_int,
            _c_columns: *const c_int, to: *mut usize,
        ) -> Status {
            // SAFETY: the caller hands over a place for the size.
            unsafe { put(to, workspace::sparse_sum(rows.max(0) as u64) as usize) }
        }
    )*};
}

sums! {
    cusparseScsrgeam2_bufferSizeExt cusparseDcsrgeam2_bufferSizeExt
    cusparseCcsrgeam2_bufferSizeExt cusparseZcsrgeam2_bufferSizeExt
}

/// How many values a sum of two sparse matrices has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseXcsrgeam2Nnz(
    _handle: *mut c_void,
    rows: c_int,
    columns: c_int,
    _a: *mut c_void,
    a_nonzero: c_int,
    _a_rows: *const c_int,
    _a_columns: *const c_int,
    _b: *mut c_void,
    b_nonzero: c_int,
    _b_rows: *const c_int,
    _b_columns: *const c_int,
    _c: *mut c_void,
    _c_rows: *mut c_int,
    to: *mut c_int,
    _workspace: *mut c_void,
) -> Status {
    let of = |nonzero: c_int| Sparse {
        rows: rows.max(0) as u64,
        columns: columns.max(0) as u64,
        nonzero: nonzero.max(0) as u64,
    };
    // SAFETY: the caller hands over a place for the number.
    unsafe { put(to, of(a_nonzero).plus(&of(b_nonzero)) as c_int) }
}
