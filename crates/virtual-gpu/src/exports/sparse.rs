//! cuSPARSE: sizes of sparse matrices, of products of them, and of the workspaces for these.
//!
//! How many values a product or sum of two sparse matrices has depends on where theirs are. Nothing here looks: values
//! are taken to lie at random, each place as likely as any other.
//!
//! Triangular solvers, products by blocks (BSR) and sampled products say that they need no workspace. That was not
//! measured. What can be is asked by `python -m gmlake measure`, but not how many values a product has.

use std::ffi::{c_char, c_int, c_void};

use crate::workspace::{self, Guess, Sparse};

use crate::exports::libraries::{self, SPARSE};
use crate::exports::matrices::{DENSE, MATRICES};
use crate::exports::state::{self, number, put};

/// `cusparseStatus_t`
type Status = c_int;
const SUCCESS: Status = 0;
const INVALID_VALUE: Status = 3;

/// Bytes for an operation that is about to run, by a rule that is off by no more than this.
fn ask<const N: usize>(name: &'static str, with: [u64; N], bytes: u64, off: u64) -> usize {
    let ends = (bytes.saturating_sub(off), bytes + off);
    libraries::used(name, &with, Guess { what: SPARSE, bytes, ends, chances: (5, 5) }) as usize
}

/// Whether a factor is not zero, as an argument of a call: cuSPARSE takes nothing for a product that need not be made.
///
/// # Safety
/// `factor` is null or holds a number of this `cudaDataType`, on the host.
unsafe fn factor(factor: *const c_void, compute: c_int) -> u64 {
    let bytes = match compute {
        1 | 4 => 8,
        5 => 16,
        _ => 4,
    };
    // SAFETY: as the caller promises.
    let is_one = !factor.is_null()
        && unsafe { std::slice::from_raw_parts(factor.cast::<u8>(), bytes) }
            .iter()
            .any(|&it| it != 0);
    is_one.into()
}

/// An integer as an argument of a call.
fn int(value: c_int) -> u64 {
    i64::from(value) as u64
}

/// A sparse matrix, and what it is called.
fn matrix(sizes: [i64; 3], format: &str, kinds: &[c_int]) -> (Sparse, String) {
    let [rows, columns, nonzero] = sizes.map(|count| count.max(0) as u64);
    let kinds = kinds.iter().map(c_int::to_string).collect::<Vec<_>>().join("/");
    (Sparse { rows, columns, nonzero }, format!("{format}/{kinds}"))
}

/// Sums of two sparse matrices of one element type ask for a workspace alike.
macro_rules! sums {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            _handle: *mut c_void, rows: c_int, columns: c_int, _alpha: *const c_void,
            _a: *mut c_void, a_nonzero: c_int, _a_values: *const c_void, _a_rows: *const c_int,
            _a_columns: *const c_int, _beta: *const c_void, _b: *mut c_void, b_nonzero: c_int,
            _b_values: *const c_void, _b_rows: *const c_int, _b_columns: *const c_int,
            _c: *mut c_void, _c_values: *const c_void, _c_rows: *const c_int,
            _c_columns: *const c_int, to: *mut usize,
        ) -> Status {
            let [rows, columns, a, b] = [rows, columns, a_nonzero, b_nonzero].map(int);
            let with = [0, rows, columns, 1, 0, a, 0, 0, 0, 1, 0, b, 0, 0, 0, 0, 0, 0, 0, 0];
            let bytes = workspace::sparse_sum(rows);
            // SAFETY: the caller hands over a place for the size.
            unsafe { put(to, ask(stringify!($name), with, bytes, 0)) }
        }
    )*};
}

sums! {
    cusparseScsrgeam2_bufferSizeExt cusparseDcsrgeam2_bufferSizeExt
    cusparseCcsrgeam2_bufferSizeExt cusparseZcsrgeam2_bufferSizeExt
}

skins! {
    cusparseGetErrorString(code: Status) -> *const c_char = state::numbered("cuSPARSE", code);
    cusparseSpMatGetSize(of: *mut c_void, rows: *mut i64, columns: *mut i64, nonzero: *mut i64) = {
        let Some((matrix, _)) = MATRICES.get(of) else { return INVALID_VALUE };
        put(rows, matrix.rows as i64);
        put(columns, matrix.columns as i64);
        put(nonzero, matrix.nonzero as i64)
    };
    /// A product with a dense matrix. With one column it is a product with a vector.
    cusparseSpMM_bufferSize(
        _handle: *mut c_void, a_op: c_int, b_op: c_int, alpha: *const c_void, a: *mut c_void,
        b: *mut c_void, beta: *const c_void, c: *mut c_void, compute: c_int, algorithm: c_int,
        to: *mut usize
    ) = {
        /// `CUSPARSE_SPMM_CSR_ALG2`
        const BY_ROWS: c_int = 6;
        let Some((matrix, _)) = MATRICES.get(a) else { return INVALID_VALUE };
        let is_vector = DENSE.get(c).is_some_and(|(columns, _)| columns == 1);
        let bytes = if is_vector {
            matrix.vector_product()
        } else {
            matrix.dense_product(algorithm == BY_ROWS)
        };
        let [a, b, c] = [a, b, c].map(|it| number(it));
        let [alpha, beta] = [alpha, beta].map(|it| factor(it, compute));
        let (a_op, b_op, algorithm) = (int(a_op), int(b_op), int(algorithm));
        let with = [0, a_op, b_op, alpha, a, b, beta, c, int(compute), algorithm, 0];
        put(to, ask("cusparseSpMM_bufferSize", with, bytes, bytes / 50 + 1024))
    };
    cusparseSpMV_bufferSize(
        _handle: *mut c_void, op: c_int, alpha: *const c_void, a: *mut c_void, x: *mut c_void,
        beta: *const c_void, y: *mut c_void, compute: c_int, algorithm: c_int, to: *mut usize
    ) = {
        let Some((matrix, _)) = MATRICES.get(a) else { return INVALID_VALUE };
        let bytes = matrix.vector_product();
        let [a, x, y] = [a, x, y].map(|it| number(it));
        let [alpha, beta] = [alpha, beta].map(|it| factor(it, compute));
        let with = [0, int(op), alpha, a, x, beta, y, int(compute), int(algorithm), 0];
        put(to, ask("cusparseSpMV_bufferSize", with, bytes, bytes / 50 + 1024))
    };
    /// The first step of a product of two sparse matrices.
    cusparseSpGEMM_workEstimation(
        _handle: *mut c_void, a_op: c_int, b_op: c_int, alpha: *const c_void, a: *mut c_void,
        b: *mut c_void, beta: *const c_void, c: *mut c_void, compute: c_int, algorithm: c_int,
        _plan: *mut c_void, to: *mut usize, buffer: *mut c_void
    ) = {
        let Some((matrix, _)) = MATRICES.get(a) else { return INVALID_VALUE };
        if !buffer.is_null() {
            return SUCCESS;
        }
        let bytes = matrix.estimate();
        let [a, b, c] = [a, b, c].map(|it| number(it));
        let [alpha, beta] = [alpha, beta].map(|it| factor(it, compute));
        let (a_op, b_op, algorithm) = (int(a_op), int(b_op), int(algorithm));
        let with = [0, a_op, b_op, alpha, a, b, beta, c, int(compute), algorithm, 0, 0, 0];
        put(to, ask("cusparseSpGEMM_workEstimation", with, bytes, 2048))
    };
    /// The second step. After it the size of the product is known. Its workspace depends on where values lie.
    cusparseSpGEMM_compute(
        _handle: *mut c_void, _a_op: c_int, _b_op: c_int, _alpha: *const c_void, a: *mut c_void,
        b: *mut c_void, _beta: *const c_void, c: *mut c_void, _compute: c_int, _algorithm: c_int,
        _plan: *mut c_void, to: *mut usize, buffer: *mut c_void
    ) = {
        let (Some((a, _)), Some((b, _))) = (MATRICES.get(a), MATRICES.get(b)) else {
            return INVALID_VALUE;
        };
        MATRICES.change(c, |(product, _)| product.nonzero = a.times(&b));
        if !buffer.is_null() {
            return SUCCESS;
        }
        let bytes = a.sparse_product(&b);
        put(to, ask("cusparseSpGEMM_compute", [], bytes, bytes / 10))
    };
    /// How many values a sum of two sparse matrices has.
    cusparseXcsrgeam2Nnz(
        _handle: *mut c_void, rows: c_int, columns: c_int, _a: *mut c_void, a_nonzero: c_int,
        _a_rows: *const c_int, _a_columns: *const c_int, _b: *mut c_void, b_nonzero: c_int,
        _b_rows: *const c_int, _b_columns: *const c_int, _c: *mut c_void, _c_rows: *mut c_int,
        to: *mut c_int, _workspace: *mut c_void
    ) = {
        let of = |nonzero: c_int| Sparse {
            rows: rows.max(0) as u64,
            columns: columns.max(0) as u64,
            nonzero: nonzero.max(0) as u64,
        };
        put(to, of(a_nonzero).plus(&of(b_nonzero)) as c_int)
    };
    cusparseCreateDnMat(
        to: *mut *mut c_void, rows: i64, columns: i64, leading: i64, _values: *const c_void,
        kind: c_int, order: c_int
    ) = DENSE.create(to, (
        columns.max(0) as u64, format!("dense/{rows}/{columns}/{leading}/{kind}/{order}")
    ));
    cusparseCreateCoo(
        to: *mut *mut c_void, rows: i64, columns: i64, nonzero: i64, _at_rows: *const c_void,
        _at_columns: *const c_void, _values: *const c_void, index: c_int, base: c_int,
        kind: c_int
    ) = MATRICES.create(to, matrix([rows, columns, nonzero], "coo", &[index, base, kind]));
    cusparseCreateCsr(
        to: *mut *mut c_void, rows: i64, columns: i64, nonzero: i64, _offsets: *const c_void,
        _at_columns: *const c_void, _values: *const c_void, offset: c_int, index: c_int,
        base: c_int, kind: c_int
    ) = MATRICES.create(to, matrix([rows, columns, nonzero], "csr", &[offset, index, base, kind]));
    cusparseDestroySpMat(of: *mut c_void) = { MATRICES.forget(of); SUCCESS };
    cusparseCreateDnVec(to: *mut *mut c_void, size: i64, _values: *const c_void, kind: c_int) =
        DENSE.create(to, (1, format!("vector/{size}/{kind}")));
    cusparseDestroyDnMat(of: *mut c_void) = { DENSE.forget(of); SUCCESS };
    cusparseDestroyDnVec(of: *mut c_void) = { DENSE.forget(of); SUCCESS };
}
