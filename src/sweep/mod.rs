//! Sweeps: every point of a grid of options, devices and profiles, in parallel, and again from where it was stopped.
//!
//! ```text
//!   --set a=1,2 --set b=x,y ──▶ Grid: points ──┐
//!   files ─────────────────────────────────────┴──▶ run (or the Journal knows it) ──▶ SweepRow ──▶ CSV, JSON, plot
//! ```

mod axis;
pub mod chart;
mod data;
mod grid;
mod journal;
pub mod show;

pub use data::{Axis, Setting, Sweep, SweepRow};
pub use grid::{Grid, GridError, Point};
pub use journal::Journal;

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use rustc_hash::FxHashSet;
use twox_hash::XxHash3_128;

use crate::input_error::InputError;
use crate::remote;
use crate::sim::{
    FileError, Memory, Opened, Scenario, Spread, check_assumptions, failed, open, run_one,
};
use crate::trace::{LoadOptions, least_memory};

/// Everything that a sweep needs apart from its files.
#[derive(Debug)]
pub struct SweepPlan {
    /// The points.
    pub grid: Grid,
    /// How files are opened.
    pub open: LoadOptions,
    /// Whether an assumption about a trace is an error.
    pub is_strict: bool,
    /// Whether devices that have less memory than is live at once are left out.
    pub only_fitting: bool,
    /// What earlier sweeps have done; `None`: nothing is kept.
    pub journal: Option<Journal>,
}

impl SweepPlan {
    /// Whether the journal is that of this sweep: a finished sweep removes it, and with it the runs of any other.
    ///
    /// # Errors
    /// If it has a run of another file, under other options, or by another version of this program.
    pub fn check_journal(&self, files: &[PathBuf]) -> Result<(), InputError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let files: FxHashSet<PathBuf> =
            files.iter().flat_map(|file| [real(file), remote::shown(file).into()]).collect();
        let keys = self.grid.points.iter().map(|point| key("", self, point));
        let keys: FxHashSet<String> = keys.collect();
        let is_ours = |key: &str, row: &SweepRow| {
            let file = Path::new(&row.file);
            let is_read = files.contains(file) || files.contains(&real(file));
            is_read && without_trace(key).is_some_and(|key| keys.contains(&key))
        };
        let Some(other) = journal.stranger(is_ours) else { return Ok(()) };
        let problem = format!(
            "the journal of another sweep, of {}: finish that one, remove it, or name another file (--journal)",
            other.file
        );
        Err(InputError::at(remote::shown(journal.path()), problem))
    }
}

/// Why there are no results for a file.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was done cannot be noted.
    #[error(transparent)]
    Journal(#[from] InputError),
}

/// What came of one file.
#[derive(Debug, Clone, Default)]
pub struct Swept {
    /// The results, in the order of the grid.
    pub rows: Vec<SweepRow>,
    /// Points that needed no run: on a smaller device nothing was refused either.
    pub shared: u64,
    /// Points that were left out: the device has less memory than is live at once.
    pub left_out: u64,
    /// Where the recording is not the whole job: so, and how to record the rest.
    pub caution: Option<String>,
}

/// Runs all points on each file, over all cores, with one file in memory for each worker. `done` is called, from any
/// thread, after each point.
pub fn sweep(
    files: &[PathBuf],
    plan: &SweepPlan,
    done: impl Fn() + Sync + Send,
) -> Vec<Result<Swept, SweepError>> {
    let spread = Spread::of_files(files.len());
    files.par_iter().map(|file| sweep_file(file, plan, spread, &done)).collect()
}

fn sweep_file(
    file: &Path,
    plan: &SweepPlan,
    spread: Spread,
    done: &(impl Fn() + Sync + Send),
) -> Result<Swept, SweepError> {
    let opened = open(file, &plan.open).map_err(FileError::from)?;
    check_assumptions(&opened, plan.is_strict)?;
    let live = least_memory(&opened.trace);
    let is_left_out = |point: &Point| {
        plan.only_fitting && matches!(point.setup.memory, Memory::Bytes(bytes) if bytes < live)
    };
    let first = plan.grid.points.first().filter(|_| plan.grid.has_memory_axis());
    let known = first.map(|p| Scenario::new(&opened, p.choice.clone(), p.setup.clone()));
    let on_file = OnFile { trace: fingerprint(&opened), opened: &opened, plan, known };
    let results = spread.map(&plan.grid.points, |point| {
        let row = if is_left_out(point) { None } else { Some(on_file.row(point)?) };
        done();
        Ok::<_, SweepError>(row)
    })?;
    let left_out = results.iter().filter(|row| row.is_none()).count() as u64;
    let shared = results.iter().flatten().filter(|(_, is_shared)| *is_shared).count() as u64;
    let rows = results.into_iter().flatten().map(|(row, _)| row).collect();
    let caution = opened.coverage.caution();
    let caution = caution.map(|caution| format!("{}: {caution}", opened.file));
    Ok(Swept { rows, shared, left_out, caution })
}

/// A file that is being swept.
struct OnFile<'a> {
    opened: &'a Opened,
    trace: String,
    plan: &'a SweepPlan,
    /// Where memory is an axis, what is known of runs without a limit: most sizes are such on which nothing happens.
    known: Option<Scenario<'a>>,
}

impl OnFile<'_> {
    /// The result of a point, and whether it needed no run.
    fn row(&self, point: &Point) -> Result<(SweepRow, bool), SweepError> {
        let key = key(&self.trace, self.plan, point);
        let known = self.plan.journal.as_ref().and_then(|journal| journal.known(&key));
        if let Some(row) = known {
            // The file may have another name by now.
            return Ok((SweepRow { file: self.opened.file.clone(), ..row.clone() }, false));
        }
        let shared = match (&self.known, point.setup.memory) {
            (Some(known), Memory::Bytes(bytes)) => {
                let scenario = known.beside(point.choice.clone(), point.setup.clone());
                let run = scenario.unrefused(bytes);
                run.map_err(|source| failed(self.opened, &point.choice, source))?
            }
            _ => None,
        };
        let is_shared = shared.is_some();
        let run = match shared {
            Some(run) => run,
            None => run_one(self.opened, &point.choice, &point.setup)?,
        };
        let row = SweepRow::new(&run, point.settings.clone());
        if let Some(journal) = self.plan.journal.as_ref().filter(|_| !is_shared) {
            journal.note(&key, &row)?;
        }
        Ok((row, is_shared))
    }
}

/// A number that stands for what was read, times and device included: any other recording has another one, as good as
/// certainly.
fn fingerprint(opened: &Opened) -> String {
    let times: Vec<u8> = opened.trace.times_us.iter().flat_map(|time| time.to_le_bytes()).collect();
    let times = XxHash3_128::oneshot(&times);
    format!("{:032x} {times:032x} device {}", opened.program(), opened.trace.device)
}

/// All that a result depends on.
fn key(trace: &str, plan: &SweepPlan, point: &Point) -> String {
    let tool = env!("CARGO_PKG_VERSION");
    format!("{tool} | {trace} | {:?} | {}", plan.open, point.text())
}

/// A key with nothing in place of the recording.
fn without_trace(key: &str) -> Option<String> {
    let (tool, rest) = key.split_once(" | ")?;
    let (_, rest) = rest.split_once(" | ")?;
    Some(format!("{tool} |  | {rest}"))
}
