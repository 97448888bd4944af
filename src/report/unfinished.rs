//! Unfinished files: what is written under another name until it is complete. Whoever ends the program removes those
//! that are left.

use std::fs::{self, File};
use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that does not have its name yet. Dropped before it gets it, it is removed.
#[derive(Debug)]
pub(crate) struct Unfinished(PathBuf);

impl Unfinished {
    /// Makes a file that was not there.
    pub(crate) fn create(path: PathBuf) -> io::Result<(File, Self)> {
        let mut unfinished = unfinished();
        let file = File::options().write(true).create_new(true).open(&path)?;
        unfinished.push(path.clone());
        Ok((file, Self(path)))
    }

    /// Gives the file its name; what had it is replaced.
    pub(crate) fn finish(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.0, target)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After a success it has another name by now; after a failure it must not stay.
        let _ = fs::remove_file(&self.0);
        unfinished().retain(|other| *other != self.0);
    }
}

/// Files that do not have their names yet, for whoever ends the program.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what was begun and will not be finished: the program must end now. Threads that would begin another file, or
/// say that they could not finish one, wait for that end.
pub fn remove_unfinished() {
    let unfinished = ManuallyDrop::new(unfinished());
    for path in unfinished.iter() {
        let _ = fs::remove_file(path);
    }
}
