//! The store: the folder that a fleet's tables are in.
//!
//! A file there is complete: it is written under a name that begins with a dot, then renamed. `fleet.json` says what
//! the tables are made of; a folder with other results is refused and not mixed.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::about::{ABOUT, About};
use super::tables::{SCHEMA_VERSION, TABLES};
use crate::input_error::InputError;
use crate::report::Unfinished;

/// A file that is written so long is written by nobody.
const ABANDONED: Duration = Duration::from_hours(24);

/// The files that a fleet has in its folder; none if the folder is of no fleet.
pub fn results(folder: &Path) -> Vec<PathBuf> {
    let Ok(store) = Store::existing(folder) else { return Vec::new() };
    let parts = |table: &str| -> Vec<PathBuf> {
        let parts = store.parts(table).unwrap_or_default();
        parts.iter().map(|part| store.path(&format!("{table}/{part}"))).collect()
    };
    let parts = TABLES.iter().flat_map(|table| parts(table.name));
    std::iter::once(store.path(ABOUT)).chain(parts).collect()
}

/// A folder for tables.
#[derive(Debug)]
pub(super) struct Store {
    root: PathBuf,
}

impl Store {
    /// Opens a folder, or makes it.
    pub(super) fn open(root: &Path, about: &About) -> Result<Self, InputError> {
        let store = Self { root: root.to_owned() };
        fs::create_dir_all(root).map_err(|source| io_error(root, source))?;
        if !store.has(ABOUT) && store.is_new()? {
            let mut text = serde_json::to_vec_pretty(about).unwrap_or_default();
            text.push(b'\n');
            store.write(ABOUT, &text)?;
            return Ok(store);
        }
        // Another shard may have begun between the two looks.
        let text = match fs::read(root.join(ABOUT)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(foreign(root)),
            other => other.map_err(|source| io_error(&root.join(ABOUT), source))?,
        };
        let known: About = serde_json::from_slice(&text).map_err(|_| foreign(root))?;
        match known.difference(about) {
            None => Ok(store),
            Some(what) => {
                let problem =
                    format!("holds results of other {what}: give the same, or name another folder");
                Err(InputError::at(root.display(), problem))
            }
        }
    }

    /// Opens a folder that is there, whatever its tables are made of.
    pub(super) fn existing(root: &Path) -> Result<Self, InputError> {
        let text = fs::read(root.join(ABOUT));
        let missing = "no results of a fleet here: name the folder that 'gmlake-sim fleet' wrote";
        let text = text.map_err(|_| InputError::at(root.display(), missing))?;
        let known: About = serde_json::from_slice(&text).map_err(|_| foreign(root))?;
        if known.schema_version > SCHEMA_VERSION {
            return Err(InputError::at(root.display(), "written by a newer gmlake-sim"));
        }
        Ok(Self { root: root.to_owned() })
    }

    /// A file's path.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Whether nothing is in the folder, but what another shard is about to write.
    fn is_new(&self) -> Result<bool, InputError> {
        let failed = |source| io_error(&self.root, source);
        let mut names = fs::read_dir(&self.root).map_err(failed)?;
        Ok(names.all(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().contains(ABOUT))
        }))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.root.join(name).is_file()
    }

    /// Writes a file; it is there as a whole or not at all.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(), InputError> {
        let path = self.root.join(name);
        let failed = |source| io_error(&path, source);
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder).map_err(failed)?;
        let title = path.file_name().unwrap_or_default().to_string_lossy();
        // Two shards may write the same file at once. In containers, their process ids are the same.
        let temporary = folder.join(format!(".{title}.{:016x}", random()));
        let (mut file, unfinished) = Unfinished::create(temporary).map_err(failed)?;
        let written = file.write_all(content).and_then(|()| file.sync_all());
        written.and_then(|()| unfinished.finish(&path)).map_err(failed)
    }

    /// Removes what a process that was killed did not finish. Another shard's file is never so old.
    pub(super) fn remove_abandoned(&self) {
        let root = glob::Pattern::escape(&self.root.to_string_lossy());
        let found = glob::glob(&format!("{root}/*/*/*/.part-*")).into_iter().flatten().flatten();
        let is_old = |path: &PathBuf| {
            let changed = fs::metadata(path).and_then(|about| about.modified());
            changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED))
        };
        found.filter(is_old).for_each(|path| drop(fs::remove_file(path)));
    }

    /// Names of all files of a table, below its folder, in order.
    pub(super) fn parts(&self, table: &str) -> Result<Vec<String>, InputError> {
        let mut found = Vec::new();
        let folder = self.root.join(table);
        if folder.is_dir() {
            for job in names(&folder)? {
                for date in names(&folder.join(&job))? {
                    let files = names(&folder.join(&job).join(&date))?;
                    let is_part = |name: &String| name.starts_with("part-");
                    found.extend(
                        files.into_iter().filter(is_part).map(|f| format!("{job}/{date}/{f}")),
                    );
                }
            }
        }
        Ok(found)
    }

    /// Removes a file, and the folders that are empty without it.
    pub(super) fn remove(&self, name: &str) -> Result<(), InputError> {
        let path = self.root.join(name);
        match fs::remove_file(&path) {
            // Another shard was first.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(|source| io_error(&path, source))?,
        }
        for folder in path.ancestors().skip(1).take(2) {
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }
}

/// Names of what is in a folder, without those that begin with a dot, in order.
fn names(folder: &Path) -> Result<Vec<String>, InputError> {
    let failed = |source| io_error(folder, source);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// A number that no other process has.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn io_error(path: &Path, source: io::Error) -> InputError {
    InputError::at(path.display(), source)
}

fn foreign(root: &Path) -> InputError {
    let problem = "holds no results of a fleet, but other files: name another folder";
    InputError::at(root.display(), problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(inputs: &str) -> About {
        About {
            schema_version: 1,
            tool_version: "1".to_owned(),
            inputs: vec![inputs.to_owned()],
            runs: vec!["caching".to_owned()],
            conditions: "0".to_owned(),
        }
    }

    #[test]
    fn only_what_nobody_writes_any_more_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &about("a")).unwrap();
        let part = "runs/job=a/date=b";
        store.write(&format!("{part}/part-1.parquet"), b"x").unwrap();
        let path = |name: &str| store.path(&format!("{part}/{name}"));
        for name in [".part-1.parquet.old", ".part-1.parquet.new"] {
            fs::write(path(name), b"x").unwrap();
        }
        let two_days = std::time::SystemTime::now() - 2 * ABANDONED;
        for name in [".part-1.parquet.old", "part-1.parquet"] {
            fs::File::options()
                .append(true)
                .open(path(name))
                .unwrap()
                .set_modified(two_days)
                .unwrap();
        }
        store.remove_abandoned();
        let are_there = [".part-1.parquet.old", ".part-1.parquet.new", "part-1.parquet"];
        assert_eq!(are_there.map(|name| path(name).exists()), [false, true, true]);
    }

    #[test]
    fn shards_may_begin_at_once() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("out");
            std::thread::scope(|scope| {
                for shard in 0..8 {
                    let root = &root;
                    scope.spawn(move || {
                        let store = Store::open(root, &about("a")).unwrap();
                        store
                            .write(&format!("runs/job=a/date=b/part-{shard}.parquet"), b"x")
                            .unwrap();
                    });
                }
            });
            assert_eq!(Store::open(&root, &about("a")).unwrap().parts("runs").unwrap().len(), 8);
        }
    }
}
