//! Overwriting: no command may write to a file that it reads, nor write two results to one place.
//!
//! The checks are made once for all commands: what stands alone on the command line is read, and every file behind an
//! option is written, but for those in [`READ`].

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::ArgMatches;
use gmlake::bench::Set;
use gmlake::fleet;
use gmlake::remote::{is_remote, shown};
use gmlake::sim::job::{is_many, jobs};
use gmlake::trace::is_compressed;
use rustc_hash::FxHashSet;

use crate::args;

/// Options whose files are read.
const READ: [&str; 6] = ["catalogue", "check", "folder", "manifest", "plugin", "results"];

/// Refuses a command line whose output would take the place of its input.
pub(crate) fn refuse(matches: &ArgMatches) -> anyhow::Result<()> {
    let program = args::command();
    let (mut name, mut matches, mut command) = ("", matches, Some(&program));
    while let Some((inner, below)) = matches.subcommand() {
        command = command.and_then(|command| command.find_subcommand(inner));
        (name, matches) = (inner, below);
    }
    let positional = command.into_iter().flat_map(|command| command.get_positionals());
    let positional: Vec<&str> = positional.map(|argument| argument.get_id().as_str()).collect();
    let (mut read, mut written): (Vec<PathBuf>, Vec<PathBuf>) = (Vec::new(), Vec::new());
    // What `--json` prints is what `--export-json -` prints, where there is that.
    if matches.get_flag("json") && !prints_json(matches) {
        written.push(PathBuf::from("-"));
    }
    for id in matches.ids() {
        // Whatever is no path is of no interest here.
        let Ok(Some(paths)) = matches.try_get_many::<PathBuf>(id.as_str()) else { continue };
        let is_read = positional.contains(&id.as_str()) || READ.contains(&id.as_str());
        if is_read { &mut read } else { &mut written }.extend(paths.cloned());
    }
    refuse_twice(&written)?;
    read.extend(named(name, matches));
    let read: Vec<PathBuf> = read.into_iter().flat_map(files).collect();
    for out in &written {
        if is_remote(out) {
            bail!("{}: remote files are only read: write here, and copy it there", shown(out));
        }
        if name != "export" && holds_a_recording(out) {
            bail!(
                "{} is a recording, and would be overwritten: write to another file",
                out.display()
            );
        }
        if let Some(file) = read.iter().find(|file| is_same(file, out)) {
            bail!("{} is read, and would be overwritten: write to another file", file.display());
        }
    }
    Ok(())
}

/// Files behind options that also take names of what is in the program: price lists, and the list of a benchmark.
fn named(command: &str, matches: &ArgMatches) -> Vec<PathBuf> {
    let values = |id| matches.try_get_many::<String>(id).ok().flatten().into_iter().flatten();
    let profiles = values("profile").map(String::as_str);
    let axes = values("set").filter_map(|axis| axis.strip_prefix("profile="));
    let mut files: Vec<PathBuf> =
        profiles.chain(axes.flat_map(|names| names.split(','))).map(PathBuf::from).collect();
    for list in values("set").filter(|_| command == "bench") {
        let folder = matches.get_one::<PathBuf>("folder").map(PathBuf::as_path);
        let traces = Set::open(list, folder).map(|set| set.traces).unwrap_or_default();
        files.push(PathBuf::from(list));
        files.extend(traces.into_iter().map(|entry| entry.file));
    }
    files
}

/// Whether JSON goes to standard output as an export.
fn prints_json(matches: &ArgMatches) -> bool {
    let Ok(Some(mut paths)) = matches.try_get_many::<PathBuf>("export_json") else { return false };
    paths.any(|path| is_stdout(path))
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses two results for one file, or for standard output. Devices take what they get.
fn refuse_twice(written: &[PathBuf]) -> anyhow::Result<()> {
    let mut targets = FxHashSet::default();
    for path in written.iter().filter(|path| !path.exists() || path.is_file()) {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).unwrap_or_default();
        let name = path.file_name().unwrap_or_default();
        let target = fs::canonicalize(path).unwrap_or_else(|_| folder.join(name));
        if targets.insert(if is_stdout(path) { path.clone() } else { target }) {
            continue;
        }
        match is_stdout(path) {
            true => {
                bail!("two results cannot both go to standard output: write one of them to a file")
            }
            false => bail!("two results for {}: give each a file of its own", path.display()),
        }
    }
    Ok(())
}

/// Whether a file begins as pickled or compressed recordings do. Only `export` writes such files.
fn holds_a_recording(path: &Path) -> bool {
    let mut head = Vec::new();
    let is_read = path.is_file()
        && fs::File::open(path).is_ok_and(|file| file.take(6).read_to_end(&mut head).is_ok());
    is_read && (head.starts_with(b"\x80") || is_compressed(&head))
}

/// The files that an argument stands for. One that cannot be listed is reported later.
fn files(argument: PathBuf) -> Vec<PathBuf> {
    if is_remote(&argument) || !is_many(&argument) {
        return vec![argument];
    }
    let jobs = jobs(std::slice::from_ref(&argument), false).unwrap_or_default();
    let ranks = jobs.into_iter().flat_map(|job| job.ranks).map(|rank| rank.path);
    ranks.chain(fleet::results(&argument)).collect()
}

/// Whether both are one file on disk. A device or a pipe can be read and written at once.
fn is_same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok().filter(|path| path.is_file());
    real(a).is_some() && real(a) == real(b)
}
