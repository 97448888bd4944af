//! Decompositions: what cuSOLVER takes to factor a matrix.
//!
//! Measured on an H100 (cuSOLVER 12.0) for matrices of 2 to 4,096 rows, by `examples/predict/decompositions.py`: the
//! points of the curves. Between two points lies a straight line, beyond the last one the curve grows with the square.
//! 64 bits take twice as much, complex numbers of 64 bits four times, but for LU and Cholesky.

use gmlake_core::units::Bytes;

/// Columns, and bytes for 32 bits.
type Curve = &'static [(u64, u64)];

/// Into eigenvalues, by divide and conquer.
const SYEVD: Curve = &[
    (2, 268_651),
    (16, 314_571),
    (64, 508_235),
    (128, 852_299),
    (256, 1_835_339),
    (512, 4_981_067),
    (768, 9_959_243),
    (1024, 17_429_323),
];
/// The same, by Jacobi's method.
const SYEVJ: Curve = &[
    (2, 2048),
    (33, 16_846),
    (64, 28_998),
    (128, 86_798),
    (200, 194_378),
    (256, 301_086),
    (400, 701_698),
    (512, 1_124_414),
];
/// Into singular values, by Jacobi's method: of square matrices, of tall ones, and of wide ones by their rows.
const SQUARE: Curve = &[
    (33, 29_568),
    (64, 53_632),
    (128, 168_832),
    (200, 383_104),
    (256, 596_096),
    (400, 1_395_072),
    (512, 2_238_592),
    (768, 4_931_712),
    (1024, 8_675_456),
];
const TALL: Curve = &[(16, 3_145_984), (256, 3_148_800), (400, 5_924_096), (512, 8_655_872)];
const WIDE: Curve = &[
    (8, 3_147_136),
    (50, 3_186_176),
    (128, 3_408_512),
    (256, 4_197_376),
    (375, 7_632_896),
    (512, 12_850_176),
];

/// Bytes of a workspace, and the ends between which it lies; `name` is the function that asks, `arguments` are its.
pub fn decomposition(name: &str, arguments: &[u64]) -> (Bytes, Bytes, Bytes) {
    let at = |place: usize| arguments.get(place).copied().unwrap_or(0).min(1 << 20);
    let wide = width(name, arguments);
    let of = name.trim_start_matches("cusolverDn").trim_end_matches("_bufferSize");
    let known = |bytes: u64, off: u64| {
        (bytes * wide, (bytes - bytes / off) * wide, (bytes + bytes / off) * wide)
    };
    match of.trim_start_matches(['S', 'D', 'C', 'Z', 'X']) {
        "orgqr" | "ungqr" => known(4 * of_householder(at(1), at(2)), 50),
        "ormqr" | "unmqr" => known(4 * by_householder(at(3), at(4), at(5)), 50),
        "geqrf" => known(3_145_856 + 4096 * at(3).saturating_sub(256), 100),
        "potrf" => {
            let bytes = 158.max(126 + (4 * at(3).div_ceil(32).pow(2)).next_multiple_of(32));
            (bytes, bytes, bytes)
        }
        "getrf" => {
            let bytes = 766 + 12 * at(2);
            (bytes, 0, 4 * bytes + 65_536)
        }
        "syevd" => known(along(SYEVD, at(4)), 20),
        "syevBatched" => known(at(13).max(1) * along(SYEVD, at(4)), 20),
        "syevj" => known(along(SYEVJ, at(3)), 20),
        "gesvdjBatched" => known(3968, 100),
        "gesvdj" if at(3) == at(4) => known(along(SQUARE, at(3)), 20),
        "gesvdj" if at(3) > at(4) => known(along(TALL, at(4)), 2),
        "gesvdj" => known(along(WIDE, at(3)), 2),
        _ => (0, 0, at_most(arguments)),
    }
}

/// Elements for a matrix from its reflections. Equal for all 28 that were drawn.
fn of_householder(rows: u64, columns: u64) -> u64 {
    if columns < 128 {
        33_024 + (rows * columns).next_multiple_of(32)
    } else {
        128 * rows + 256 * columns + 16_640
    }
}

/// Elements for a product with reflections, of as many as `inner`. All of 20 drawn ones are within 0.2 %.
fn by_householder(rows: u64, columns: u64, inner: u64) -> u64 {
    256 * rows + rows * inner + 512 * columns + columns * inner + 65_856
}

/// How many times 32 bits a value has; of those functions that take any type, by their argument for it.
fn width(name: &str, arguments: &[u64]) -> u64 {
    if name.contains("getrf") || name.contains("potrf") {
        return 1;
    }
    match name.as_bytes().get("cusolverDn".len()) {
        Some(b'D' | b'C') => 2,
        Some(b'Z') => 4,
        Some(b'X') => {
            let place = if name.contains("Xgeqrf") { 4 } else { 5 };
            match arguments.get(place) {
                Some(1 | 4) => 2, // CUDA_R_64F, CUDA_C_32F
                Some(5) => 4,     // CUDA_C_64F
                _ => 1,
            }
        }
        _ => 1,
    }
}

/// The most for a function that was not measured: three matrices of its two largest sizes, and 4 MiB.
fn at_most(arguments: &[u64]) -> Bytes {
    let mut sizes: Vec<u64> = arguments.iter().copied().take(7).skip(1).collect();
    sizes.retain(|size| (1..=1 << 16).contains(size));
    sizes.sort_unstable();
    3 * 8 * sizes.iter().rev().take(2).product::<u64>() + (4 << 20)
}

/// The bytes of a curve at a number of columns.
fn along(curve: Curve, columns: u64) -> Bytes {
    let after = curve.partition_point(|point| point.0 < columns);
    match (after.checked_sub(1).and_then(|before| curve.get(before)), curve.get(after)) {
        (Some(&(x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (columns - x0) / (x1 - x0),
        (None, Some(&(_, first))) => first,
        (Some(&(last, bytes)), None) => bytes * columns * columns / (last * last),
        (None, None) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decompositions_take_what_was_measured() {
        let of = |name: &str, arguments: &[u64]| decomposition(name, arguments).0;
        let qr = |n| of("cusolverDnXgeqrf_bufferSize", &[0, 0, n, n, 0]);
        assert_eq!([33, 400, 1500, 4096].map(qr), [3_145_856, 3_735_680, 8_241_280, 18_874_496]);
        assert_eq!(of("cusolverDnXgeqrf_bufferSize", &[0, 0, 9, 9, 1]), 2 * 3_145_856);
        assert_eq!(of("cusolverDnXgeqrf_bufferSize", &[0, 0, 9, 9, 5]), 4 * 3_145_856);
        assert_eq!(of("cusolverDnSorgqr_bufferSize", &[0, 1616, 784, 784]), 1_696_768);
        assert_eq!(of("cusolverDnDorgqr_bufferSize", &[0, 16, 16, 16]), 266_240);
        let cholesky = |n| of("cusolverDnXpotrf_bufferSize", &[0, 0, 0, n, 1]);
        assert_eq!([2, 200, 1500, 4096].map(cholesky), [158, 350, 8990, 65_662]);
        assert_eq!(of("cusolverDnSgesvdj_bufferSize", &[0, 1, 1, 768, 768]), 4_931_712);
        assert_eq!(of("cusolverDnSgesvdj_bufferSize", &[0, 1, 1, 2048, 512]), 8_655_872);
        assert_eq!(of("cusolverDnSgesvdj_bufferSize", &[0, 1, 1, 128, 512]), 3_408_512);
    }

    #[test]
    fn what_was_not_measured_has_an_end_that_grows_with_its_matrix() {
        let sizes = |n| decomposition("cusolverDnSsytrf_bufferSize", &[0, n, n, 0]);
        assert_eq!(sizes(100), (0, 0, 240_000 + (4 << 20)));
        assert!(sizes(1000).2 > sizes(100).2);
    }
}
