//! What all reports are made of: tables, sections, data, pictures, files. What a subject says with them is in its
//! own `show`.

mod answer;
mod csv;
mod export;
mod overwrite;
mod packed;
pub(crate) mod palette;
pub mod parquet;
pub mod picture;
pub mod section;
mod stdout;
pub mod table;
mod unfinished;
mod usage;

pub use answer::{SCHEMA_VERSION, write_answer};
pub(crate) use csv::{Column, cells, write_cells, write_rows};
pub use export::{Export, ExportError};
pub use overwrite::{is_stdout, refuse_overwriting};
pub(crate) use palette::{Colour, Rgb};
pub use picture::ImageFormat;
pub(crate) use picture::scaling;
pub use stdout::stdout;
pub(crate) use table::{Cell, NARROW, fitted, total};
pub use table::{Look, wrapped};
pub(crate) use unfinished::Unfinished;
pub use unfinished::remove_unfinished;
pub use usage::usage_error;

use std::io;

/// What writing a report returns.
pub type Result<T, E = ReportError> = std::result::Result<T, E>;

/// What pictures and tables of many recordings say of those that are not their whole jobs.
pub(crate) const PARTIAL: &str =
    ">= (lower bound) and ~ (estimate): not the whole job was recorded";

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
    /// The recordings are of one moment.
    #[error("no event history was recorded, so there is no memory over time")]
    NoHistory,
    /// Data could not be encoded.
    #[error("cannot encode the data: {0}")]
    Data(String),
    /// The file's ending does not say which kind of picture it is to be.
    #[error("a plot is written as .svg or .png; {0:?} ends in neither")]
    ImageFormat(String),
}
