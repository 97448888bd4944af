//! Sparse matrices: the workspaces of their products, and the sizes of results that depend on where values lie.

/// A sparse matrix as cuSPARSE gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sparse {
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// Values that are not zero.
    pub nonzero: u64,
}

impl Sparse {
    /// Bytes for a product with a dense matrix, which lies row by row or column by column. Of 28 measured, 27 are in
    /// the same block of 512 bytes.
    pub fn dense_product(&self, by_rows: bool) -> u64 {
        if by_rows { self.nonzero / 3 + 11 } else { self.nonzero / 64 + 10 }
    }

    /// Bytes for a product with a vector.
    pub fn vector_product(&self) -> u64 {
        self.nonzero / 390 + 23
    }

    /// Bytes for the estimate, the first step of a product with a sparse matrix. Within 2 KB of all ten measured.
    pub fn estimate(&self) -> u64 {
        12 * self.nonzero + 1079
    }

    /// Products of single values in a product of two sparse matrices, if values lie at random.
    fn products(&self, with: &Self) -> u64 {
        let all = u128::from(self.nonzero) * u128::from(with.nonzero);
        (all / u128::from(with.rows.max(1))) as u64
    }

    /// Bytes for the second step. Where values do lie at random, within 4 % of eight measured; two small ones
    /// need 10 % more.
    pub fn sparse_product(&self, with: &Self) -> u64 {
        24 * self.products(with)
    }

    /// Values of a product, if those of the factors lie at random.
    pub fn times(&self, with: &Self) -> u64 {
        let places = self.rows as f64 * with.columns as f64;
        let share = -(-(self.products(with) as f64) / places.max(1.0)).exp_m1();
        (places * share).round() as u64
    }

    /// Values of a sum, if those of both lie at random.
    pub fn plus(&self, other: &Self) -> u64 {
        let places = (self.rows as f64 * self.columns as f64).max(1.0);
        let shared = self.nonzero as f64 * other.nonzero as f64 / places;
        (self.nonzero + other.nonzero).saturating_sub(shared.round() as u64)
    }
}

/// Bytes for a sum of two sparse matrices of this many rows. Exact for all seven measured.
pub fn sparse_sum(rows: u64) -> u64 {
    512 + rows / 32_768 * 128
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(rows: u64, nonzero: u64) -> Sparse {
        Sparse { rows, columns: rows, nonzero }
    }

    #[test]
    fn products_with_dense_matrices() {
        assert_eq!(square(100_000, 999_948).dense_product(true), 333_327);
        assert_eq!(square(100_000, 999_956).dense_product(false), 15_634);
        assert!(square(169_343, 1_166_221).vector_product().abs_diff(3055) < 64);
        assert_eq!([10_000, 100_000, 169_343].map(sparse_sum), [512, 896, 1152]);
    }

    #[test]
    fn sparse_results_are_near_the_measured() {
        let (a, b) = (square(10_000, 99_946), square(10_000, 99_955));
        let near = |of: u64, measured: f64| (of as f64 / measured - 1.0).abs() < 0.01;
        assert!(near(a.estimate(), 1_201_967.0) && near(a.sparse_product(&b), 24_053_215.0));
        assert!(near(a.times(&b), 3_974_564.0 / 4.0) && near(a.plus(&b), 799_200.0 / 4.0));
    }
}
