//! The layout: which recordings are done together, and where their rows go.
//!
//! A part is up to [`FILES`] recordings of one job and date. Its name is a hash of all that its rows depend on: the
//! recordings as they were listed, the configuration, this program's version. So a part that is there is right.

use super::config::Config;
use super::listing::{FileEntry, Listing};
use super::tables::SCHEMA_VERSION;
use twox_hash::XxHash3_128;

/// Recordings of a part: what is lost at most when a worker dies, and what is in memory of rows.
const FILES: usize = 64;

/// Bytes of a folder's name that all file systems take.
const NAME: usize = 200;

/// Recordings whose rows are in one file of each table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The recordings, in the order of their rows.
    pub files: Vec<FileEntry>,
    /// The file's path below the folder of a table.
    pub path: String,
}

/// All parts of a fleet, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// The parts.
    pub parts: Vec<Part>,
}

/// Which parts are done: every `count`-th, from number `index` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// The first part, from 0.
    pub index: usize,
    /// How many shards there are.
    pub count: usize,
}

impl Shard {
    /// All parts.
    pub const WHOLE: Self = Self { index: 0, count: 1 };
}

impl Layout {
    /// The parts of a listing, under this configuration.
    pub fn new(listing: Listing, config: &Config) -> Self {
        let conditions = conditions(config);
        let mut parts: Vec<Part> = Vec::new();
        for file in listing.files {
            let fits = |part: &Part| {
                let first = &part.files[0];
                first.job == file.job && first.date == file.date && part.files.len() < FILES
            };
            match parts.last_mut().filter(|part| fits(part)) {
                Some(part) => part.files.push(file),
                None => parts.push(Part { files: vec![file], path: String::new() }),
            }
        }
        for part in &mut parts {
            part.path = path(&part.files, &conditions);
        }
        Self { parts }
    }

    /// The parts of a shard.
    pub fn of(&self, shard: Shard) -> impl Iterator<Item = &Part> {
        self.parts.iter().skip(shard.index).step_by(shard.count.max(1))
    }
}

fn conditions(config: &Config) -> String {
    format!("{} {SCHEMA_VERSION}\n{}\n", env!("CARGO_PKG_VERSION"), config.conditions())
}

fn path(files: &[FileEntry], conditions: &str) -> String {
    let mut text = conditions.to_owned();
    for FileEntry { path, bytes, mark, job, date, rank } in files {
        text += &format!("{path:?} {bytes} {mark:?} {job:?} {date:?} {rank:?}\n");
    }
    let key = (XxHash3_128::oneshot(text.as_bytes()) >> 64) as u64;
    let (job, date) = (escaped(&files[0].job), escaped(&files[0].date));
    format!("job={job}/date={date}/part-{key:016x}.parquet")
}

/// A value as the name of a folder: what is not a letter, a digit or one of `._-` as `%` and two digits. A long one is
/// cut, and ends in a hash.
fn escaped(value: &str) -> String {
    let mut name = String::new();
    for byte in value.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'_' | b'-' => name.push(byte as char),
            _ => name += &format!("%{byte:02X}"),
        }
    }
    if name.len() <= NAME {
        return name;
    }
    let mut end = NAME - 40;
    while name.as_bytes()[end - 1] == b'%' || name.as_bytes()[end - 2] == b'%' {
        end -= 1;
    }
    format!("{}-{:032x}", &name[..end], XxHash3_128::oneshot(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64, job: &str) -> FileEntry {
        FileEntry {
            path: format!("{job}/{number}.pickle").into(),
            bytes: 10,
            mark: "1".to_owned(),
            job: job.to_owned(),
            date: "2026-11-23".to_owned(),
            rank: Some(number),
        }
    }

    #[test]
    fn a_part_holds_files_of_one_job() {
        let files = (0..150).map(|n| file(n, "a/r*")).chain([file(0, "b")]).collect();
        let layout = Layout::new(Listing { files, ..Listing::default() }, &Config::default());
        let sizes: Vec<_> = layout.parts.iter().map(|part| part.files.len()).collect();
        assert_eq!(sizes, [64, 64, 22, 1]);
        assert!(layout.parts[0].path.starts_with("job=a%2Fr%2A/date=2026-11-23/part-"));
    }

    #[test]
    fn a_changed_file_or_setting_has_another_part() {
        let path = |file: FileEntry, config: &Config| {
            Layout::new(Listing { files: vec![file], ..Listing::default() }, config).parts[0]
                .path
                .clone()
        };
        let (config, plain) = (Config::default(), file(0, "a"));
        let changed = FileEntry { mark: "2".to_owned(), ..plain.clone() };
        let with_steps = Config { has_steps: true, ..Config::default() };
        assert_eq!(path(plain.clone(), &config), path(plain.clone(), &config));
        assert_ne!(path(changed, &config), path(plain.clone(), &config));
        assert_ne!(path(plain.clone(), &with_steps), path(plain, &config));
    }

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let long = |last: &str| escaped(&("ü/".repeat(100) + last));
        assert!(long("a").len() <= NAME && long("a") != long("b"));
        assert!(!long("a").contains("%C-") && !long("a").contains("%-"));
    }
}
