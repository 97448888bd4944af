//! Exported files: opened before the work begins, so that a typing error costs no time, and written complete or not at
//! all: what is written goes to a file beside the target, which takes its name when everything is there.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gmlake::report::ReportError;
use serde::Serialize;

use crate::args::DataArgs;

/// A file that is to be written. Dropped before [`Export::finish`], it leaves nothing behind.
pub(crate) struct Export {
    target: PathBuf,
    place: Place,
}

enum Place {
    /// `-`
    Stdout,
    /// A pipe or a device, such as /dev/null: there is nothing that could take its name.
    Special(File),
    /// A file beside the target.
    Beside { file: Option<File>, path: PathBuf },
}

impl Export {
    /// Makes sure that the file can be written.
    pub(crate) fn open(target: &Path) -> anyhow::Result<Self> {
        let place = place(target).with_context(|| format!("cannot write {}", target.display()))?;
        Ok(Self { target: target.to_owned(), place })
    }

    /// Whether it goes to standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.place, Place::Stdout)
    }

    /// Writes the file and gives it its name.
    pub(crate) fn finish(
        mut self,
        write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let context = format!("cannot write {}", self.target.display());
        self.write(write).context(context)
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (file, path) = match &mut self.place {
            Place::Stdout => {
                let mut out = BufWriter::new(io::stdout().lock());
                write(&mut out)?;
                return Ok(out.flush()?);
            }
            Place::Special(file) => {
                write(file)?;
                return Ok(file.flush()?);
            }
            Place::Beside { file, path } => (file.take().expect("written once"), path),
        };
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush()?;
        fs::rename(path, &self.target)?;
        Ok(())
    }
}

/// The files of a command that writes its results in three forms.
pub(crate) struct Exports {
    json: Vec<Export>,
    csv: Vec<Export>,
    markdown: Vec<Export>,
}

impl Exports {
    /// Makes sure that the files can be written.
    pub(crate) fn open(args: &DataArgs) -> anyhow::Result<Self> {
        let open = |paths: &[PathBuf]| paths.iter().map(|path| Export::open(path)).collect();
        let json: anyhow::Result<_> = open(&args.export_json);
        let (csv, markdown): (anyhow::Result<_>, anyhow::Result<_>) =
            (open(&args.export_csv), open(&args.export_markdown));
        Ok(Self { json: json?, csv: csv?, markdown: markdown? })
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
    ) -> anyhow::Result<()> {
        self.json.into_iter().try_for_each(|file| file.finish(|out| Ok(json(out)?)))?;
        self.csv.into_iter().try_for_each(|file| file.finish(|out| Ok(csv(out)?)))?;
        self.markdown.into_iter().try_for_each(|file| file.finish(|out| Ok(markdown(out)?)))
    }
}

/// Writes what was found as JSON to every file; without a result there is nothing to write.
pub(crate) fn write_json<T: Serialize>(exports: Vec<Export>, found: &[T]) -> anyhow::Result<()> {
    for export in exports.into_iter().filter(|_| !found.is_empty()) {
        export.finish(|out| {
            serde_json::to_writer_pretty(&mut *out, found)?;
            Ok(out.write_all(b"\n")?)
        })?;
    }
    Ok(())
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Place::Beside { path, .. } = &self.place {
            // After a success it has another name by now; after a failure it must not stay.
            let _ = fs::remove_file(path);
        }
    }
}

fn place(target: &Path) -> anyhow::Result<Place> {
    if target == Path::new("-") {
        return Ok(Place::Stdout);
    }
    match fs::metadata(target) {
        Ok(found) if found.is_dir() => bail!("it is a directory"),
        Ok(found) if !found.is_file() => {
            return Ok(Place::Special(File::options().write(true).open(target)?));
        }
        Ok(found) if found.permissions().readonly() => bail!("it is write-protected"),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let Some(name) = target.file_name() else { bail!("it is not the name of a file") };
    let name = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
    let path = target.with_file_name(name);
    let file = File::options().write(true).create_new(true).open(&path)?;
    Ok(Place::Beside { file: Some(file), path })
}
