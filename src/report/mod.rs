//! Reports: comparisons for people and for programs.
//!
//! A report is one file in this folder that implements [`Report`], and one line in [`ReportFormat::ALL`]; the command
//! line makes `--export-NAME` of it. What columns there are is settled in `metrics::COLUMNS`, once for all
//! reports.

mod answer;
pub mod blame;
mod csv;
mod export;
mod fitted;
pub mod fleet;
mod html;
pub mod job;
mod json;
mod look;
mod markdown;
mod packed;
mod palette;
pub mod parquet;
pub mod plan;
mod plot;
pub mod section;
mod svg;
pub mod sweep;
pub mod table;
mod timeline;
pub mod tune;
mod verdict;

pub use answer::write_answer;
pub use export::{Export, ExportError, remove_unfinished};
pub use html::{Page, fleet_page};
pub use json::write_comparisons;
pub use plot::{CHARTS, Chart, ImageFormat, write_building, write_series, write_sweep};
use verdict::is_choice;
pub use verdict::is_choice_of_name;
pub use verdict::verdict;

use std::io::{self, Write};
use std::path::Path;

use crate::metrics::Comparison;

/// A way to write comparisons down.
pub trait Report: Sync {
    /// Writes all comparisons.
    ///
    /// # Errors
    /// If `out` cannot be written, or a picture cannot be drawn.
    fn write(&self, comparisons: &[Comparison], out: &mut dyn Write) -> Result<(), ReportError>;
}

/// Why a report was not written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A picture could not be drawn.
    #[error("cannot draw the plot: {0}")]
    Draw(String),
    /// There is nothing that the chart could show.
    #[error("nothing to draw: {0}")]
    Empty(&'static str),
    /// Data could not be encoded.
    #[error("cannot encode the data: {0}")]
    Data(String),
    /// The file's ending does not say which kind of picture it is to be.
    #[error("a plot is written as .svg or .png; {0:?} ends in neither")]
    ImageFormat(String),
}

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
    #[must_use]
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
    pub fn report(self, path: &Path) -> Result<Box<dyn Report>, ReportError> {
        Ok(match self {
            Self::Json => Box::new(json::Json),
            Self::Csv => Box::new(csv::Csv),
            Self::Markdown => Box::new(markdown::Markdown),
            Self::Plot => Box::new(plot::Plot { format: ImageFormat::of(path)? }),
            Self::Timeline => Box::new(timeline::TimelineCsv),
        })
    }
}
