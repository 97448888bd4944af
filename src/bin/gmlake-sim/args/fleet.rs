//! Arguments of `fleet`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use gmlake::alloc_conf::TorchVersion;
use gmlake::fleet::Shard;

use gmlake::units::{MOST_COUNT, parse_whole};

use super::{CardArgs, DeviceArgs, LimitArgs, threads};

const FLEET_EXAMPLES: &str = "\
Examples:
  gmlake-sim fleet snapshots/ --out results
  gmlake-sim fleet 'runs/*/rank*.pickle' --out results --allocators caching,expandable,lake
  gmlake-sim fleet --manifest files.csv --out results --shard $SLURM_ARRAY_TASK_ID/32
  gmlake-sim fleet report results --out fleet.html

A stopped fleet resumes with the same command.
Exit codes: 0 success, 2 wrong usage, or recordings without a result (table errors).";

const REPORT_EXAMPLES: &str = "\
Examples:
  gmlake-sim fleet report results
  gmlake-sim fleet report results --out fleet.html
  gmlake-sim fleet report results --json";

/// `gmlake-sim fleet`
#[derive(Debug, Parser)]
#[command(after_help = FLEET_EXAMPLES, args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct FleetArgs {
    #[command(subcommand)]
    pub(crate) command: Option<FleetCommand>,
    /// Recordings: files, folders with everything below, quoted patterns, s3://...
    #[arg(value_name = "INPUT", required_unless_present = "manifest", help_heading = "Input")]
    pub(crate) inputs: Vec<PathBuf>,
    /// CSV or Parquet file with a column path, and perhaps job, date and rank
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub(crate) manifest: Option<PathBuf>,
    /// Snapshot to take from files with several, from 1 [default: the last of consecutive dumps]
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = "Input")]
    #[arg(value_parser = parse_whole::<NonZeroUsize, 1, MOST_COUNT>)]
    pub(crate) snapshot: Option<NonZeroUsize>,
    /// Version of PyTorch to assume and simulate [default: from the files' keys, else 2.11]
    #[arg(long, value_name = "VERSION", hide_short_help = true, help_heading = "Input")]
    pub(crate) torch_version: Option<TorchVersion>,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Allocators to run [default: caching,expandable,lake]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', help_heading = "Grid")]
    pub(crate) allocators: Vec<String>,
    /// Vary something as sweep does: an option, device-memory, profile, alloc-conf
    #[arg(long, value_name = "NAME=VALUES", help_heading = "Grid")]
    pub(crate) set: Vec<String>,
    /// PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF [default: each recording's]
    #[arg(long, value_name = "SETTINGS", help_heading = "Grid", hide_short_help = true)]
    pub(crate) alloc_conf: Option<String>,
    /// Folder for the Parquet tables runs, ranks, steps and errors
    #[arg(long, value_name = "DIR", required = true, help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,
    /// Write a row for each training step of each run, too
    #[arg(long, help_heading = "Output")]
    pub(crate) steps: bool,
    /// Do only share I (from 0) of N of the work
    #[arg(long, value_name = "I/N", value_parser = shard, help_heading = "Output")]
    pub(crate) shard: Option<Shard>,
    /// Retry recordings without a result, and those of the same part
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) retry_errors: bool,
    /// Threads to use, at most 256, each with a recording in memory [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads)]
    #[arg(hide_short_help = true, help_heading = "Output")]
    pub(crate) jobs: Option<NonZeroUsize>,
}

/// What else there is to do with a fleet.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Show what a fleet wastes, and in which jobs and ranks
    Report(FleetReportArgs),
}

/// `gmlake-sim fleet report`
#[derive(Debug, Parser)]
#[command(after_help = REPORT_EXAMPLES)]
pub(crate) struct FleetReportArgs {
    /// Folder that 'gmlake-sim fleet' wrote
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Allocator to compare the others with, as the tables name it [default: recorded, else the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) reference: Option<String>,
    #[command(flatten)]
    pub(crate) cards: CardArgs,
    /// Write a page for a browser, too ('-' for standard output, in place of the tables)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,
}

pub(super) fn shard(text: &str) -> Result<Shard, String> {
    let wrong = || "write it as I/N, with I from 0 to N-1, such as 0/32".to_owned();
    let (index, count) = text.split_once('/').ok_or_else(wrong)?;
    let index: usize = index.trim().parse().map_err(|_| wrong())?;
    let count: usize = count.trim().parse().map_err(|_| wrong())?;
    if index < count { Ok(Shard { index, count }) } else { Err(wrong()) }
}
