//! How work on one file is spread over the processor's cores.
//!
//! Of several files, each worker takes one at a time and does all its runs itself. If it spread them too, it would take
//! up a second file while it waits for the others' results, and soon all files were in memory at once.

use rayon::prelude::*;

/// Who does the runs of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    /// Everybody: it is the only file.
    AllCores,
    /// The worker that has opened it.
    OneCore,
}

impl Spread {
    /// What keeps all cores busy with this many files.
    pub(super) fn of_files(files: usize) -> Self {
        if files == 1 { Self::AllCores } else { Self::OneCore }
    }

    /// Results in the order of the items; the first error ends it.
    pub(super) fn map<T: Sync, R: Send, E: Send>(
        self,
        items: &[T],
        one: impl Fn(&T) -> Result<R, E> + Sync + Send,
    ) -> Result<Vec<R>, E> {
        match self {
            Self::AllCores => items.par_iter().map(one).collect(),
            Self::OneCore => items.iter().map(one).collect(),
        }
    }
}
