//! Exported files: opened before the work begins, so that a typing error costs no time, and written complete or not at
//! all: what is written goes to a file next to the target, which takes its name when everything is there. A name that
//! ends in `.gz`, `.xz` or `.zst` is that of a compressed file.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::overwrite::is_stdout;
use super::packed::Packed;
use super::stdout::Pipe;
use super::unfinished::Unfinished;

/// What went wrong while a file was written, of whatever kind.
type Cause = Box<dyn Error + Send + Sync>;

/// Writes the content. In a box: code for files, terminals and packed files is compiled once, not for each caller.
type Content<'a> = Box<dyn FnOnce(&mut dyn Write) -> Result<(), Cause> + 'a>;

/// A file that could not be written; its source says why.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", target.display())]
pub struct ExportError {
    target: PathBuf,
    source: Cause,
}

/// A file that is to be written; a link's is the one that it leads to. Dropped before [`Export::finish`], it leaves
/// nothing behind.
#[derive(Debug)]
pub struct Export {
    target: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// `-`
    Stdout,
    /// A pipe or a device, such as /dev/null: there is nothing that could take its name.
    Special(File),
    /// A file next to the target.
    Temporary { written: Option<(File, Unfinished)>, target: PathBuf },
}

impl Export {
    /// Makes sure that the file can be written; `-` is standard output.
    ///
    /// # Errors
    /// If it cannot.
    pub fn open(target: &Path) -> Result<Self, ExportError> {
        let target = target.to_owned();
        match place(&target) {
            Ok(place) => Ok(Self { target, place }),
            Err(error) => Err(ExportError { target, source: error.into() }),
        }
    }

    /// Whether it goes to standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.place, Place::Stdout)
    }

    /// Whether a file on disk is to be made or replaced: no pipe and no device.
    pub fn is_file(&self) -> bool {
        matches!(self.place, Place::Temporary { .. })
    }

    /// Writes the file and gives it its name.
    ///
    /// # Errors
    /// What `write` returns, or if the disk is full or the like. The file is as it was before.
    pub fn finish(
        mut self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), Cause>,
    ) -> Result<(), ExportError> {
        let written = self.write(Box::new(write));
        written.map_err(|source| ExportError { target: self.target.clone(), source })
    }

    /// Writes a value as JSON that is no answer of a command, but what programs read, such as a profile.
    ///
    /// # Errors
    /// As [`Export::finish`].
    pub fn finish_json(self, value: &(impl Serialize + ?Sized)) -> Result<(), ExportError> {
        self.finish(|out| {
            serde_json::to_writer_pretty(&mut *out, value)?;
            Ok(writeln!(out)?)
        })
    }

    fn write(&mut self, write: Content<'_>) -> Result<(), Cause> {
        let ((mut file, unfinished), target) = match &mut self.place {
            Place::Stdout => return pour(&mut io::stdout().lock(), Path::new("-"), write),
            Place::Special(file) => return pour(file, &self.target, write),
            Place::Temporary { written, target } => (written.take().expect("once"), target),
        };
        pour(&mut file, &self.target, write)?;
        drop(file);
        Ok(unfinished.finish(target)?)
    }
}

/// Has everything written to `out`, the file `name`.
fn pour(out: &mut dyn Write, name: &Path, write: Content<'_>) -> Result<(), Cause> {
    let mut out = BufWriter::new(Packed::new(name, Pipe(out))?);
    write(&mut out)?;
    let packed = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(packed.finish()?)
}

fn place(target: &Path) -> io::Result<Place> {
    if is_stdout(target) {
        return Ok(Place::Stdout);
    }
    match fs::metadata(target) {
        Ok(found) if found.is_dir() => return Err(io::Error::other("it is a directory")),
        Ok(found) if !found.is_file() => {
            return Ok(Place::Special(File::options().write(true).open(target)?));
        }
        Ok(found) if found.permissions().readonly() => {
            return Err(io::Error::other("it is write-protected"));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
    let Some(name) = target.file_name() else {
        return Err(io::Error::other("it is not the name of a file"));
    };
    let name = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
    let written = Some(Unfinished::create(target.with_file_name(name))?);
    Ok(Place::Temporary { written, target })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.json");
        Export::open(&target).unwrap().finish_json(&[1, 2]).unwrap();
        let fails = Export::open(&target).unwrap().finish(|out| {
            out.write_all(b"half")?;
            Err("no more".into())
        });
        assert_eq!(fails.unwrap_err().source().unwrap().to_string(), "no more");
        drop(Export::open(&target).unwrap());
        assert_eq!(fs::read_to_string(&target).unwrap(), "[\n  1,\n  2\n]\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a file was left behind");
        let is_a_directory = Export::open(folder.path()).unwrap_err();
        assert_eq!(is_a_directory.source().unwrap().to_string(), "it is a directory");
    }
}
