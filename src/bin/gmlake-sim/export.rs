//! The files of commands that write their results in several forms.

use std::io::Write;
use std::path::PathBuf;

use gmlake::report::{Export, ExportError, ReportError};
use serde::Serialize;

use crate::args::DataArgs;

/// The files of a command that writes its results in three forms.
pub(crate) struct Exports {
    json: Vec<Export>,
    csv: Vec<Export>,
    markdown: Vec<Export>,
}

impl Exports {
    /// Makes sure that the files can be written.
    pub(crate) fn open(args: &DataArgs) -> Result<Self, ExportError> {
        Ok(Self {
            json: open_all(&args.export_json)?,
            csv: open_all(&args.export_csv)?,
            markdown: open_all(&args.export_markdown)?,
        })
    }

    /// Whether one of them is standard output.
    pub(crate) fn has_stdout(&self) -> bool {
        self.json.iter().chain(&self.csv).chain(&self.markdown).any(Export::is_stdout)
    }

    /// Writes all of them.
    pub(crate) fn finish(
        self,
        json: impl Fn(&mut dyn Write) -> Result<(), ReportError>,
        csv: impl Fn(&mut dyn Write) -> Result<(), ReportError>,
        markdown: impl Fn(&mut dyn Write) -> Result<(), ReportError>,
    ) -> Result<(), ExportError> {
        self.json.into_iter().try_for_each(|file| file.finish(|out| Ok(json(out)?)))?;
        self.csv.into_iter().try_for_each(|file| file.finish(|out| Ok(csv(out)?)))?;
        self.markdown.into_iter().try_for_each(|file| file.finish(|out| Ok(markdown(out)?)))
    }
}

/// Writes what was found as JSON to every file; without a result there is nothing to write.
pub(crate) fn write_json<T: Serialize>(
    exports: Vec<Export>,
    command: &str,
    found: &[T],
) -> Result<(), ExportError> {
    let mut exports = exports.into_iter().filter(|_| !found.is_empty());
    exports.try_for_each(|export| export.finish_answer(command, found))
}

/// Makes sure that the files can be written.
pub(crate) fn open_all(paths: &[PathBuf]) -> Result<Vec<Export>, ExportError> {
    paths.iter().map(|path| Export::open(path)).collect()
}
