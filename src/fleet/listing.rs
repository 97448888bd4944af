//! The listing: every recording of a fleet with its job, date and rank, found without opening one.
//!
//! A folder is searched with all that is below it, but for results of a fleet. The job is the file's path below what
//! was typed, with `*` in place of the rank; the date is one that stands in the path, else that of the file's last
//! change. A manifest may say otherwise.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use rustc_hash::{FxHashMap, FxHashSet};

use super::about::{ABOUT, holds_results};
use super::manifest;
use crate::input_error::InputError;
use crate::remote::{self, RemoteFile};
use crate::sim::job::{self, Recordings};

/// In place of a date that is not known.
const UNKNOWN: &str = "unknown";

/// A recording, and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes, as it is stored.
    pub bytes: u64,
    /// What changes when its content does: time of the last change, or what a server says in place of it.
    pub mark: String,
    /// The job that it is of.
    pub job: String,
    /// The day of the recording, as `2026-11-23`.
    pub date: String,
    /// Its rank, if that is known.
    pub rank: Option<u64>,
}

/// All recordings, in the order of job, date, rank and path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The recordings.
    pub files: Vec<FileEntry>,
    /// JSON and CSV files that lie beside pickles, and what is no file: none of these is read.
    pub left_out: Vec<PathBuf>,
}

/// Lists what the arguments (files, folders, patterns) and the lines of a manifest stand for.
///
/// # Errors
/// If one of them cannot be listed or stands for nothing.
pub fn list(arguments: &[PathBuf], manifest: Option<&Path>) -> Result<Listing, InputError> {
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    let named = manifest.map_or(Ok(Vec::new()), of_manifest)?;
    for argument in arguments {
        let before = files.len();
        if remote::is_many(argument) {
            files.extend(far(argument, &mut left_out)?);
        } else {
            let root = root(argument);
            let found = expand(argument)?;
            left_out.extend(found.left_out);
            files.extend(found.files.into_iter().map(|path| entry(path, &root)));
        }
        if files.len() == before {
            let problem = "no recording here: no file ends in .pickle, .pkl, .json or .csv";
            return Err(InputError::at(remote::shown(argument), problem));
        }
    }
    let mut files = each_once(named, files);
    files.sort_by(|a, b| {
        (&a.job, &a.date, a.rank, &a.path).cmp(&(&b.job, &b.date, b.rank, &b.path))
    });
    let read: FxHashSet<&PathBuf> = files.iter().map(|file| &file.path).collect();
    left_out.retain(|path| !read.contains(path));
    left_out.sort();
    left_out.dedup();
    Ok(Listing { files, left_out })
}

/// What the lines of a manifest name, each file once.
fn of_manifest(manifest: &Path) -> Result<Vec<FileEntry>, InputError> {
    let mut known: FxHashMap<PathBuf, FileEntry> = FxHashMap::default();
    let mut files = Vec::new();
    for (number, line) in (2..).zip(manifest::read(manifest)?) {
        let wrong = |problem: String| {
            Err(InputError::at(manifest.display(), format!("line {number}: {problem}")))
        };
        let (path, shown) = (line.path.clone(), remote::shown(&line.path));
        let is_date = |date: &String| date == UNKNOWN || date_in(date).as_ref() == Some(date);
        if let Some(date) = line.date.as_ref().filter(|date| !is_date(date)) {
            return wrong(format!("{date:?} is not a date; write it as 2026-11-23"));
        }
        let root = path.parent().map(Path::to_owned).unwrap_or_default();
        let mut file = entry(line.path, &root);
        file.job = line.job.unwrap_or(file.job);
        file.date = line.date.unwrap_or(file.date);
        file.rank = line.rank.or(file.rank);
        if *known.entry(path).or_insert_with(|| file.clone()) != file {
            return wrong(format!("{shown} is listed before, with another job, date or rank"));
        }
        files.push(file);
    }
    Ok(files)
}

/// Each file under one of its names, be it listed twice or by a link: that of a manifest, else the one with fewest
/// links in it, else the first.
fn each_once(named: Vec<FileEntry>, found: Vec<FileEntry>) -> Vec<FileEntry> {
    let with_place = |file: FileEntry| {
        let is_remote = remote::is_remote(&file.path);
        let real = if is_remote { None } else { fs::canonicalize(&file.path).ok() };
        (real.unwrap_or_else(|| file.path.clone()), file)
    };
    let mut found: Vec<_> = found.into_iter().map(with_place).collect();
    found.sort_by_key(|(real, file)| unlike(&file.path, real));
    let all = named.into_iter().map(with_place).chain(found);
    let mut seen = FxHashSet::default();
    all.filter_map(|(real, file)| seen.insert(real).then_some(file)).collect()
}

/// Parts of a path up to the last that is not its name on disk.
fn unlike(path: &Path, real: &Path) -> usize {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let [names, real] = [path, real].map(|path| path.components().rev().filter(is_name));
    let alike = names.clone().zip(real).take_while(|(name, real)| name == real).count();
    names.count() - alike
}

/// The recordings in a remote folder, or of a remote pattern.
fn far(argument: &Path, left_out: &mut Vec<PathBuf>) -> Result<Vec<FileEntry>, InputError> {
    let root = root(argument);
    let mut folders: BTreeMap<PathBuf, BTreeMap<PathBuf, RemoteFile>> = BTreeMap::new();
    let found = remote::list_below(&argument.to_string_lossy());
    for file in found.map_err(|error| InputError(error.to_string()))? {
        let path = PathBuf::from(&file.url);
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        if !is_hidden(&folder, &root) {
            folders.entry(folder).or_default().insert(path, file);
        }
    }
    // What a fleet has written is known by its names: to open a file takes a request.
    let has_tables = |folder: &Path| folders.keys().any(|f| f.starts_with(folder.join("ranks")));
    let is_result = |file: &PathBuf| file.ends_with(ABOUT);
    let results =
        folders.iter().filter(|(folder, files)| files.keys().any(is_result) && has_tables(folder));
    let results: Vec<PathBuf> = results.map(|(folder, _)| folder.clone()).collect();
    folders.retain(|folder, _| !results.iter().any(|result| folder.starts_with(result)));
    let mut files = Vec::new();
    for mut folder in folders.into_values() {
        let paths: Vec<PathBuf> = folder.keys().cloned().collect();
        let found = job::recordings(&paths);
        left_out.extend(found.left_out);
        for path in found.files {
            let Some(file) = folder.remove(&path) else { continue };
            files.push(named(path, &root, file.size, file.version, file.changed));
        }
    }
    Ok(files)
}

/// Whether a folder below `root`, or one that it is in, begins with a dot.
fn is_hidden(folder: &Path, root: &Path) -> bool {
    let below = folder.strip_prefix(root).unwrap_or(Path::new(""));
    below.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.'))
}

/// The recordings that an argument stands for.
fn expand(argument: &Path) -> Result<Recordings, InputError> {
    let mut found = Recordings::default();
    if argument.is_dir() {
        search(argument, &mut found)?;
        return Ok(found);
    }
    if !job::is_pattern(argument) {
        if !remote::is_remote(argument) {
            fs::metadata(argument).map_err(|error| io_error(argument, error))?;
        }
        return Ok(Recordings::all(vec![argument.to_owned()]));
    }
    let is_result = |path: &PathBuf| path.ancestors().skip(1).any(holds_results);
    for path in job::matching(argument)?.into_iter().filter(|path| !is_result(path)) {
        match path.is_dir() {
            true => search(&path, &mut found)?,
            false if job::is_special(&path) => found.left_out.push(path),
            false => found.files.push(path),
        }
    }
    Ok(found)
}

/// Adds the recordings in a folder and below it, of each folder once: links to folders come last, since they may lead
/// back. What begins with a dot is left out, and so are results of a fleet. A folder in it that cannot be listed stands
/// for itself, and is a problem when it is read.
fn search(folder: &Path, found: &mut Recordings) -> Result<(), InputError> {
    let mut seen = FxHashSet::default();
    let mut open = VecDeque::from([folder.to_owned()]);
    while let Some(next) = open.pop_front() {
        let real = fs::canonicalize(&next).unwrap_or_else(|_| next.clone());
        if !seen.insert(real) || holds_results(&next) {
            continue;
        }
        let (files, folders) = match job::inside(&next, true) {
            Ok(inside) => inside,
            Err(error) if next == folder => return Err(io_error(folder, error)),
            Err(_) => {
                found.files.push(next);
                continue;
            }
        };
        found.extend(job::recordings(&files));
        let (links, folders): (Vec<_>, Vec<_>) = folders.into_iter().partition(|f| f.is_symlink());
        folders.into_iter().rev().for_each(|folder| open.push_front(folder));
        open.extend(links);
    }
    Ok(())
}

/// The part of an argument that names of jobs leave out: a folder itself, else all before the file or the first `*`.
fn root(argument: &Path) -> PathBuf {
    let is_folder = remote::is_remote(argument) && argument.to_string_lossy().ends_with('/');
    if is_folder || argument.is_dir() {
        return argument.to_owned();
    }
    let is_plain =
        |part: &Component<'_>| !part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
    let parent = argument.parent().unwrap_or(Path::new(""));
    parent.components().take_while(is_plain).collect()
}

/// A file of this machine, or one object that was named. Neither an object nor what cannot be looked at is asked for
/// before it is read.
fn entry(path: PathBuf, root: &Path) -> FileEntry {
    let is_remote = remote::is_remote(&path);
    let Some(about) = fs::metadata(&path).ok().filter(|_| !is_remote) else {
        return named(path, root, 0, String::new(), None);
    };
    let changed = about.modified().unwrap_or(UNIX_EPOCH);
    let nanos = changed.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    named(path, root, about.len(), nanos.to_string(), Some(changed))
}

/// A recording whose job, date and rank are in its path below `root`.
fn named(
    path: PathBuf,
    root: &Path,
    bytes: u64,
    mark: String,
    changed: Option<SystemTime>,
) -> FileEntry {
    let below = path.strip_prefix(root).unwrap_or(&path).to_owned();
    let (job, rank) = job::of_path(&below);
    let in_path = date_in(&remote::shown(&below));
    let date = in_path.or_else(|| changed.map(day_of)).unwrap_or_else(|| UNKNOWN.to_owned());
    FileEntry { path, bytes, mark, job, date, rank }
}

/// The first date in a path, written as `2026-11-23` or `20261123`.
fn date_in(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_edge = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at)).is_none_or(|byte| !byte.is_ascii_digit())
    };
    (0..bytes.len()).find_map(|at| {
        [10, 8].into_iter().find_map(|length| {
            let part = text.get(at..at + length)?;
            let digits: String = part.chars().filter(|&c| c != '-').collect();
            let is_date = match length {
                10 => part.as_bytes()[4] == b'-' && part.as_bytes()[7] == b'-',
                _ => digits.len() == 8,
            };
            let is_whole = is_edge(at.checked_sub(1)) && is_edge(Some(at + length));
            (is_date && is_whole).then(|| calendar_day(&digits)).flatten()
        })
    })
}

/// `20261123` as `2026-11-23`, if it is a day of this century.
fn calendar_day(digits: &str) -> Option<String> {
    let number: u32 = digits.parse().ok().filter(|_| digits.len() == 8)?;
    let (year, month, day) = (number / 10_000, number / 100 % 100, number % 100);
    let is_day =
        (2000..2100).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    is_day.then(|| format!("{year:04}-{month:02}-{day:02}"))
}

/// The day of a moment, in UTC.
fn day_of(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    day_number(seconds / 86_400)
}

/// The date of a day counted from 1970-01-01, in a calendar whose years begin in March, so that leap days come last
/// (Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
fn day_number(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + later)
}

fn io_error(path: &Path, source: io::Error) -> InputError {
    InputError::at(path.display(), format_args!("cannot be listed: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, date) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (20_780, "2026-11-23"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(day_number(days), date);
        }
    }

    #[test]
    fn a_date_in_the_path_is_found_and_other_numbers_are_not() {
        for (text, date) in [
            ("2026-11-23/llama.r0.pickle", Some("2026-11-23")),
            ("runs/20261123/rank0.pickle", Some("2026-11-23")),
            ("run-20261123T1200.r0.pickle", Some("2026-11-23")),
            ("run-120261123.r0.pickle", None),
            ("20269923/a.pickle", None),
            ("ü2026-1-23/a.pickle", None),
            ("a.b160.r0.pickle", None),
        ] {
            assert_eq!(date_in(text).as_deref(), date, "{text}");
        }
    }

    #[test]
    fn folders_are_searched_and_jobs_are_named_by_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["2026-01-02/a/rank0.pickle", "2026-01-02/a/rank1.pickle.xz", "b.r7.json"];
        for name in files.iter().chain(&["2026-01-02/a/rank0.stats.json", ".x/c.pickle"]) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let found = list(&[folder.path().to_owned()], None).unwrap();
        assert_eq!(found.left_out, [folder.path().join("2026-01-02/a/rank0.stats.json")]);
        let found = found.files;
        let jobs: Vec<_> = found.iter().map(|file| (file.job.as_str(), file.rank)).collect();
        let job = "2026-01-02/a/rank*";
        assert_eq!(jobs, [(job, Some(0)), (job, Some(1)), ("b.r*", Some(7))]);
        assert!(found[..2].iter().all(|file| file.date == "2026-01-02"));
        let pattern = folder.path().join("*/a/*.pickle*");
        let again = list(&[pattern, folder.path().join("b.r7.json")], None).unwrap().files;
        assert_eq!(again, found);
        // However it is named, a file is one recording, of the job of its own name.
        let link = |from: &str, to: &str| {
            std::os::unix::fs::symlink(folder.path().join(from), folder.path().join(to)).unwrap();
        };
        link("2026-01-02/a", "2026-01-02/Latest");
        link("b.r7.json", "a.r7.json");
        let others = ["", ".", "2026-01-02", "2026-01-02/../b.r7.json", "2026-01-02/Latest"];
        let others = others.map(|other| folder.path().join(other));
        assert_eq!(list(&others, None).unwrap().files.len(), 3);
        assert_eq!(list(&others[1..2], None).unwrap().files.len(), 3);
        let again = list(&others[..1], None).unwrap().files;
        assert_eq!(again, found);
        let manifest = folder.path().join(".m.csv");
        fs::write(&manifest, "path,job\na.r7.json,mine\n").unwrap();
        let named = list(&others[..1], Some(&manifest)).unwrap().files;
        assert_eq!(named.len(), 3);
        assert!(named.iter().any(|file| file.job == "mine"));
        for (lines, problem) in [
            ("path,date\na.r7.json,yesterday\n", "line 2: \"yesterday\" is not a date"),
            ("path,date\na.r7.json,2026-13-01\n", "line 2: \"2026-13-01\" is not a date"),
            ("path,job\na.r7.json,a\na.r7.json,b\n", "a.r7.json is listed before"),
        ] {
            fs::write(&manifest, lines).unwrap();
            let refused = list(&[], Some(&manifest)).unwrap_err().to_string();
            assert!(refused.contains(problem), "{refused}");
        }
        fs::write(&manifest, "path,job\na.r7.json,a\na.r7.json,a\n").unwrap();
        assert_eq!(list(&[], Some(&manifest)).unwrap().files.len(), 1);
        fs::remove_file(&manifest).unwrap();
        let nothing = list(&[folder.path().join(".x/none*")], None).unwrap_err().to_string();
        assert!(nothing.contains("no recording here"), "{nothing}");
        assert!(list(&[folder.path().join("gone.pickle")], None).is_err());
    }
}
