//! A task: one recording, every device of it, through every allocator, into rows.
//!
//! Nothing that is wrong with a recording ends the fleet. It is a row of the errors, and so is a fault of our own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::config::Config;
use super::listing::FileEntry;
use super::tables::{ErrorRow, RankRow, RunRow, StepRow, cells, errors, ranks, runs, steps};
use crate::report::parquet::Value;
use crate::run::RunSummary;
use crate::sim::{Opened, Scenario, open_all};
use crate::sweep::Point;

/// The rows of one recording, or of several, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rows {
    pub(super) runs: Vec<Vec<Value>>,
    pub(super) ranks: Vec<Vec<Value>>,
    pub(super) steps: Vec<Vec<Value>>,
    pub(super) errors: Vec<Vec<Value>>,
    /// Runs that were made for them.
    pub(super) made: u64,
}

impl Rows {
    /// Adds the rows of the next recording.
    pub(super) fn extend(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.ranks.extend(other.ranks);
        self.steps.extend(other.steps);
        self.errors.extend(other.errors);
        self.made += other.made;
    }

    fn add_error(&mut self, file: &FileEntry, problem: &str) {
        self.errors.push(cells(&errors(), &ErrorRow { file, problem }));
    }

    fn add_run(&mut self, row: RunRow<'_>, has_steps: bool) {
        self.runs.push(cells(&runs(), &row));
        for (index, step) in row.run.steps.iter().enumerate().filter(|_| has_steps) {
            self.steps.push(cells(&steps(), &StepRow { run: row, number: index + 1, step }));
        }
    }

    fn add_device(&mut self, file: &FileEntry, opened: &Opened, config: &Config) {
        let mut requested_peak_bytes = 0;
        let mut add = |rows: &mut Self, run: &RunSummary, point: Option<&Point>| {
            requested_peak_bytes = run.requested_peak_bytes.max(requested_peak_bytes);
            rows.add_run(RunRow { file, run, point }, config.has_steps);
        };
        if let Some(recorded) = &opened.recorded {
            add(self, recorded, None);
        }
        for point in &config.grid.points {
            let scenario = Scenario::new(opened, point.choice.clone(), point.setup.clone());
            match scenario.run() {
                Ok(found) => add(self, found, Some(point)),
                Err(error) => {
                    let allocator = point.choice.spec.name;
                    self.add_error(file, &format!("{}: {allocator}: {error}", opened.file));
                }
            }
            self.made += 1;
        }
        self.ranks.push(cells(&ranks(), &RankRow { file, opened, requested_peak_bytes }));
    }
}

/// All rows of a recording.
pub(super) fn rows_of(file: &FileEntry, config: &Config) -> Rows {
    let all = || {
        let mut rows = Rows::default();
        match open_all(&file.path, &config.load) {
            Err(error) => rows.add_error(file, &error.to_string()),
            Ok(devices) => {
                devices.iter().for_each(|opened| rows.add_device(file, opened, config));
            }
        }
        rows
    };
    // What was computed so far is thrown away, so that nothing half-done can be seen.
    catch_unwind(AssertUnwindSafe(all)).unwrap_or_else(|fault| {
        let problem = format!("a fault in gmlake-sim, please report it: {}", words(&fault));
        let mut rows = Rows::default();
        rows.add_error(file, &problem);
        rows
    })
}

/// What a panic said.
fn words(fault: &(dyn std::any::Any + Send)) -> String {
    let text = fault.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| fault.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
