//! The run of a fleet: workers take recordings in order, and whoever does the last of a part writes it.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rayon::prelude::*;
use twox_hash::XxHash3_128;

use super::about::About;
use super::config::Config;
use super::layout::{Layout, Part, Shard};
use super::listing::FileEntry;
use super::reading::{read, row_count};
use super::store::Store;
use super::tables::{Column, SCHEMA_VERSION, TABLES, errors, heading, ranks, runs, steps};
use super::task::{Rows, rows_of};
use crate::input_error::InputError;
use crate::report::ReportError;
use crate::report::parquet::{Value, encode};

/// The most threads that `--jobs` gets: more are of no use.
pub const MOST_JOBS: usize = 256;

/// Why a fleet could not be run to its end. What is done stays done.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The folder cannot be used.
    #[error(transparent)]
    Store(#[from] InputError),
    /// A table cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

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

/// A part that is being worked on.
struct Work<'a> {
    part: &'a Part,
    rows: Mutex<Vec<Option<Rows>>>,
    left: AtomicUsize,
}

/// What the workers share.
struct Crew<'a> {
    store: Store,
    config: &'a Config,
    works: Vec<Work<'a>>,
    /// Work and number of each recording, in the order in which they are taken.
    queue: Vec<(usize, usize)>,
    next: AtomicUsize,
    runs: AtomicU64,
    errors: AtomicU64,
    is_over: AtomicBool,
    failure: Mutex<Option<FleetError>>,
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
/// If `out` cannot be written or holds something else.
pub fn run(
    layout: &Layout,
    config: &Config,
    options: RunOptions<'_>,
    done: &(dyn Fn(&FileEntry) + Sync),
) -> Result<Outcome, FleetError> {
    let about = About {
        schema_version: SCHEMA_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        inputs: options.inputs.to_vec(),
        runs: config.runs(),
        conditions: format!("{:032x}", XxHash3_128::oneshot(config.conditions().as_bytes())),
    };
    let store = Store::open(options.out, &about)?;
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
    let crew = Crew::new(store, config, &missing);
    let workers = options
        .jobs
        .or_else(|| thread::available_parallelism().ok())
        .map_or(1, usize::from)
        .min(MOST_JOBS);
    thread::scope(|scope| {
        for _ in 0..workers.min(crew.queue.len()) {
            scope.spawn(|| crew.work(done));
        }
    });
    if let Some(failure) = crew.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(failure);
    }
    outcome.files = crew.queue.len();
    outcome.runs = crew.runs.into_inner();
    outcome.errors += crew.errors.into_inner();
    Ok(outcome)
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

fn errors_of(store: &Store, part: &Part) -> Result<u64, FleetError> {
    let name = format!("errors/{}", part.path);
    if !store.has(&name) {
        return Ok(0);
    }
    Ok(row_count(&store.path(&name))?)
}

impl<'a> Crew<'a> {
    fn new(store: Store, config: &'a Config, parts: &[&'a Part]) -> Self {
        let work = |part: &&'a Part| Work {
            part,
            rows: Mutex::new(vec![None; part.files.len()]),
            left: AtomicUsize::new(part.files.len()),
        };
        let of = |(index, part): (usize, &&Part)| (0..part.files.len()).map(move |n| (index, n));
        Self {
            store,
            config,
            works: parts.iter().map(work).collect(),
            queue: parts.iter().enumerate().flat_map(of).collect(),
            next: AtomicUsize::new(0),
            runs: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// One worker.
    fn work(&self, done: &(dyn Fn(&FileEntry) + Sync)) {
        while !self.is_over.load(Ordering::Relaxed) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&(work, number)) = self.queue.get(next) else { return };
            let work = &self.works[work];
            let file = &work.part.files[number];
            let count = || {
                self.runs.fetch_add(1, Ordering::Relaxed);
            };
            let rows = rows_of(file, self.config, &count);
            self.errors.fetch_add(rows.errors.len() as u64, Ordering::Relaxed);
            work.rows.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(rows);
            if work.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finish(work);
            }
            done(file);
        }
    }

    /// Writes a part whose recordings are all done.
    fn finish(&self, work: &Work<'_>) {
        let mut rows = work.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Rows::default();
        rows.drain(..).flatten().for_each(|rows| all.extend(rows));
        if let Err(error) = self.write(work.part, &all) {
            self.is_over.store(true, Ordering::Relaxed);
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    /// The ranks come last: where they are, the others are, too.
    fn write(&self, part: &Part, rows: &Rows) -> Result<(), FleetError> {
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
    ) -> Result<(), FleetError> {
        let bytes = encode(name, &heading(columns), rows)?;
        Ok(self.store.write(&format!("{name}/{}", part.path), &bytes)?)
    }
}
