//! Arguments of `blame` and `diff`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use gmlake::blame::{At, By};
use gmlake::sim::Memory;

use gmlake::units::{MOST_COUNT, parse_whole};

use super::{InputArgs, JobArgs, LimitArgs, MOST_DEVICE, memory};

const BLAME_EXAMPLES: &str = "\
Examples:
  gmlake-sim blame snapshot.pickle                    # the peak of live bytes, by line
  gmlake-sim blame snapshot.pickle --fragmentation    # what PyTorch's allocator wasted, and where
  gmlake-sim blame snapshot.pickle --growth           # leaks, caches and state
  gmlake-sim blame snapshot.pickle --at oom           # which line, what uses memory, what helps
  gmlake-sim blame 'ranks/*.pickle' --export-flamegraph peak.svg

A line is the innermost one that you can change: blame skips frames of torch, the standard library,
generated code and C++. Your own line follows a library's line; --by own names it alone. For stacks,
record with _record_memory_history(context=\"alloc\", stacks=\"python\").";

/// `gmlake-sim blame`
#[derive(Debug, Parser)]
#[command(after_help = BLAME_EXAMPLES)]
pub(crate) struct BlameArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Moment: peak, oom, end, step:3 (its peak) or event:1000
    ///
    /// The peak is that of live bytes, or with --allocator of the memory that it reserves.
    #[arg(long, value_name = "MOMENT", default_value = "peak", help_heading = "Moment")]
    pub(crate) at: At,
    /// Allocator to simulate, see 'gmlake-sim allocators'
    ///
    /// By default none; for --fragmentation and --at oom the recorded one.
    #[arg(long, value_name = "NAME", help_heading = "Moment", hide_short_help = true)]
    pub(crate) allocator: Option<String>,
    /// Set an option of the allocator, such as gmlake.fragment_limit=2MiB; may be repeated
    #[arg(long, value_name = "ALLOCATOR.OPTION=VALUE", help_heading = "Moment")]
    #[arg(hide_short_help = true)]
    pub(crate) set: Vec<String>,
    /// PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF [default: the recording's]
    #[arg(long, value_name = "SETTINGS", help_heading = "Moment", hide_short_help = true)]
    pub(crate) alloc_conf: Option<String>,
    /// Memory of the simulated device, such as 80GiB, or 'unlimited' [default: from the recording]
    #[arg(long, value_name = "SIZE", value_parser = memory, help_heading = "Moment")]
    #[arg(hide_short_help = true)]
    pub(crate) device_memory: Option<Memory>,
    /// Show what the allocator wasted at its peak, by cause and by line
    #[arg(long, help_heading = "Question", conflicts_with_all = ["growth", "at", "job"])]
    pub(crate) fragmentation: bool,
    /// Show what stays from step to step: leaks, caches and state
    #[arg(long, help_heading = "Question", conflicts_with_all = ["at", "allocator", "job"])]
    pub(crate) growth: bool,
    /// Steps after which live memory counts as left over
    #[arg(long, value_name = "STEPS", default_value_t = 1, requires = "growth")]
    #[arg(help_heading = "Question", value_parser = parse_whole::<u64, 1, MOST_COUNT>)]
    #[arg(hide_short_help = true)]
    pub(crate) after: u64,
    #[command(flatten)]
    pub(crate) output: BlameOutputArgs,
}

/// What rows are called.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Rows")]
pub(crate) struct NameArgs {
    /// What names the rows
    ///
    /// By default the line, or the size if the recording has no call stacks.
    #[arg(long, value_name = "KIND", value_parser = kinds())]
    pub(crate) by: Option<By>,
    /// Name the innermost frame of all, in any library
    #[arg(long, hide_short_help = true)]
    pub(crate) innermost: bool,
    /// Rows to show; exports have all
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = parse_whole::<usize, 0, MOST_COUNT>)]
    pub(crate) top: usize,
}

/// What is written.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Output")]
pub(crate) struct BlameOutputArgs {
    /// Write every row as JSON ('-': standard output)
    ///
    /// Exports may be repeated; '-' is standard output, in place of the tables.
    #[arg(long, value_name = "FILE")]
    pub(crate) export_json: Vec<PathBuf>,
    /// Write every row as CSV
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fragmentation", "growth"])]
    #[arg(hide_short_help = true)]
    pub(crate) export_csv: Vec<PathBuf>,
    /// Draw a flame graph of call stacks, as SVG
    ///
    /// For a job, that of its worst rank.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fragmentation", "growth"])]
    pub(crate) export_flamegraph: Vec<PathBuf>,
    /// Write folded call stacks, a line each, for other flame graph tools
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fragmentation", "growth"])]
    #[arg(hide_short_help = true)]
    pub(crate) export_folded: Vec<PathBuf>,
}

const DIFF_EXAMPLES: &str = "\
Examples:
  gmlake-sim diff before.pickle after.pickle
  gmlake-sim diff before.pickle after.pickle --tolerance 1% --by function
  gmlake-sim diff before.pickle after.pickle --tolerance 64MiB --export-json diff.json
  gmlake-sim diff dumps.pickle dumps.pickle --snapshot 1,2

diff matches moved lines only in files that the call stacks prove to be edited.
Exit codes: 0 no growth beyond --tolerance, 1 more growth, 2 wrong usage or input,
3 unknown: a recording shows too little of its job.";

/// `gmlake-sim diff`
#[derive(Debug, Parser)]
#[command(after_help = DIFF_EXAMPLES)]
pub(crate) struct DiffArgs {
    /// Trace before
    #[arg(value_name = "A")]
    pub(crate) before: PathBuf,
    /// Trace after
    #[arg(value_name = "B")]
    pub(crate) after: PathBuf,
    /// Device to take from the files [default: the only one with events]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = parse_whole::<u32, 0, MOST_DEVICE>)]
    pub(crate) device: Option<u32>,
    /// Snapshot to take from files with several, from 1; 1,2 takes the first of A and the second of B
    /// [default: the last of consecutive dumps]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', hide_short_help = true)]
    pub(crate) snapshot: Vec<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Growth of the peak that is no regression: a share (1%) or a size (64MiB)
    #[arg(long, value_name = "SHARE|SIZE", default_value = "0%")]
    pub(crate) tolerance: gmlake::blame::Tolerance,
    /// Write every row as JSON ('-' for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    pub(crate) export_json: Vec<PathBuf>,
}

fn kinds() -> impl TypedValueParser<Value = By> {
    let names = By::ALL.map(|(_, name)| name);
    PossibleValuesParser::new(names).map(|name| By::from_name(&name).unwrap_or_default())
}
