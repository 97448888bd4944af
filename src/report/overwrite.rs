//! Overwriting: no command may write to a file that it reads, nor write two results to one place.

use std::fs;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use crate::input_error::InputError;
use crate::remote::{is_remote, shown};
use crate::trace::is_recording;

/// Refuses results that would take the place of what is read, of each other or, unless `writes_recordings`, of a
/// recording. `-` is standard output.
///
/// # Errors
/// With the first that would, or that is not on this machine.
pub fn refuse_overwriting(
    read: &[PathBuf],
    written: &[PathBuf],
    writes_recordings: bool,
) -> Result<(), InputError> {
    refuse_twice(written)?;
    for out in written {
        let would = |file: &Path, is: &str| {
            let problem = format!("{is}, and would be overwritten: write to another file");
            Err(InputError(format!("{} {problem}", file.display())))
        };
        if is_remote(out) {
            let problem = "remote files are only read: write here, and copy it there";
            return Err(InputError::at(shown(out), problem));
        }
        if !writes_recordings && out.is_file() && is_recording(out) {
            return would(out, "is a recording");
        }
        if let Some(file) = read.iter().find(|file| is_same(file, out)) {
            return would(file, "is read");
        }
    }
    Ok(())
}

/// Whether a path stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses two results for one file, or for standard output. Devices take what they get.
fn refuse_twice(written: &[PathBuf]) -> Result<(), InputError> {
    let mut targets = FxHashSet::default();
    for path in written.iter().filter(|path| !path.exists() || path.is_file()) {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).unwrap_or_default();
        let name = path.file_name().unwrap_or_default();
        let target = fs::canonicalize(path).unwrap_or_else(|_| folder.join(name));
        if targets.insert(if is_stdout(path) { path.clone() } else { target }) {
            continue;
        }
        return Err(if is_stdout(path) {
            let problem = "two results cannot both go to standard output";
            InputError(format!("{problem}: write one of them to a file"))
        } else {
            InputError(format!("two results for {}: give each a file of its own", path.display()))
        });
    }
    Ok(())
}

/// Whether both are one file on disk. A device or a pipe can be read and written at once.
fn is_same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok().filter(|path| path.is_file());
    real(a).is_some() && real(a) == real(b)
}
