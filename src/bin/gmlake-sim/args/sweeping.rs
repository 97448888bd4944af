//! Arguments of `sweep` and `tune`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;
use gmlake::fleet::Shard;
use gmlake::units::Bytes;

use super::fleet::shard;
use super::{DeviceArgs, InputArgs, capacity, threads, worth};

const SWEEP_EXAMPLES: &str = "\
Examples:
  gmlake-sim sweep job.pickle --set gmlake.fragment_limit=2MiB..1GiB:x2 --plot limit.svg
  gmlake-sim sweep job.pickle --set caching.max_split_size_mb=default,64,128 \\
      --set device-memory=24GiB..80GiB:+8GiB --export-csv grid.csv
  gmlake-sim sweep *.pickle --allocators caching,expandable --set profile=h200,a100-paper

An axis is an option of an allocator, device-memory, profile or alloc-conf (values separated
by ';'). A stopped sweep resumes with the same command: until all is done, a journal next to
the first export keeps the finished runs.";

/// `gmlake-sim sweep`
#[derive(Debug, Parser)]
#[command(after_help = SWEEP_EXAMPLES)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Vary something: a list (1,2,4), a range times (2MiB..1GiB:x2) or plus (0..64MiB:+8MiB); may be repeated
    #[arg(long, value_name = "NAME=VALUES", required = true, help_heading = "Grid")]
    pub(crate) set: Vec<String>,
    /// Allocators to run, separated by commas [default: those with an axis, else all but those on request]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', help_heading = "Grid")]
    pub(crate) allocators: Vec<String>,
    /// Leave out devices with less memory than is live at once, which no allocator can serve
    #[arg(long, help_heading = "Grid", hide_short_help = true)]
    pub(crate) only_fitting: bool,
    /// Do only share I (from 0) of N of the points, neighbours in the grid
    #[arg(long, value_name = "I/N", value_parser = shard)]
    #[arg(help_heading = "Grid", hide_short_help = true)]
    pub(crate) shard: Option<Shard>,
    /// PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF [default: the recording's]
    #[arg(long, value_name = "SETTINGS", help_heading = "Grid", hide_short_help = true)]
    pub(crate) alloc_conf: Option<String>,
    #[command(flatten)]
    pub(crate) output: SweepOutputArgs,
}

/// What is written.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Output")]
pub(crate) struct SweepOutputArgs {
    /// Threads to use, at most 256 [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads, hide_short_help = true)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Write every number as JSON; may be repeated, '-' for standard output in place of the table
    #[arg(long, value_name = "FILE")]
    pub(crate) export_json: Vec<PathBuf>,
    /// Write a row for each run as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) export_csv: Vec<PathBuf>,
    /// Write a row for each run as Parquet
    #[arg(long, value_name = "FILE")]
    pub(crate) export_parquet: Vec<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) export_markdown: Vec<PathBuf>,
    /// Draw peak reserved memory over one axis or two, as .svg or .png
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Vec<PathBuf>,
    /// File for finished runs until all are [default: the first export's name and .journal]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) journal: Option<PathBuf>,
}

const TUNE_EXAMPLES: &str = "\
Examples:
  gmlake-sim tune traces/opt-1.3b-LR-var.pickle.xz
  gmlake-sim tune job.pickle --device-memory 40GiB --export-json tuning.json

tune tries every combination of the options that PyTorch has in --torch-version. It predicts
times from --profile.
Exit codes: 0 a setting helps, 1 none does, 2 wrong usage or input.";

/// `gmlake-sim tune`
#[derive(Debug, Parser)]
#[command(after_help = TUNE_EXAMPLES)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Tune pinned host memory instead, from a snapshot with host_traces or a table of requests
    #[arg(long, help_heading = "Input", hide_short_help = true)]
    #[arg(conflicts_with_all = ["device", "device_memory"])]
    pub(crate) host: bool,
    /// Memory of the target device, such as 80GiB [default: that in which the recorded job died,
    /// else unlimited]
    #[arg(long, value_name = "SIZE", value_parser = capacity, help_heading = "Device")]
    pub(crate) device_memory: Option<Bytes>,
    /// Costs of driver calls: h200, h100, a100-paper, or a file of gmlake-replay calibrate
    #[arg(long, value_name = "PROFILE", default_value = "h200", help_heading = "Device")]
    pub(crate) profile: String,
    /// Share of memory that an option must save to be worth setting
    #[arg(long, value_name = "SHARE", value_parser = worth, default_value_t = 0.03)]
    #[arg(help_heading = "Search", hide_short_help = true)]
    pub(crate) worth: f64,
    /// Threads to use, at most 256 [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads)]
    #[arg(help_heading = "Output", hide_short_help = true)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Write every tried setting as JSON ('-' for standard output, in place of the tables)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) export_json: Vec<PathBuf>,
}
