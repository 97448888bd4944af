//! Sweeps: every point of a grid of options, devices and profiles, in parallel, and again from where it was stopped.
//!
//! ```text
//!   --set a=1,2 --set b=x,y ──▶ Grid: points ──┐
//!   files ─────────────────────────────────────┴──▶ run (or the Journal knows it) ──▶ SweepRow ──▶ CSV, JSON, plot
//! ```

mod axis;
mod grid;
mod journal;

pub use axis::AxisError;
pub use grid::{Grid, GridError, Point};
pub use journal::{Journal, JournalError};

use std::hash::Hasher;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use rustc_hash::FxHasher;

use super::compare::{check_assumptions, run_one};
use super::failure::FileError;
use super::open::{OpenOptions, Opened, open};
use super::spread::Spread;
use crate::metrics::SweepRow;

/// Everything that a sweep needs apart from its files.
#[derive(Debug)]
pub struct SweepPlan {
    /// The points.
    pub grid: Grid,
    /// How files are opened.
    pub open: OpenOptions,
    /// Whether an assumption about a trace is an error.
    pub is_strict: bool,
    /// What earlier sweeps have done; `None`: nothing is kept.
    pub journal: Option<Journal>,
}

/// Why there are no results for a file.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was done cannot be noted.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Runs all points on each file, over all cores, with one file in memory for each worker. `done` is called, from any
/// thread, after each point.
pub fn sweep(
    files: &[PathBuf],
    plan: &SweepPlan,
    done: impl Fn(&SweepRow) + Sync + Send,
) -> Vec<Result<Vec<SweepRow>, SweepError>> {
    let spread = Spread::of_files(files.len());
    files.par_iter().map(|file| sweep_file(file, plan, spread, &done)).collect()
}

fn sweep_file(
    file: &Path,
    plan: &SweepPlan,
    spread: Spread,
    done: &(impl Fn(&SweepRow) + Sync + Send),
) -> Result<Vec<SweepRow>, SweepError> {
    let opened = open(file, &plan.open).map_err(FileError::from)?;
    check_assumptions(&opened, plan.is_strict)?;
    let trace = fingerprint(&opened);
    spread.map(&plan.grid.points, |point| {
        let key = key(&trace, plan, point);
        let known = plan.journal.as_ref().and_then(|journal| journal.known(&key));
        if let Some(row) = known {
            // The file may have another name by now.
            let row = SweepRow { file: opened.file.clone(), ..row.clone() };
            done(&row);
            return Ok(row);
        }
        let run = run_one(&opened, &point.choice, &point.setup)?;
        let row = SweepRow::new(&run, point.settings.clone());
        if let Some(journal) = &plan.journal {
            journal.note(&key, &row)?;
        }
        done(&row);
        Ok(row)
    })
}

/// A number that stands for what was read: any other trace has another one, as good as certainly.
fn fingerprint(opened: &Opened) -> String {
    let trace = &opened.trace;
    let mut hasher = FxHasher::default();
    for event in &trace.events {
        hasher.write_u64(event.size);
        hasher.write_u32(event.alloc.0);
        hasher.write(&[event.kind as u8]);
        hasher.write_u64(u64::from(event.stream.0) << 32 | u64::from(event.pool.0));
    }
    for &time in &trace.times_us {
        hasher.write_u64(time);
    }
    let settings = trace.settings.as_ref().map_or("", |conf| conf.text.as_str());
    let (events, hash) = (trace.events.len(), hasher.finish());
    let limits = (opened.limit, opened.capacity);
    format!("{hash:016x} {events} device {} {limits:?} {settings:?}", trace.device)
}

/// All that a result depends on.
fn key(trace: &str, plan: &SweepPlan, point: &Point) -> String {
    let tool = env!("CARGO_PKG_VERSION");
    format!("{tool} | {trace} | {:?} | {}", plan.open, point.text())
}
