//! Overwriting: what a command reads and what it writes. Every file behind an option is written, but for a price list
//! and those in [`READ`].

use std::path::PathBuf;

use clap::ArgMatches;
use gmlake::report::refuse_overwriting;

/// Arguments whose files are read.
const READ: [&str; 2] = ["files", "plugin"];

/// Refuses a command line whose output would take the place of its input.
pub(crate) fn refuse(matches: &ArgMatches) -> anyhow::Result<()> {
    let matches = matches.subcommand().map_or(matches, |(_, below)| below);
    let (mut read, mut written): (Vec<PathBuf>, Vec<PathBuf>) = (Vec::new(), Vec::new());
    for id in matches.ids().map(clap::Id::as_str) {
        // Whatever is no path is of no interest here.
        let Ok(Some(paths)) = matches.try_get_many::<PathBuf>(id) else { continue };
        if READ.contains(&id) { &mut read } else { &mut written }.extend(paths.cloned());
    }
    let profile = matches.try_get_one::<String>("profile").ok().flatten();
    read.extend(profile.map(PathBuf::from));
    Ok(refuse_overwriting(&read, &written, false)?)
}
