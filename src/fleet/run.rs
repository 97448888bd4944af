//! The run of a fleet: workers take recordings in order, and whoever does the last of a part writes it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rayon::prelude::*;
use twox_hash::XxHash3_128;

use super::about::About;
use super::config::Config;
use super::layout::{Layout, Part, Shard};
use super::listing::FileEntry;
use super::reading::read;
use super::store::Store;
use super::tables::{Column, SCHEMA_VERSION, TABLES, errors, heading, ranks, runs, steps};
use super::task::{Rows, rows_of};
use crate::input_error::InputError;
use crate::report::parquet::{Value, encode};

/// The most threads that `--jobs` gets: more are of no use.
pub const MOST_JOBS: usize = 256;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Recordings that were run now.
    pub files: usize,
    /// Recordings that were done before.
    pub files_before: usize,
    /// Runs of allocators.
    pub runs: u64,
    /// Problems, those of before included.
    pub errors: u64,
    /// Parts of earlier listings that were taken away.
    pub removed: usize,
}

/// What the workers share.
struct Crew<'a> {
    store: Store,
    config: &'a Config,
    parts: &'a [&'a Part],
    /// Part and number of each recording, in the order in which they are taken.
    queue: Vec<(usize, usize)>,
    next: AtomicUsize,
    progress: Mutex<Progress>,
}

/// What the workers have done.
struct Progress {
    /// Of each part that is not written yet, the rows of its recordings by their numbers.
    rows: Vec<BTreeMap<usize, Rows>>,
    outcome: Outcome,
    failure: Option<InputError>,
}

/// Where a fleet goes, and how much of it is done by whom.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions<'a> {
    /// The folder of the tables.
    pub out: &'a Path,
    /// What was listed, as typed.
    pub inputs: &'a [String],
    /// The parts that are done.
    pub shard: Shard,
    /// Threads; `None`: one for each core.
    pub jobs: Option<NonZeroUsize>,
    /// Whether parts that have errors are done again.
    pub retries_errors: bool,
}

/// Runs a shard of a layout into tables. `done` is called after each recording, from any thread.
///
/// # Errors
/// If `out` cannot be written or holds something else. What is done stays done.
pub fn run(
    layout: &Layout,
    config: &Config,
    options: RunOptions<'_>,
    done: &(dyn Fn(&FileEntry) + Sync),
) -> Result<Outcome, InputError> {
    let about = About {
        schema_version: SCHEMA_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        inputs: options.inputs.to_vec(),
        runs: config.runs(),
        conditions: format!("{:032x}", XxHash3_128::oneshot(config.conditions().as_bytes())),
    };
    let store = Store::open(options.out, &about)?;
    store.remove_abandoned();
    let removed = remove_others(&store, layout)?;
    let parts: Vec<&Part> = layout.of(options.shard).collect();
    let (known, missing): (Vec<&Part>, Vec<&Part>) = parts.into_par_iter().partition(|part| {
        is_whole(&store, part, config)
            && !(options.retries_errors && store.has(&format!("errors/{}", part.path)))
    });
    let mut outcome = Outcome { removed, ..Outcome::default() };
    for part in &known {
        outcome.files_before += part.files.len();
        outcome.errors += errors_of(&store, part)?;
        part.files.iter().for_each(done);
    }
    let of = |(index, part): (usize, &&Part)| (0..part.files.len()).map(move |n| (index, n));
    let queue: Vec<_> = missing.iter().enumerate().flat_map(of).collect();
    outcome.files = queue.len();
    let rows = vec![BTreeMap::new(); missing.len()];
    let progress = Mutex::new(Progress { rows, outcome, failure: None });
    let crew = Crew { store, config, parts: &missing, queue, next: AtomicUsize::new(0), progress };
    let workers = options.jobs.or_else(|| thread::available_parallelism().ok());
    let workers = workers.map_or(1, usize::from).min(MOST_JOBS);
    thread::scope(|scope| {
        for _ in 0..workers.min(crew.queue.len()) {
            scope.spawn(|| crew.work(done));
        }
    });
    let progress = crew.progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    progress.failure.map_or(Ok(progress.outcome), Err)
}

/// Takes away parts that the layout does not have: their recordings have changed, or have gone.
fn remove_others(store: &Store, layout: &Layout) -> Result<usize, InputError> {
    let mut wanted: Vec<&str> = layout.parts.iter().map(|part| part.path.as_str()).collect();
    wanted.sort_unstable();
    let mut removed = 0;
    for table in &TABLES {
        for part in store.parts(table.name)? {
            if wanted.binary_search(&part.as_str()).is_err() {
                store.remove(&format!("{}/{part}", table.name))?;
                removed += usize::from(table.name == "ranks");
            }
        }
    }
    Ok(removed)
}

/// Whether a part can be read in each table: a disk may have damaged what was written whole. The ranks come last, so
/// that without them nothing is read.
fn is_whole(store: &Store, part: &Part, config: &Config) -> bool {
    let path = |table: &str| store.path(&format!("{table}/{}", part.path));
    let is_read = |table: &str| read(&path(table)).is_ok();
    let has_no_errors = || !store.has(&format!("errors/{}", part.path));
    is_read("ranks")
        && is_read("runs")
        && (!config.has_steps || is_read("steps"))
        && (has_no_errors() || is_read("errors"))
}

fn errors_of(store: &Store, part: &Part) -> Result<u64, InputError> {
    let name = format!("errors/{}", part.path);
    if !store.has(&name) {
        return Ok(0);
    }
    Ok(read(&store.path(&name))?.1.len() as u64)
}

impl Crew<'_> {
    /// One worker.
    fn work(&self, done: &(dyn Fn(&FileEntry) + Sync)) {
        let next = || self.queue.get(self.next.fetch_add(1, Ordering::Relaxed)).copied();
        while let Some((part, number)) = next() {
            let file = &self.parts[part].files[number];
            if let Some(all) = self.note(part, number, rows_of(file, self.config))
                && let Err(failure) = self.write(self.parts[part], &all)
            {
                self.next.store(self.queue.len(), Ordering::Relaxed);
                self.progress().failure = Some(failure);
            }
            done(file);
        }
    }

    /// Takes note of a recording's rows. All rows of its part, if that is done.
    fn note(&self, part: usize, number: usize, rows: Rows) -> Option<Rows> {
        let mut progress = self.progress();
        progress.outcome.runs += rows.made;
        progress.outcome.errors += rows.errors.len() as u64;
        let known = &mut progress.rows[part];
        known.insert(number, rows);
        (known.len() == self.parts[part].files.len()).then(|| {
            let mut all = Rows::default();
            std::mem::take(known).into_values().for_each(|rows| all.extend(rows));
            all
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ranks come last: where they are, the others are, too.
    fn write(&self, part: &Part, rows: &Rows) -> Result<(), InputError> {
        match rows.errors.is_empty() {
            true => self.store.remove(&format!("errors/{}", part.path))?,
            false => self.write_table("errors", &errors(), part, &rows.errors)?,
        }
        if self.config.has_steps {
            self.write_table("steps", &steps(), part, &rows.steps)?;
        }
        self.write_table("runs", &runs(), part, &rows.runs)?;
        self.write_table("ranks", &ranks(), part, &rows.ranks)
    }

    fn write_table<R>(
        &self,
        name: &str,
        columns: &[Column<R>],
        part: &Part,
        rows: &[Vec<Value>],
    ) -> Result<(), InputError> {
        let bytes = encode(name, &heading(columns), rows);
        let bytes = bytes.map_err(|error| InputError(error.to_string()))?;
        self.store.write(&format!("{name}/{}", part.path), &bytes)
    }
}
