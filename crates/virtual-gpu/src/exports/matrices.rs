//! Matrices and vectors as cuSPARSE gets them: their sizes, and their names in the lines of workspaces.

use std::ffi::c_void;

use crate::exports::objects::Objects;
use crate::workspace::Sparse;

/// Sparse matrices, and what they are called in a line but for their sizes.
pub static MATRICES: Objects<(Sparse, String)> = Objects::new();
/// Columns of dense matrices and of vectors, and their words.
pub static DENSE: Objects<(u64, String)> = Objects::new();

/// A matrix or a vector as a word: what it is, and the numbers by which it was made.
pub fn word(of: *const c_void) -> Option<String> {
    let dense = || DENSE.get(of).map(|(_, word)| word);
    let sparse = |(Sparse { rows, columns, nonzero }, kind): (Sparse, String)| {
        let (format, kinds) = kind.split_once('/').unwrap_or_default();
        format!("{format}/{rows}/{columns}/{nonzero}/{kinds}")
    };
    MATRICES.get(of).map(sparse).or_else(dense)
}
