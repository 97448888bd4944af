//! Post: data that really goes from one process of a job to another.
//!
//! A collective on a virtual GPU moves no tensors, but programs also send each other lengths, seeds, ids and pickled
//! objects, read them back and branch on them. These go through files in a folder that all processes share:
//!
//! ```text
//!   rank 0   writes c.17.0 ─┐                ┌─ reads c.17.0, c.17.1       c: the communicator
//!   rank 1   writes c.17.1 ─┴─ c.17.* there ─┴─ reads c.17.0, c.17.1       17: its 17th exchange
//! ```
//!
//! Each exchange is a barrier, so a rank that has finished number 17 knows that all have finished reading number 16,
//! and deletes its own file of that number. A rank that runs alone has no folder, and receives what it sends.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::quiet::{self, Quiet};

/// How long a rank waits for another one that does something.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long it waits while no rank does anything.
const SILENCE: Duration = Duration::from_secs(30);

/// Between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// A piece of data, and whether its value is known (`known.rs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// The data.
    pub bytes: Vec<u8>,
    /// Whether the sender's memory held it, or a kernel would have made it.
    pub is_known: bool,
}

/// A way to the other processes of a job.
#[derive(Debug, Clone, Default)]
pub struct Post {
    folder: Option<PathBuf>,
}

impl Post {
    /// Post through a folder that all processes share.
    pub fn through(folder: PathBuf) -> Self {
        quiet::join(&folder);
        Self { folder: Some(folder) }
    }

    /// Whether this rank runs without the others.
    pub fn is_alone(&self) -> bool {
        self.folder.is_none()
    }

    /// Leaves data for others to take.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, name: &str, parcel: &Parcel) -> Result<(), String> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let (path, part) = (folder.join(name), folder.join(format!("{name}.part")));
        let mut content = parcel.bytes.clone();
        content.push(u8::from(parcel.is_known));
        let written = fs::write(&part, content).and_then(|()| fs::rename(&part, &path));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Waits for what another rank puts under a name.
    ///
    /// # Errors
    /// If it does not come in ten minutes, or in 30 seconds while no rank does anything, or cannot be read.
    pub fn get(&self, name: &str, from: usize) -> Result<Parcel, String> {
        let path = self.folder.clone().unwrap_or_default().join(name);
        wait(&path, from, PATIENCE)?;
        let read = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()));
        let mut bytes = read?;
        let is_known = bytes.pop() == Some(1);
        Ok(Parcel { bytes, is_known })
    }

    /// Takes data away; it was read by all who wanted it.
    pub fn drop(&self, name: &str) {
        if let Some(folder) = &self.folder {
            // What is not there need not be deleted.
            let _ = fs::remove_file(folder.join(name));
        }
    }

    /// Gives each rank of a communicator what all of them brought, in the order of their ranks.
    ///
    /// `number` counts the exchanges of this communicator, from 1. A rank alone gets its own parcel, once.
    ///
    /// # Errors
    /// As for [`Post::put`] and [`Post::get`].
    pub fn exchange(
        &self,
        communicator: &str,
        number: u64,
        (rank, world): (usize, usize),
        mine: &Parcel,
    ) -> Result<Vec<Parcel>, String> {
        if self.is_alone() {
            return Ok(vec![mine.clone()]);
        }
        let name = |number: u64, rank: usize| format!("{communicator}.{number}.{rank}");
        self.put(&name(number, rank), mine)?;
        let all = (0..world).map(|from| self.get(&name(number, from), from)).collect();
        self.drop(&name(number - 1, rank));
        all
    }
}

/// Waits for a file of another rank.
///
/// # Errors
/// If it does not come in so long, or in 30 seconds while no rank does anything.
pub fn wait(path: &Path, from: usize, patience: Duration) -> Result<(), String> {
    let (start, what) =
        (Instant::now(), || path.file_name().unwrap_or_default().display().to_string());
    let mut quiet = None;
    let mut pause = Duration::from_micros(20);
    while !path.exists() {
        if pause >= LONGEST_PAUSE {
            let folder = path.parent().unwrap_or(path);
            let quiet = quiet.get_or_insert_with(|| Quiet::watch(folder));
            if quiet.lasts() > SILENCE {
                let seconds = SILENCE.as_secs();
                return Err(format!(
                    "rank {from} sends nothing, and no rank has done anything for {seconds} \
                     seconds ({}). Ranks that wait for each other have taken different paths by \
                     values that are not computed: try --routing balanced for a mixture of \
                     experts, --assume random, or one rank alone, --ranks 0",
                    what()
                ));
            }
        }
        if start.elapsed() > patience {
            let seconds = patience.as_secs();
            return Err(format!("rank {from} sent nothing for {seconds} seconds ({})", what()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel(text: &str) -> Parcel {
        Parcel { bytes: text.as_bytes().to_vec(), is_known: text != "?" }
    }

    #[test]
    fn every_rank_gets_what_all_brought_and_little_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let post = Post::through(folder.path().to_owned());
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let post = post.clone();
                scope.spawn(move || {
                    for number in 1..=20u64 {
                        let text = format!("{rank}:{number}");
                        let all = post.exchange("c", number, (rank, 3), &parcel(&text)).unwrap();
                        let expected = [0, 1, 2].map(|from| parcel(&format!("{from}:{number}")));
                        assert_eq!(all, expected);
                    }
                });
            }
        });
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            4,
            "the last exchange, and who we are"
        );
    }

    #[test]
    fn a_rank_alone_receives_its_own() {
        let all = Post::default().exchange("c", 1, (3, 8), &parcel("?")).unwrap();
        assert_eq!(all, [parcel("?")]);
    }
}
