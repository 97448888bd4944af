//! The files of `run`. What is known of each run is written as soon as it is over; a file has its name only when it is
//! whole.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use gmlake::device::{Amount, Observation};
use gmlake::replay::ReplaySummary;
use gmlake::report::{Export, ExportError, write_answer};

/// Every number as JSON. A file has all results so far after each run; a pipe gets them once, at the end.
pub(crate) struct Json {
    path: PathBuf,
    pipe: Option<Export>,
}

impl Json {
    /// Makes sure that it can be written.
    pub(crate) fn open(path: &Path) -> Result<Self, ExportError> {
        let export = Export::open(path)?;
        Ok(Self { path: path.to_owned(), pipe: (!export.is_file()).then_some(export) })
    }

    /// Takes note of the results so far.
    pub(crate) fn update(&self, summaries: &[ReplaySummary]) -> Result<(), ExportError> {
        match self.pipe {
            Some(_) => Ok(()),
            None => Self::write(Export::open(&self.path)?, summaries),
        }
    }

    /// Writes what a pipe gets.
    pub(crate) fn finish(self, summaries: &[ReplaySummary]) -> Result<(), ExportError> {
        let pipe = self.pipe.filter(|_| !summaries.is_empty());
        pipe.map_or(Ok(()), |pipe| Self::write(pipe, summaries))
    }

    fn write(export: Export, summaries: &[ReplaySummary]) -> Result<(), ExportError> {
        export.finish(|out| Ok(write_answer("run", summaries, out)?))
    }
}

/// The device calls, and their times as CSV: what is too long to be kept.
pub(crate) struct Calls<'a> {
    log: Option<Box<dyn Write + 'a>>,
    times: Option<csv::Writer<Box<dyn Write + 'a>>>,
}

impl Calls<'_> {
    /// Has `work` fill both files. Whatever it returns, they have the calls of all runs until then.
    pub(crate) fn collect<T>(
        log: Option<&Path>,
        times: Option<&Path>,
        work: impl FnOnce(&mut Calls<'_>) -> Result<T>,
    ) -> Result<T> {
        let [log, times] = [log, times].map(|path| path.map(Export::open).transpose());
        let (log, times) = (log?, times?);
        let mut answer = None;
        let mut times_written = Ok(());
        let log_written = filled(log, |log| {
            times_written = filled(times, |times| {
                answer = Some(Calls::new(log, times).and_then(|mut calls| work(&mut calls)));
            });
        });
        log_written?;
        times_written?;
        answer.expect("both files were filled")
    }

    fn new<'a>(
        log: Option<Box<dyn Write + 'a>>,
        times: Option<Box<dyn Write + 'a>>,
    ) -> Result<Calls<'a>> {
        let mut times = times.map(csv::Writer::from_writer);
        if let Some(times) = &mut times {
            times.write_record(["file", "allocator", "call", "handles", "bytes", "ns"])?;
        }
        Ok(Calls { log, times })
    }

    /// Adds those of a run.
    pub(crate) fn write(&mut self, run: &ReplaySummary) -> Result<()> {
        if let Some(log) = &mut self.log {
            writeln!(log, "# {} {}", run.file, run.allocator)?;
            run.log.entries.iter().try_for_each(|entry| writeln!(log, "{entry}"))?;
        }
        if let Some(times) = &mut self.times {
            for Observation { call, amount: Amount { handles, size }, ns } in &run.observations {
                times.serialize((&run.file, &run.allocator, call.name(), handles, size, ns))?;
            }
            times.flush()?;
        }
        Ok(())
    }
}

/// Has a file filled, if it is wanted.
fn filled(
    export: Option<Export>,
    fill: impl FnOnce(Option<Box<dyn Write + '_>>),
) -> Result<(), ExportError> {
    let Some(export) = export else {
        fill(None);
        return Ok(());
    };
    export.finish(|out| {
        fill(Some(Box::new(out)));
        Ok(())
    })
}
