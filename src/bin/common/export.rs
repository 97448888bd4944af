//! Exported files: opened before the work begins, so that a typing error costs no time, and written complete or not at
//! all: what is written goes to a file beside the target, which takes its name when everything is there.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;

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
    #[allow(dead_code, reason = "one of the two programs never writes there")]
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

    /// Writes a value as JSON.
    pub(crate) fn finish_json(self, value: &(impl Serialize + ?Sized)) -> anyhow::Result<()> {
        self.finish(|out| {
            serde_json::to_writer_pretty(&mut *out, value)?;
            Ok(writeln!(out)?)
        })
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
