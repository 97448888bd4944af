//! What `bench` takes.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;
use gmlake::bench::Part;

use super::{Named, named, threads};

const EXAMPLES: &str = "\
Examples:
  gmlake-sim bench
  gmlake-sim bench --allocators caching,lake --plugin ./libmine.so --export-plot front.svg
  gmlake-sim bench --set full --part public --allocators caching,lake
  gmlake-sim bench --allocators lake --submit lake.json
  gmlake-sim bench --check lake.json
  gmlake-sim bench --results lake.json mine.json --export-html results.html

Exit codes: 0 success, 1 a submission does not reproduce, 2 wrong usage or input.";

/// `gmlake-sim bench`
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// The set: small, full, or a list of traces of your own [default: small; with --check, its own]
    #[arg(long, value_name = "SET", help_heading = "Input")]
    pub(crate) set: Option<String>,
    /// Folder that the files of the set are in [default: here; for a list of your own, beside it]
    #[arg(long, value_name = "FOLDER", help_heading = "Input")]
    pub(crate) folder: Option<PathBuf>,
    /// Only one part of the set: public, on which settings may be chosen, or blind
    #[arg(long, value_name = "PART", value_parser = named(&PARTS), help_heading = "Input")]
    pub(crate) part: Option<Part>,
    /// Allocators to run, or 'all' [default: all that have a pool]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', help_heading = "Allocators")]
    pub(crate) allocators: Vec<String>,
    /// Also run an allocator of your own: a shared library, see 'gmlake-sim help plugin'; may be repeated
    #[arg(long, value_name = "LIBRARY", help_heading = "Allocators")]
    pub(crate) plugin: Vec<PathBuf>,
    /// Set an option of an allocator, such as lake.handle=16MiB; may be repeated
    #[arg(long = "option", value_name = "ALLOCATOR.OPTION=VALUE", help_heading = "Allocators")]
    #[arg(hide_short_help = true)]
    pub(crate) option: Vec<String>,
    /// Prices of driver calls: h200, h100, a100-paper, or a file of gmlake-replay calibrate
    #[arg(long, value_name = "PROFILE", default_value = "h200", help_heading = "Device")]
    #[arg(hide_short_help = true)]
    pub(crate) profile: String,
    /// Also show a table for each trace
    #[arg(long, help_heading = "Output")]
    pub(crate) each: bool,
    /// Write a file that others can check
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) submit: Option<PathBuf>,
    /// Run a submission again, and say whether its figures come out
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    #[arg(conflicts_with_all = ["allocators", "option", "submit", "part", "profile"])]
    #[arg(conflicts_with_all = ["each", "export_plot", "export_markdown", "export_html"])]
    pub(crate) check: Option<PathBuf>,
    /// Show submissions together, without running anything
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Input")]
    #[arg(conflicts_with_all = ["check", "submit", "set", "folder", "part", "profile", "jobs"])]
    #[arg(conflicts_with_all = ["allocators", "plugin", "option"])]
    pub(crate) results: Vec<PathBuf>,
    /// Draw memory against driver time, as .svg or .png
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) export_plot: Vec<PathBuf>,
    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE", help_heading = "Output", hide_short_help = true)]
    pub(crate) export_markdown: Vec<PathBuf>,
    /// Write a self-contained page with the picture and the tables
    #[arg(long, value_name = "FILE", help_heading = "Output", hide_short_help = true)]
    pub(crate) export_html: Vec<PathBuf>,
    /// Threads to use, at most 256; 1 gives undisturbed host times [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads)]
    #[arg(help_heading = "Output", hide_short_help = true)]
    pub(crate) jobs: Option<NonZeroUsize>,
}

static PARTS: [Named<Part>; 2] = [
    ("public", "Settings may be chosen on it", Part::Public),
    ("blind", "It only judges", Part::Blind),
];
