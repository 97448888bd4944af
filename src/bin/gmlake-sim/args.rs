//! The command line: what can be typed. Nothing is decided here; each subcommand turns what was typed into the
//! library's types, once.

mod benching;
mod blaming;
mod fleet;
mod guiding;
mod pages;
mod planning;
mod recordings;
mod sweeping;
mod values;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use gmlake::alloc_conf::TorchVersion;
use gmlake::device::AddressPolicy;
use gmlake::drive::OnOom;
use gmlake::sim::{DEFAULT_GPU_LAG, Memory};
use gmlake::trace::LoadOptions;
use gmlake::units::{Bytes, MOST_COUNT, parse_whole};

pub(crate) use benching::BenchArgs;
pub(crate) use blaming::{BlameArgs, DiffArgs, NameArgs};
pub(crate) use fleet::{FleetArgs, FleetCommand, FleetReportArgs};
pub(crate) use guiding::{CompletionsArgs, DemoArgs, HelpArgs, ManArgs};
pub(crate) use pages::{PlotArgs, ReportArgs, SWEEP};
pub(crate) use planning::{CardArgs, DataArgs, FitsArgs, JobArgs, PlanArgs};
pub(crate) use recordings::{ExportArgs, ExportFormat, InspectArgs, VerifyArgs};
pub(crate) use sweeping::{SweepArgs, SweepOutputArgs, TuneArgs};
pub(crate) use values::capacity;
use values::{MOST_DEVICE, Named, bytes, memory, named, share, threads, worth};

/// How much GPU memory a recorded PyTorch job needs, how much it wastes, and what another allocator would need
#[derive(Debug, Parser)]
#[command(name = "gmlake-sim", version, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, disable_help_flag = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What every command understands.
#[derive(Debug, Clone, Copy, Parser)]
#[command(next_help_heading = "Common")]
pub(crate) struct CommonArgs {
    /// Write the results to standard output as JSON, in place of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Colour the tables; auto: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_short_help = true
    )]
    pub(crate) color: Color,
    /// Print only errors on standard error: no warnings, no progress
    #[arg(long, short, global = true, hide_short_help = true)]
    pub(crate) quiet: bool,
    /// Show the usual options; 'gmlake-sim help COMMAND' shows all
    #[arg(long, short, global = true, action = clap::ArgAction::HelpShort)]
    help: Option<bool>,
}

/// The command line for clap. Where options are left out of `--help`, it says where they are.
pub(crate) fn command() -> clap::Command {
    Args::command().mut_subcommands(|command| {
        let usual = ["color", "quiet"];
        let is_left_out =
            |a: &clap::Arg| a.is_hide_short_help_set() && !usual.contains(&a.get_id().as_str());
        if !command.get_arguments().any(is_left_out) {
            return command;
        }
        let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let more = format!("More options: gmlake-sim help {}", command.get_name());
        command.after_help(format!("{examples}\n\n{more}")).after_long_help(examples)
    })
}

/// When tables are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Everywhere
    Always,
    /// Never
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Try the comparison on a built-in recording
    Demo(DemoArgs),
    /// Compare what each allocator would reserve
    Compare(Box<CompareArgs>),
    /// Find what uses memory: by line, function, stack or size
    Blame(Box<BlameArgs>),
    /// Choose a GPU: the smallest memory that runs a job, and the cards
    Plan(Box<PlanArgs>),
    /// Tell by the exit code whether a job fits a device
    Fits(FitsArgs),
    /// Find the best PYTORCH_CUDA_ALLOC_CONF
    Tune(TuneArgs),
    /// Write one page for a browser: charts, tables, a verdict
    Report(Box<ReportArgs>),
    /// Draw one chart of the report, for a paper or a slide
    Plot(Box<PlotArgs>),
    /// Show what a recording contains, and what it lacks
    Inspect(InspectArgs),
    /// Compare the peaks of two recordings: new, gone, larger
    Diff(Box<DiffArgs>),
    /// Run a grid of options, devices and profiles
    Sweep(Box<SweepArgs>),
    /// Simulate the recordings of many jobs, and write Parquet tables
    Fleet(Box<FleetArgs>),
    /// Run every allocator on the benchmark, or check a submission
    Bench(Box<BenchArgs>),
    /// Check our model against every decision of PyTorch's allocator
    Verify(VerifyArgs),
    /// Write a simulated run for PyTorch's viewer, Perfetto and others
    Export(Box<ExportArgs>),
    /// List the allocators with their options and defaults
    Allocators,
    /// Show all options of a command, a page, or everything
    Help(HelpArgs),
    /// Print the completions for a shell
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the manual pages
    #[command(hide = true)]
    Man(ManArgs),
}

const EXAMPLES: &str = "\
Examples:
  gmlake-sim demo
  gmlake-sim compare snapshot.pickle --export-plot memory.png
  gmlake-sim blame snapshot.pickle --at oom
  gmlake-sim report snapshot.pickle --out report.html

Exit codes: 0 success, 1 negative result, 2 wrong usage or input.
All options of a command: gmlake-sim help COMMAND. Of all commands: gmlake-sim help all.
Pages: gmlake-sim help recording, settings, plugin, files, json, exit-codes.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  gmlake-sim compare traces/opt-1.3b-LR-var.pickle.xz
  gmlake-sim compare job.pickle --device-memory 40GiB --export-json runs.json --export-plot job.svg
  gmlake-sim compare rank*.pickle --alloc-conf max_split_size_mb:128 --reference caching

Sizes are binary: 80GB, 80GiB and 80g are the same.
Exit codes: 0 success, 1 memory ran out under --fail-on-oom, 2 wrong usage or input.";

/// `gmlake-sim compare`
#[derive(Debug, Parser)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Compare settings for pinned host memory instead, from a snapshot with host_traces or a table of requests
    #[arg(long, help_heading = "Input", hide_short_help = true)]
    #[arg(conflicts_with_all = ["device", "job", "allocators", "cards"])]
    pub(crate) host: bool,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) allocators: AllocatorArgs,
    /// Row to compare the others with [default: recorded, else caching]
    #[arg(long, value_name = "NAME", help_heading = "Allocators", hide_short_help = true)]
    pub(crate) reference: Option<String>,
    /// Also try each run on these cards: names that 'gmlake-sim plan' shows, 'all', or 'smallest'
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', help_heading = "Device")]
    #[arg(hide_short_help = true)]
    pub(crate) cards: Vec<String>,
    /// What the job does on a card besides PyTorch's allocator, as predict's JSON has it: less is left
    #[arg(long, value_name = "NAME=COUNT,...", value_delimiter = ',', requires = "cards")]
    #[arg(value_parser = planning::one_use, help_heading = "Device", hide_short_help = true)]
    pub(crate) uses: Vec<(String, u64)>,
    /// Compare every device that has events
    #[arg(long, help_heading = "Input", conflicts_with_all = ["device", "job"])]
    #[arg(hide_short_help = true)]
    pub(crate) every_device: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What is read.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputArgs {
    /// Recordings: PyTorch snapshots, CSV or profiler traces, also compressed; '-' is standard input
    ///
    /// Snapshots are pickles, or JSON of the same dictionary. For compare, plan, fits and blame also a folder or a
    /// quoted pattern, whose files are the ranks of one job. Files may be remote: s3://, gs://, az://, hf://, http(s)://
    /// ('gmlake-sim help remote').
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Device to take from the files [default: the only one with events]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = parse_whole::<u32, 0, MOST_DEVICE>)]
    pub(crate) device: Option<u32>,
    /// Snapshot to take from a file with several, from 1 [default: the last of consecutive dumps]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = parse_whole::<NonZeroUsize, 1, MOST_COUNT>)]
    pub(crate) snapshot: Option<NonZeroUsize>,
    /// Version of PyTorch to assume and simulate [default: from the files' keys, else 2.11]
    #[arg(long, value_name = "VERSION", hide_short_help = true)]
    pub(crate) torch_version: Option<TorchVersion>,
    /// Refuse a file if gmlake would have to assume anything about it
    #[arg(long, hide_short_help = true)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
}

impl InputArgs {
    /// How the files are opened.
    pub(crate) fn open(&self, stacks: bool) -> LoadOptions {
        let &Self { torch_version, device, snapshot, .. } = self;
        let max_bytes = self.limit.max_input;
        let known = LoadOptions { stacks, max_bytes, ..LoadOptions::default() };
        LoadOptions { torch_version, device, snapshot, ..known }
    }
}

/// How much is read.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Input")]
pub(crate) struct LimitArgs {
    /// Refuse files with more content, decompressed; compressed files and pipes may also fill at most half
    /// of the memory
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "64GiB")]
    #[arg(hide_short_help = true)]
    pub(crate) max_input: Bytes,
}

/// The simulated device.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Memory of the simulated device, such as 80GiB, or 'unlimited' [default: from the recording]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) device_memory: Option<Memory>,
    /// Share of the device's memory that the job may reserve [default: from the settings]
    #[arg(long, value_name = "SHARE", value_parser = share, requires = "device_memory")]
    #[arg(hide_short_help = true)]
    pub(crate) memory_fraction: Option<f64>,
    /// Addresses that the device returns; they decide between equal blocks [default: as recorded for the
    /// recorded allocator, driver for others]
    #[arg(long, value_name = "ORDER", value_parser = named(&ADDRESSES), hide_short_help = true)]
    pub(crate) addresses: Option<AddressPolicy>,
    /// What the job does when memory runs out: continue without it, or end
    #[arg(long, value_name = "WHAT", value_parser = named(&ON_OOM), default_value = "skip")]
    #[arg(hide_short_help = true)]
    pub(crate) on_oom: OnOom,
    /// Events that the GPU lags behind the program, for allocators that let streams wait for each other
    #[arg(long, value_name = "EVENTS", default_value_t = DEFAULT_GPU_LAG, hide_short_help = true)]
    #[arg(value_parser = parse_whole::<u64, 0, MOST_COUNT>)]
    pub(crate) gpu_lag: u64,
    /// Predict the time in driver calls: h200, h100, a100-paper, or a file of gmlake-replay calibrate
    #[arg(long, value_name = "PROFILE", hide_short_help = true)]
    pub(crate) profile: Option<String>,
}

/// The allocators.
#[derive(Debug, Clone, Parser)]
#[command(next_help_heading = "Allocators")]
pub(crate) struct AllocatorArgs {
    /// Allocators to compare, or 'all' [default: the usual ones, see 'gmlake-sim allocators']
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) allocators: Vec<String>,
    /// Also run an allocator of your own: a shared library, see 'gmlake-sim help plugin'; may be repeated
    #[arg(long, value_name = "LIBRARY", hide_short_help = true)]
    pub(crate) plugin: Vec<PathBuf>,
    /// Set an option of an allocator, such as gmlake.fragment_limit=128MiB; may be repeated
    #[arg(long, value_name = "ALLOCATOR.OPTION=VALUE", hide_short_help = true)]
    pub(crate) set: Vec<String>,
    /// PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF [default: the recording's]
    #[arg(long, value_name = "SETTINGS")]
    pub(crate) alloc_conf: Option<String>,
}

/// What is written.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Also show counts of driver calls and the allocators' own counters
    #[arg(long, hide_short_help = true)]
    pub(crate) details: bool,
    /// Exit with 1 if memory runs out in any allocator but the bounds
    #[arg(long)]
    pub(crate) fail_on_oom: bool,
    /// Threads to use, at most 256; 1 gives undisturbed host times [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads, hide_short_help = true)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Write every number as JSON; may be repeated, '-' for standard output in place of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) export_json: Vec<PathBuf>,
    /// Write a row for each run as CSV
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) export_csv: Vec<PathBuf>,
    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) export_markdown: Vec<PathBuf>,
    /// Draw memory over time and utilization, as .svg or .png
    #[arg(long, value_name = "FILE")]
    pub(crate) export_plot: Vec<PathBuf>,
    /// Write each allocator's memory over time as CSV, see 'gmlake-sim help json'
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) export_timeline: Vec<PathBuf>,
}

/// How the simulated device chooses addresses.
static ADDRESSES: [Named<AddressPolicy>; 3] = [
    ("driver", "As the CUDA driver does, measured on an H200", AddressPolicy::Driver),
    ("ascending", "Each higher than the one before", AddressPolicy::Ascending),
    ("descending", "Each lower than the one before", AddressPolicy::Descending),
];

/// What the job does when it gets no memory.
static ON_OOM: [Named<OnOom>; 2] =
    [("skip", "Continue without it", OnOom::Skip), ("stop", "End there", OnOom::Stop)];

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent_and_every_option_has_help() {
        let mut command = super::command();
        command.clone().debug_assert();
        command.build();
        for subcommand in command.get_subcommands() {
            for argument in subcommand.get_arguments() {
                let name = format!("{} {}", subcommand.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{name} has no help");
            }
        }
    }
}
