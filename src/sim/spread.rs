//! Spreading the work on one file over the processor's cores.
//!
//! Of several files, each worker takes one at a time and does all its runs itself. If it spread them too, it would take
//! up a second file while it waits for the others' results, and soon all files were in memory at once.

use std::path::Path;

use rayon::iter::Either;
use rayon::prelude::*;

use super::job::{Job, RankFile};
use super::open::open;
use super::opened::Opened;
use super::single::FileError;
use crate::trace::LoadOptions;

/// Who does the runs of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Everybody: it is the only file.
    AllCores,
    /// The worker that has opened it.
    OneCore,
}

impl Spread {
    /// What keeps all cores busy with this many files.
    pub(crate) fn of_files(files: usize) -> Self {
        if files == 1 { Self::AllCores } else { Self::OneCore }
    }

    /// Results in the order of the items; the first error ends it.
    pub(crate) fn map<T: Sync, R: Send, E: Send>(
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

/// A result for each rank of a job, in order and over all cores, and what is wrong with the files that have
/// none. A worker has one file in memory at a time; `done` is called, from any thread, after each.
pub(crate) fn each_rank<R: Send>(
    job: &Job,
    options: &LoadOptions,
    done: impl Fn(&Path) + Sync,
    one: impl Fn(&RankFile, &Opened) -> Result<R, FileError> + Sync,
) -> (Vec<R>, Vec<String>) {
    let run = |rank: &RankFile| {
        let opened = open(&rank.path, options).map_err(FileError::from);
        let result = opened.and_then(|opened| one(rank, &opened));
        done(&rank.path);
        result
    };
    job.ranks.par_iter().map(run).partition_map(|result| match result {
        Ok(result) => Either::Left(result),
        Err(error) => Either::Right(error.to_string()),
    })
}
