//! Arguments of the commands about single recordings: `inspect`, `verify` and `export`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use gmlake::alloc_conf::TorchVersion;
use gmlake::sim::Memory;
use gmlake::trace::LoadOptions;
use gmlake::units::{Bytes, MOST_COUNT, parse_whole};

use super::{InputArgs, LimitArgs, MOST_DEVICE, bytes, memory, share};

const INSPECT_EXAMPLES: &str = "\
Examples:
  gmlake-sim inspect traces/opt-1.3b-LR-var.pickle.xz
  gmlake-sim inspect snapshot.pickle --device 1
  xz -dc snapshot.pickle.xz | gmlake-sim inspect - --export-json inspection.json";

/// `gmlake-sim inspect`
#[derive(Debug, Parser)]
#[command(after_help = INSPECT_EXAMPLES)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Write the result as JSON ('-' for standard output, in place of the tables)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) export_json: Vec<PathBuf>,
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  gmlake-sim verify traces/*.pickle.xz
  gmlake-sim verify snapshot.pickle --memory-fraction 0.5 --device-memory 80GiB
  gmlake-sim verify rank*.pickle --torch-version 2.8 --export-json verification.json

Exit codes: 0 nothing differs, 1 something differs, 2 wrong usage or input.";

/// `gmlake-sim verify`
#[derive(Debug, Parser)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Check the decisions about pinned host memory instead, in snapshots with host_traces
    #[arg(long, help_heading = "Input", conflicts_with_all = ["device", "device_memory"])]
    #[arg(hide_short_help = true)]
    pub(crate) host: bool,
    /// Memory of the recording's device, as its properties state it [default: unknown]
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = "Device")]
    pub(crate) device_memory: Option<Bytes>,
    /// Share of it that the job was allowed to reserve [default: inferred]
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = "Device")]
    #[arg(requires = "device_memory", hide_short_help = true)]
    pub(crate) memory_fraction: Option<f64>,
    /// Write the result as JSON ('-' for standard output, in place of the table)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) export_json: Vec<PathBuf>,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  gmlake-sim export job.pickle --allocator gmlake --out gmlake.pickle
  gmlake-sim export job.pickle --alloc-conf max_split_size_mb:128 --out split.pickle
  gmlake-sim export job.pickle --format minimalloc --out lifetimes.csv
  gmlake-sim export job.pickle --format perfetto --allocator caching,lake --out job.json.gz

A snapshot opens in PyTorch's viewer (pytorch.org/memory_viz, _memory_viz.py), and here.";

/// `gmlake-sim export`
#[derive(Debug, Parser)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Trace: a PyTorch snapshot (pickle or JSON), CSV or profiler trace, also compressed; '-' is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// File to write ('-' for standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// What to write
    #[arg(long, value_name = "FORMAT", default_value = "snapshot")]
    pub(crate) format: ExportFormat,
    /// Device to take from the file [default: the only one with events]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = parse_whole::<u32, 0, MOST_DEVICE>)]
    pub(crate) device: Option<u32>,
    /// Snapshot to take from a file with several, from 1 [default: the last of consecutive dumps]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = parse_whole::<NonZeroUsize, 1, MOST_COUNT>)]
    pub(crate) snapshot: Option<NonZeroUsize>,
    /// Version of PyTorch to assume and simulate [default: from the file's keys, else 2.11]
    #[arg(long, value_name = "VERSION", hide_short_help = true)]
    pub(crate) torch_version: Option<TorchVersion>,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
    /// Allocator to simulate, see 'gmlake-sim allocators'; perfetto takes several [default: the recorded one]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) allocator: Vec<String>,
    /// Set an option of the allocator, such as gmlake.fragment_limit=2MiB; may be repeated
    #[arg(long, value_name = "ALLOCATOR.OPTION=VALUE", hide_short_help = true)]
    pub(crate) set: Vec<String>,
    /// PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF [default: the recording's]
    #[arg(long, value_name = "SETTINGS")]
    pub(crate) alloc_conf: Option<String>,
    /// Memory of the simulated device, such as 80GiB, or 'unlimited' [default: from the recording]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) device_memory: Option<Memory>,
}

impl ExportArgs {
    /// How the file is opened.
    pub(crate) fn open(&self, stacks: bool) -> LoadOptions {
        let &Self { torch_version, device, snapshot, .. } = self;
        let max_bytes = self.limit.max_input;
        let known = LoadOptions { stacks, max_bytes, ..LoadOptions::default() };
        LoadOptions { torch_version, device, snapshot, ..known }
    }
}

/// What `export` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// PyTorch's memory snapshot, as a pickle
    Snapshot,
    /// The same as a table: action,addr,size,stream,time_us,pool
    Csv,
    /// Memory over time for ui.perfetto.dev, on the profiler's clock: counters, segments, out of memory
    Perfetto,
    /// Lifetime of each allocation, for any allocator: id,lower,upper,size
    Minimalloc,
}
