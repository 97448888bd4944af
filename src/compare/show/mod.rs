//! Comparisons for people and for programs.
//!
//! A report is one file in this folder that implements [`Report`], and one line in
//! [`ReportFormat::ALL`]; the command line makes `--export-NAME` of it. What columns there are is settled in
//! [`columns`](super::columns), once for all reports.

mod csv;
pub mod job;
mod json;
mod markdown;
pub mod table;
mod timeline;
mod verdict;

pub use json::write_comparisons;
pub use verdict::verdict;

use std::path::Path;

use super::Report;
use crate::report::{ImageFormat, Result};

/// The kinds of report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportFormat {
    /// An object with every number, for programs.
    Json,
    /// A row for each run, for spreadsheets.
    Csv,
    /// Tables, for pages and pull requests.
    Markdown,
    /// Memory over time and utilization, as a picture.
    Plot,
    /// Memory over time as rows, for spreadsheets and plots of one's own.
    Timeline,
}

impl ReportFormat {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Json, Self::Csv, Self::Markdown, Self::Plot, Self::Timeline];

    /// Its name on the command line, after `--export-`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Markdown => "markdown",
            Self::Plot => "plot",
            Self::Timeline => "timeline",
        }
    }

    /// The report that is to be written to a file of this name.
    ///
    /// # Errors
    /// If a plot's file does not end in `.svg` or `.png`.
    pub fn report(self, path: &Path) -> Result<Box<dyn Report>> {
        Ok(match self {
            Self::Json => Box::new(json::Json),
            Self::Csv => Box::new(csv::Csv),
            Self::Markdown => Box::new(markdown::Markdown),
            Self::Plot => Box::new(super::chart::Plot { format: ImageFormat::of(path)? }),
            Self::Timeline => Box::new(timeline::TimelineCsv),
        })
    }
}
