//! Jobs: which files belong together, read from their names.
//!
//! A training job on many GPUs leaves a trace for each rank. Files whose names differ only in the rank are one job, and
//! so is what one folder or one pattern holds:
//!
//! ```text
//!   opt-13b.r0.pickle   opt-13b.r1.pickle        one job of two ranks, by "r0" and "r1" (or rank0, rank_0, rank-0)
//!   opt-1.3b.b32.r0.pickle  opt-1.3b.b96.r0.pickle   two jobs, which differ in "b": a series
//!   snapshots/                                   one job; an error if the files in it are of several
//!   s3://bucket/run-1/                           the same, remote
//! ```
//!
//! Beside pickles, JSON and CSV are mostly something else: results, settings. Only those whose names say that they are
//! other ranks of the same job are read (`rank1.json` beside `rank0.pickle`). The others are left out, and counted.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustc_hash::FxHashSet;

use super::names::{self, Name};
use crate::input_error::InputError;
use crate::remote::{self, RemoteError};
use crate::trace::{Coverage, Gap};
use crate::units::Count;

/// A file of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankFile {
    /// Number of the rank, if the name tells one, or the place where the names tell none.
    pub number: Option<u64>,
    /// The file.
    pub path: PathBuf,
}

/// The name of a job that is of all files given, whatever theirs are.
pub const GIVEN: &str = "the files given";

/// Missing ranks that are named at most.
const NAMED: usize = 8;

/// Files that belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// The name that the files share, with a `*` in place of the rank if there are several.
    pub name: String,
    /// The files, in the order of their ranks.
    pub ranks: Vec<RankFile>,
    /// JSON and CSV files that lie beside its pickles, and what is no file: none of these is read.
    pub left_out: Vec<PathBuf>,
}

/// The recordings among the files of folders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recordings {
    /// The recordings.
    pub files: Vec<PathBuf>,
    /// JSON and CSV files that lie beside pickles, and what is no file: none of these is read.
    pub left_out: Vec<PathBuf>,
}

const EMPTY: &str = "no trace in this folder: no file ends in .pickle, .pkl, .json or .csv";
const NO_MATCH: &str = "no file matches this pattern";

/// Why files do not make jobs.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A remote folder or pattern cannot be listed.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] InputError),
}

impl Job {
    /// Ranks that one would expect between the first and the last and that are not there; at most `most`.
    pub fn missing(&self, most: usize) -> Vec<u64> {
        let numbers: Vec<u64> = self.ranks.iter().filter_map(|rank| rank.number).collect();
        let last = numbers.last().copied().unwrap_or(0);
        let is_missing = |number: &u64| numbers.binary_search(number).is_err();
        if numbers.len() < 2 {
            Vec::new()
        } else {
            (0..last).filter(is_missing).take(most).collect()
        }
    }

    /// The first ranks that are not there, in words.
    pub fn without(&self) -> Option<String> {
        let missing: Vec<String> = self.missing(NAMED).iter().map(u64::to_string).collect();
        (!missing.is_empty()).then(|| format!("no file of rank {}", missing.join(", ")))
    }

    /// How much of the job is known from `ranks`, if so many of its files cannot be read: as much as of the worst.
    pub fn coverage<'a>(
        &self,
        ranks: impl Iterator<Item = &'a Coverage>,
        unread: usize,
    ) -> Coverage {
        let unread =
            (unread > 0).then(|| format!("{} cannot be read", Count(unread as u64, "file")));
        let missing = self.without().into_iter().chain(unread);
        Coverage::worst_of(ranks).with(missing.map(|what| Gap::RanksMissing { what }))
    }
}

/// The jobs that files, folders and patterns stand for. `is_one`: all are one, whatever their names.
///
/// # Errors
/// If a folder or a pattern holds nothing, or files of several jobs, or one rank twice.
pub fn jobs(arguments: &[PathBuf], is_one: bool) -> Result<Vec<Job>, JobError> {
    let mut found = Vec::new();
    let mut plain = Recordings::default();
    for argument in arguments {
        match expand(argument)? {
            Some(more) if is_one => plain.extend(more),
            Some(Recordings { files, left_out }) => {
                found.push(Job { left_out, ..one(&files, &remote::shown(argument))? });
            }
            None => plain.files.push(argument.clone()),
        }
    }
    let Recordings { files: plain, mut left_out } = plain;
    if is_one {
        left_out.retain(|path| !plain.contains(path));
        return Ok(vec![Job { left_out, ..whatever_their_names(&plain)? }]);
    }
    found.extend(by_name(&plain)?);
    Ok(found)
}

/// The job that a file's path tells, with `*` in place of the rank, and the rank.
pub fn of_path(path: &Path) -> (String, Option<u64>) {
    let name = Name::of(path);
    (name.pattern(), name.rank())
}

/// Whether an argument stands for a job by itself: a folder or a pattern.
pub fn is_many(argument: &Path) -> bool {
    match remote::is_remote(argument) {
        true => remote::is_many(argument),
        false => argument.is_dir() || is_pattern(argument),
    }
}

/// What the jobs differ in, and the value of each: as `by` says (`batch=32,96,160`), or as their names do (`batch`).
/// `None` if it was not asked for and the names do not differ in one number alone.
///
/// # Errors
/// If the values do not fit the jobs, or the names do not tell them.
pub fn quantity(jobs: &[Job], by: Option<&str>) -> Result<Option<(String, Vec<f64>)>, JobError> {
    let wrong = |text: String| Err(InputError(text).into());
    let (name, values) = match by {
        None => match names::only_difference(&parsed(jobs)) {
            Some(found) if jobs.len() > 1 => found,
            _ => return Ok(None),
        },
        Some(by) => match by.split_once('=') {
            Some((name, values)) => (name.to_owned(), numbers(by, values)?),
            None => (by.to_owned(), from_names(jobs, by)?),
        },
    };
    if values.len() != jobs.len() {
        let [values, jobs] = [(values.len(), "value"), (jobs.len(), "job")]
            .map(|(count, what)| Count(count as u64, what).to_string());
        return wrong(format!("{name} has {values} for {jobs}"));
    }
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return wrong(format!("two jobs have the same {name}, {}", twice[0]));
    }
    Ok(Some((name, values)))
}

fn numbers(by: &str, values: &str) -> Result<Vec<f64>, JobError> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let numbers: Option<Vec<f64>> = values.split(',').map(number).collect();
    let expected = "write a number for each job, as in batch=32,96,160";
    Ok(numbers.ok_or_else(|| InputError::at(format_args!("--by {by}"), expected))?)
}

fn from_names(jobs: &[Job], quantity: &str) -> Result<Vec<f64>, JobError> {
    let value = |name: Name| {
        let hint = format!("give the value of each job, as in --by {quantity}=32,96,160");
        let file = &name.text;
        let wrong = || InputError(format!("{file:?} does not say its {quantity}: {hint}"));
        Ok(name.value_of(quantity).ok_or_else(wrong)?)
    };
    parsed(jobs).into_iter().map(value).collect()
}

fn parsed(jobs: &[Job]) -> Vec<Name> {
    let first = |job: &Job| job.ranks.first().map(|rank| Name::of(&rank.path)).unwrap_or_default();
    jobs.iter().map(first).collect()
}

/// The files that a folder or a pattern stands for; `None` for a plain file.
fn expand(argument: &Path) -> Result<Option<Recordings>, JobError> {
    if !is_many(argument) {
        return Ok(None);
    }
    let (text, shown) = (argument.to_string_lossy(), remote::shown(argument));
    let is_remote = remote::is_remote(argument);
    let is_folder = if is_remote { text.ends_with('/') } else { argument.is_dir() };
    let found = match is_remote {
        true => {
            let files = remote::list(&text)?.into_iter().map(|file| PathBuf::from(file.url));
            let files: Vec<PathBuf> = files.collect();
            if is_folder { recordings(&files) } else { Recordings::all(files) }
        }
        false if is_folder => below(argument)
            .map_err(|error| InputError::at(&shown, format_args!("cannot be listed: {error}")))?,
        false => {
            let paths = matching(argument)?.into_iter().filter(|path| !path.is_dir());
            let (left_out, files) = paths.partition(|path| is_special(path));
            Recordings { files, left_out }
        }
    };
    match found.files.is_empty() {
        true => Err(InputError::at(shown, if is_folder { EMPTY } else { NO_MATCH }).into()),
        false => Ok(Some(found)),
    }
}

/// Whether an argument is a pattern, and not the name of a file.
pub(crate) fn is_pattern(argument: &Path) -> bool {
    let text = argument.to_string_lossy();
    text.contains(['*', '?', '[']) && !argument.exists()
}

/// What is there that a pattern fits.
pub(crate) fn matching(pattern: &Path) -> Result<Vec<PathBuf>, InputError> {
    let text = pattern.display().to_string();
    let no_pattern = |error| InputError::at(&text, format_args!("not a pattern: {error}"));
    Ok(glob::glob(&text).map_err(no_pattern)?.flatten().collect())
}

/// The traces in a folder, else in its folders, such as `iteration_10/rank0_memory_snapshot.pickle`.
fn below(folder: &Path) -> io::Result<Recordings> {
    let (files, folders) = inside(folder, false)?;
    let mut found = recordings(&files);
    if found.files.is_empty() {
        for folder in folders {
            found.extend(below(&folder)?);
        }
    }
    Ok(found)
}

/// Files and folders in a folder, in order, without those that begin with a dot. `with_links`: links to folders count.
pub(crate) fn inside(folder: &Path, with_links: bool) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if !path.is_dir() {
            files.push(path);
        } else if with_links || entry.file_type()?.is_dir() {
            folders.push(path);
        }
    }
    files.sort();
    folders.sort();
    Ok((files, folders))
}

/// Whether something else than a file is there: a pipe, a socket, a device. Reading one may take for ever.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir())
}

/// The pickles among the files of one folder, with JSON and CSV files that are other ranks of their jobs; if there are
/// no pickles, all its JSON and CSV files. What begins with a dot does not count, and what is no file is left out.
pub fn recordings(paths: &[PathBuf]) -> Recordings {
    let is_hidden = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
    };
    let mut special = Vec::new();
    let mut of = |endings: &[&str]| -> Vec<PathBuf> {
        let is_one = |path: &&PathBuf| names::has_ending(path, endings) && !is_hidden(path);
        let found = paths.iter().filter(is_one).cloned();
        let (odd, files): (Vec<PathBuf>, _) = found.partition(|path| is_special(path));
        special.extend(odd);
        files
    };
    let (mut files, others) = (of(&["pickle", "pkl"]), of(&["json", "csv"]));
    if files.is_empty() {
        return Recordings { files: others, left_out: special };
    }
    let known: FxHashSet<(String, Option<u64>)> = files.iter().map(|path| of_path(path)).collect();
    let jobs: FxHashSet<&String> = known.iter().map(|(job, _)| job).collect();
    let (ranks, left_out): (Vec<PathBuf>, Vec<PathBuf>) = others.into_iter().partition(|path| {
        let (job, rank) = of_path(path);
        rank.is_some() && jobs.contains(&job) && !known.contains(&(job, rank))
    });
    files.extend(ranks);
    Recordings { files, left_out: [left_out, special].concat() }
}

impl Recordings {
    /// All of these.
    pub(crate) fn all(files: Vec<PathBuf>) -> Self {
        Self { files, left_out: Vec::new() }
    }

    /// Adds those of another folder.
    pub fn extend(&mut self, other: Self) {
        self.files.extend(other.files);
        self.left_out.extend(other.left_out);
    }
}

/// Files grouped by their names without the rank, in the order of the first of each.
fn by_name(files: &[PathBuf]) -> Result<Vec<Job>, JobError> {
    let mut groups: Vec<(String, Vec<RankFile>)> = Vec::new();
    for path in files {
        let name = Name::of(path);
        let file = RankFile { number: name.rank(), path: path.clone() };
        let key = name.without_rank();
        // Two plain files of the same name are two jobs: somebody wants to see both.
        let known = groups.iter_mut().find(|(other, _)| *other == key && file.number.is_some());
        match known {
            Some((_, group)) => group.push(file),
            None => groups.push((key, vec![file])),
        }
    }
    groups.into_iter().map(|(name, ranks)| sorted(name, ranks)).collect()
}

fn sorted(name: String, mut ranks: Vec<RankFile>) -> Result<Job, JobError> {
    ranks.sort_by_key(|rank| rank.number);
    if let Some(pair) = ranks.windows(2).find(|pair| pair[0].number == pair[1].number) {
        let (first, other) = (remote::shown(&pair[0].path), remote::shown(&pair[1].path));
        let rank = pair[0].number.unwrap_or(0);
        let problem = format!("{first:?} and {other:?} are both rank {rank} of one job");
        return Err(InputError(problem).into());
    }
    let name = if ranks.len() == 1 { Name::of(&ranks[0].path).title() } else { name };
    Ok(Job { name, ranks, left_out: Vec::new() })
}

/// One job of all files. Where their names do not tell ranks, the order does.
fn whatever_their_names(files: &[PathBuf]) -> Result<Job, JobError> {
    let place = GIVEN;
    by_name(files)?;
    let in_order = files.iter().zip(0..);
    let ranks = in_order.map(|(path, place)| RankFile { number: Some(place), path: path.clone() });
    one(files, place).or_else(|_| sorted(place.to_owned(), ranks.collect()))
}

fn one(files: &[PathBuf], place: &str) -> Result<Job, JobError> {
    let mut jobs = by_name(files)?;
    if jobs.len() == 1 {
        return Ok(jobs.remove(0));
    }
    let parsed: Vec<Name> = files.iter().map(|file| Name::of(file)).collect();
    if parsed.iter().all(|name| name.rank().is_none())
        && let Some((_, numbers)) = names::only_difference(&parsed)
    {
        let number = |(path, &number): (&PathBuf, &f64)| RankFile {
            number: Some(number as u64),
            path: path.clone(),
        };
        return sorted(place.to_owned(), files.iter().zip(&numbers).map(number).collect());
    }
    let (first, other) = (&jobs[0].name, &jobs[1].name);
    let problem = format!(
        "a mix of jobs, such as {first:?} and {other:?}, whose names differ in more than the rank: \
         give the files of one job"
    );
    Err(InputError::at(place, problem).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    fn found(names: &[&str]) -> Vec<(String, Vec<Option<u64>>)> {
        let jobs = jobs(&paths(names), false).unwrap();
        let numbers = |job: &Job| job.ranks.iter().map(|rank| rank.number).collect();
        jobs.iter().map(|job| (job.name.clone(), numbers(job))).collect()
    }

    #[test]
    fn ranks_of_one_name_are_a_job_in_the_order_of_their_numbers() {
        let names = ["a/opt.b8.r10.pickle.xz", "a/opt.b8.r2.pickle.xz", "a/opt.b9.r0.pickle.xz"];
        let expected = [
            ("opt.b8.r*".to_owned(), vec![Some(2), Some(10)]),
            ("opt.b9.r0".to_owned(), vec![Some(0)]),
        ];
        assert_eq!(found(&names), expected);
        let names = ["x/rank0/snap.pickle", "x/rank1/snap.pickle"];
        assert_eq!(found(&names), [("x/rank*/snap".to_owned(), vec![Some(0), Some(1)])]);
    }

    #[test]
    fn files_without_ranks_stay_apart_unless_told_otherwise() {
        let names = ["snap_0.pickle", "snap_1.pickle"];
        assert_eq!(found(&names).len(), 2);
        let one = jobs(&paths(&names), true).unwrap();
        assert_eq!((one.len(), one[0].ranks.len()), (1, 2));
        let mixed = jobs(&paths(&["b.r0.pickle", "a.r0.pickle", "c.pickle"]), true).unwrap();
        let ranks = mixed[0].ranks.iter().map(|rank| (rank.number, rank.path.to_str()));
        let expected = [
            (Some(0), Some("b.r0.pickle")),
            (Some(1), Some("a.r0.pickle")),
            (Some(2), Some("c.pickle")),
        ];
        assert_eq!((mixed.len(), ranks.collect::<Vec<_>>()), (1, expected.to_vec()));
        let twice = jobs(&paths(&["a.r0.pickle", "a.r0.pickle.xz"]), false).unwrap_err();
        assert!(twice.to_string().contains("both rank 0"), "{twice}");
    }

    #[test]
    fn what_jobs_differ_in_is_read_from_their_names_or_given() {
        let named = jobs(&paths(&["o-w4.b160.r0.pickle", "o-w4.b32.r0.pickle"]), false).unwrap();
        let expected = Some(("b".to_owned(), vec![160.0, 32.0]));
        assert_eq!(quantity(&named, None).unwrap(), expected);
        let expected = Some(("batch".to_owned(), vec![160.0, 32.0]));
        assert_eq!(quantity(&named, Some("batch")).unwrap(), expected);
        let given = quantity(&named, Some("length=7,5.5")).unwrap();
        assert_eq!(given, Some(("length".to_owned(), vec![7.0, 5.5])));
        let unlike = jobs(&paths(&["opt.r0.pickle", "glm.r0.pickle"]), false).unwrap();
        assert_eq!(quantity(&unlike, None).unwrap(), None);
    }

    #[test]
    fn beside_pickles_only_other_ranks_of_their_jobs_are_read() {
        let read = ["a/rank0.pickle", "a/rank2.pickle.xz", "a/rank1.json", "a/rank3.csv.gz"];
        let left_out = [
            "a/rank0.json",       // An export of the pickle.
            "a/rank1.stats.json", // Of rank 1, and no recording.
            "a/results.csv",      // Of no rank.
            "a/other.rank1.json", // Of another job.
        ];
        let hidden = ["a/.rank5.json", "a/rank6.txt"];
        let all: Vec<&str> = [&read[..], &left_out, &hidden].concat();
        let found = recordings(&paths(&all));
        assert_eq!(found, Recordings { files: paths(&read), left_out: paths(&left_out) });
        let alone = recordings(&paths(&left_out));
        assert_eq!(alone, Recordings { files: paths(&left_out), left_out: Vec::new() });
    }
}
