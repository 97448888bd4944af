//! Arguments of the commands that explain the program: `demo`, `help`, `completions` and `man`.

use std::path::PathBuf;

use clap::Parser;
use clap_complete::Shell;

const DEMO_EXAMPLES: &str = "\
Examples:
  gmlake-sim demo
  gmlake-sim demo --out snapshot.pickle.xz && gmlake-sim report snapshot.pickle.xz";

/// `gmlake-sim demo`
#[derive(Debug, Parser)]
#[command(after_help = DEMO_EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Write the recording to this file, to try other commands on it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

const HELP_EXAMPLES: &str = "\
Examples:
  gmlake-sim help compare
  gmlake-sim help recording
  gmlake-sim help all";

/// `gmlake-sim help`
#[derive(Debug, Parser)]
#[command(after_help = HELP_EXAMPLES)]
pub(crate) struct HelpArgs {
    /// A command, a page, or 'all' for all commands with all options
    #[arg(value_name = "COMMAND|PAGE|all")]
    pub(crate) topic: Option<String>,
    /// All commands with all options
    #[arg(long, conflicts_with = "topic")]
    pub(crate) all: bool,
}

/// `gmlake-sim completions`
#[derive(Debug, Parser)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

/// `gmlake-sim man`
#[derive(Debug, Parser)]
pub(crate) struct ManArgs {
    /// Folder to write the pages to, one for each command
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}
