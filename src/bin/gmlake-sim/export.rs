//! The files of commands that write their results, each in its form.

use std::io::Write;
use std::path::PathBuf;
use std::slice;

use gmlake::report::{
    Export, ExportError, ImageFormat, Look, ReportError, is_stdout, write_answer,
};
use serde::Serialize;

use crate::terminal;

/// Writes what was found.
type Form<'a, T> = Box<dyn Fn(&T, &mut dyn Write) -> Result<(), ReportError> + 'a>;

/// The files that a command writes, each with the form that what was found has in it.
pub(crate) struct Exports<'a, T: ?Sized>(Vec<(Export, Form<'a, T>)>);

impl<'a, T: Serialize + ?Sized + 'a> Exports<'a, T> {
    /// Files that get what was found as the JSON of a command.
    pub(crate) fn json(command: &'static str, paths: &[PathBuf]) -> Result<Self, ExportError> {
        let mut exports = Self::new();
        exports.add_json(paths, move |found, out| write_answer(command, found, out))?;
        Ok(exports)
    }
}

impl<'a, T: ?Sized + 'a> Exports<'a, T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Makes sure that files of one form can be written.
    pub(crate) fn add(
        &mut self,
        paths: &[PathBuf],
        form: impl Fn(&T, &mut dyn Write) -> Result<(), ReportError> + Copy + 'a,
    ) -> Result<(), ExportError> {
        for path in paths {
            self.0.push((Export::open(path)?, Box::new(form)));
        }
        Ok(())
    }

    /// The same for JSON, which `--json` sends to standard output.
    pub(crate) fn add_json(
        &mut self,
        paths: &[PathBuf],
        form: impl Fn(&T, &mut dyn Write) -> Result<(), ReportError> + Copy + 'a,
    ) -> Result<(), ExportError> {
        self.add(paths, form)?;
        let is_extra = terminal::wants_json() && !paths.iter().any(|path| is_stdout(path));
        if is_extra { self.add(&["-".into()], form) } else { Ok(()) }
    }

    /// The same for pictures, of the kind that the file's name says.
    pub(crate) fn add_pictures(
        &mut self,
        paths: &[PathBuf],
        draw: fn(&T, ImageFormat, &mut dyn Write) -> Result<(), ReportError>,
    ) -> anyhow::Result<()> {
        for path in paths {
            let format = ImageFormat::of(path)?;
            self.add(slice::from_ref(path), move |found, out| draw(found, format, out))?;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them is standard output.
    pub(crate) fn has_stdout(&self) -> bool {
        self.0.iter().any(|(file, _)| file.is_stdout())
    }

    /// Writes all of them.
    pub(crate) fn finish(self, found: &T) -> Result<(), ExportError> {
        self.0.into_iter().try_for_each(|(file, form)| file.finish(|out| Ok(form(found, out)?)))
    }
}

impl<'a, T: 'a> Exports<'a, [T]> {
    /// Prints what was found, unless a file of it goes to standard output, and writes the files. Without a result there
    /// is nothing to tell.
    pub(crate) fn tell(
        self,
        found: &[T],
        text: impl FnOnce(&[T], Look) -> String,
    ) -> anyhow::Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        if !self.has_stdout() {
            terminal::print(&text(found, terminal::look()))?;
        }
        Ok(self.finish(found)?)
    }
}
