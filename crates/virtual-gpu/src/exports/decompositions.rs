//! Decompositions of matrices, in cuSOLVER and cuBLAS: all succeed.
//!
//! Each leaves a status, which PyTorch reads: 0, or where a matrix was singular, not positive definite and the like.
//! Nothing is computed here, so no matrix is.

use std::ffi::c_int;

use crate::exports::collectives::set_known;
use crate::exports::state::{self, is_device, pointer};

/// Sets the status of this many matrices to 0.
///
/// # Safety
/// `at` is null or has room for them.
unsafe fn succeed(at: usize, matrices: usize) {
    let (at, bytes) = (pointer(at as u64), 4 * matrices);
    if at.is_null() {
        return;
    }
    // SAFETY: as the caller promises; device addresses are memory of this process.
    unsafe { std::ptr::write_bytes(at.cast::<u8>(), 0, bytes) };
    if is_device(at.expose_provenance() as u64) {
        set_known(at, bytes, true);
    }
}

/// Functions, behind pairs of numbers of arguments: a place for the status, and how many matrices there are, or 0 for
/// one.
macro_rules! decompositions {
    ($($places:tt: $($name:ident)*;)*) => {
        $($(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize,
            i: usize, j: usize, k: usize, l: usize, m: usize, n: usize, o: usize, p: usize,
            q: usize, r: usize, s: usize, t: usize, u: usize, v: usize,
        ) -> c_int {
            state::trace(stringify!($name));
            let all = [1, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v];
            for (place, count) in $places {
                let matrices = (all[count] as c_int).max(0) as usize;
                // SAFETY: the caller's argument of this number is a place for the status of each matrix.
                unsafe { succeed(all[place], matrices) };
            }
            0
        })*)*
    };
}

decompositions! {
    [(7, 0)]:
        cublasSgeqrfBatched cublasDgeqrfBatched cublasCgeqrfBatched cublasZgeqrfBatched;
    [(8, 0)]:
        cusolverDnSpotrf cusolverDnDpotrf cusolverDnCpotrf cusolverDnZpotrf cusolverDnSgetrf
        cusolverDnDgetrf cusolverDnCgetrf cusolverDnZgetrf;
    [(9, 0)]:
        cusolverDnSpotrs cusolverDnDpotrs cusolverDnCpotrs cusolverDnZpotrs cusolverDnSpotrsBatched
        cusolverDnDpotrsBatched cusolverDnCpotrsBatched cusolverDnZpotrsBatched cusolverDnSgeqrf
        cusolverDnDgeqrf cusolverDnCgeqrf cusolverDnZgeqrf cusolverDnSsytrf cusolverDnDsytrf
        cusolverDnCsytrf cusolverDnZsytrf;
    [(10, 0)]:
        cublasSgetrsBatched cublasDgetrsBatched cublasCgetrsBatched cublasZgetrsBatched
        cusolverDnSgetrs cusolverDnDgetrs cusolverDnCgetrs cusolverDnZgetrs cusolverDnSorgqr
        cusolverDnDorgqr cusolverDnCungqr cusolverDnZungqr cusolverDnSsyevd cusolverDnDsyevd
        cusolverDnCheevd cusolverDnZheevd cusolverDnSsyevj cusolverDnDsyevj cusolverDnCheevj
        cusolverDnZheevj;
    [(12, 0)]:
        cusolverDnXpotrs;
    [(13, 0)]:
        cusolverDnXpotrf;
    [(14, 0)]:
        cusolverDnSormqr cusolverDnDormqr cusolverDnCunmqr cusolverDnZunmqr;
    [(15, 0)]:
        cusolverDnSgesvdj cusolverDnDgesvdj cusolverDnCgesvdj cusolverDnZgesvdj cusolverDnXgeqrf;
    [(16, 0)]:
        cusolverDnSgesvd cusolverDnDgesvd cusolverDnCgesvd cusolverDnZgesvd cusolverDnXsyevd
        cusolverDnXsytrs;
    [(22, 0)]:
        cusolverDnXgeev;
    [(6, 7)]:
        cublasSgetrfBatched cublasDgetrfBatched cublasCgetrfBatched cublasZgetrfBatched
        cusolverDnSpotrfBatched cusolverDnDpotrfBatched cusolverDnCpotrfBatched
        cusolverDnZpotrfBatched;
    [(10, 12)]:
        cusolverDnSsyevjBatched cusolverDnDsyevjBatched cusolverDnCheevjBatched
        cusolverDnZheevjBatched;
    [(10, 0), (11, 12)]:
        cublasSgelsBatched cublasDgelsBatched cublasCgelsBatched cublasZgelsBatched;
    [(14, 16)]:
        cusolverDnSgesvdjBatched cusolverDnDgesvdjBatched cusolverDnCgesvdjBatched
        cusolverDnZgesvdjBatched;
    [(16, 17)]:
        cusolverDnXsyevBatched;
    [(19, 21)]:
        cusolverDnSgesvdaStridedBatched cusolverDnDgesvdaStridedBatched
        cusolverDnCgesvdaStridedBatched cusolverDnZgesvdaStridedBatched;
}
