//! Overwriting: what a command reads and what it writes, once for all commands. What stands alone on the command line
//! is read, and every file behind an option is written, but for those in [`READ`].

use std::path::PathBuf;

use anyhow::bail;
use clap::ArgMatches;
use gmlake::bench::Set;
use gmlake::fleet;
use gmlake::remote::is_remote;
use gmlake::report::{is_stdout, refuse_overwriting};
use gmlake::sim::job::{is_many, jobs};

use crate::args;

/// Options whose files are read.
const READ: [&str; 6] = ["catalogue", "check", "folder", "manifest", "plugin", "results"];

/// Refuses a command line whose output would take the place of its input, or that reads standard input twice.
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
    // A fleet is never read from there, and says so.
    if name != "fleet" && read.iter().filter(|path| is_stdout(path)).count() > 1 {
        bail!("standard input ('-') can be read only once");
    }
    read.extend(named(name, matches));
    let read: Vec<PathBuf> = read.into_iter().flat_map(files).collect();
    Ok(refuse_overwriting(&read, &written, name == "export")?)
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

/// The files that an argument stands for. One that cannot be listed is reported later.
fn files(argument: PathBuf) -> Vec<PathBuf> {
    if is_remote(&argument) || !is_many(&argument) {
        return vec![argument];
    }
    let jobs = jobs(std::slice::from_ref(&argument), false).unwrap_or_default();
    let ranks = jobs.into_iter().flat_map(|job| job.ranks).map(|rank| rank.path);
    ranks.chain(fleet::results(&argument)).collect()
}
