//! The command line: what can be typed. Nothing is decided here; each subcommand turns what was typed into the
//! library's types, once.

mod blaming;
mod fleet;
mod guiding;
mod pages;
mod planning;
mod sweeping;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use gmlake::alloc_conf::TorchVersion;
use gmlake::sim::{DEFAULT_GPU_LAG, Memory, OpenOptions};
use gmlake::units::{Bytes, parse_memory};

pub(crate) use blaming::{BlameArgs, DiffArgs, NameArgs};
pub(crate) use fleet::{FleetArgs, FleetCommand, FleetReportArgs};
pub(crate) use guiding::{CompletionsArgs, DemoArgs, HelpArgs, ManArgs};
pub(crate) use pages::{PlotArgs, ReportArgs, SWEEP};
pub(crate) use planning::{CardArgs, DataArgs, FitsArgs, JobArgs, PlanArgs, capacity};
pub(crate) use sweeping::{SweepArgs, SweepOutputArgs, TuneArgs};

/// How much GPU memory a recorded PyTorch job needs, how much of it is lost, and what another allocator would do.
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
#[derive(Debug, Parser)]
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
    /// Say nothing on standard error but what went wrong: no warnings, no progress
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
    /// Wherever they go
    Always,
    /// Nowhere
    Never,
}

impl Args {
    /// For `--json`: what a command exports as JSON goes to standard output. The other commands see to it themselves.
    pub(crate) fn settle_json(&mut self) {
        let exports = match &mut self.command {
            Command::Compare(args) => &mut args.output.export_json,
            Command::Plan(args) => &mut args.output.export_json,
            Command::Sweep(args) => &mut args.output.export_json,
            Command::Tune(args) => &mut args.export_json,
            Command::Inspect(args) => &mut args.export_json,
            Command::Blame(args) => &mut args.output.export_json,
            Command::Diff(args) => &mut args.export_json,
            Command::Verify(args) => &mut args.export_json,
            _ => return,
        };
        let stdout = PathBuf::from("-");
        if self.common.json && !exports.contains(&stdout) {
            exports.push(stdout);
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the comparison on a recording inside the program
    Demo(DemoArgs),
    /// Compare what each allocator would hold
    Compare(Box<CompareArgs>),
    /// Show who holds the memory: by line, function, stack or size
    Blame(Box<BlameArgs>),
    /// Find the smallest device memory that runs a job, and the cards
    Plan(Box<PlanArgs>),
    /// Answer with the exit code whether a job fits a device
    Fits(FitsArgs),
    /// Find the best PYTORCH_CUDA_ALLOC_CONF
    Tune(TuneArgs),
    /// Write one page for a browser: charts, tables, a verdict
    Report(Box<ReportArgs>),
    /// Draw one chart of the report, for a paper or a slide
    Plot(Box<PlotArgs>),
    /// Show what is in a recording, and what it lacks
    Inspect(InspectArgs),
    /// Compare the peaks of two recordings: new, gone, larger
    Diff(Box<DiffArgs>),
    /// Run a grid of options, devices and profiles
    Sweep(Box<SweepArgs>),
    /// Run the recordings of many jobs into Parquet tables
    Fleet(Box<FleetArgs>),
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

Exit codes: 0 all is well, 1 the answer is no, 2 wrong usage or input.
All options of a command: gmlake-sim help COMMAND. Of all commands: gmlake-sim help all.
Pages: gmlake-sim help recording, settings, files, json, exit-codes.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  gmlake-sim compare traces/opt-1.3b-LR-var.pickle.xz
  gmlake-sim compare job.pickle --device-memory 40GiB --export-json runs.json --export-plot job.svg
  gmlake-sim compare rank*.pickle --alloc-conf max_split_size_mb:128 --reference caching

Sizes are binary: 80GB, 80GiB and 80g are the same.
Exit codes: 0 all is well, 1 memory ran out under --fail-on-oom, 2 wrong usage or input.";

const INSPECT_EXAMPLES: &str = "\
Examples:
  gmlake-sim inspect traces/opt-1.3b-LR-var.pickle.xz
  gmlake-sim inspect snapshot.pickle --device 1
  xz -dc snapshot.pickle.xz | gmlake-sim inspect - --export-json inspection.json";

/// `gmlake-sim compare`
#[derive(Debug, Parser)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) allocators: AllocatorArgs,
    /// Row that the others are compared with [default: recorded, else caching]
    #[arg(long, value_name = "NAME", help_heading = "Allocators", hide_short_help = true)]
    pub(crate) reference: Option<String>,
    /// Also try each run on these cards: names of the catalogue that 'gmlake-sim plan' shows, or 'all'
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', help_heading = "Device")]
    #[arg(hide_short_help = true)]
    pub(crate) cards: Vec<String>,
    /// Compare on every device of a file that has events
    #[arg(long, help_heading = "Input", conflicts_with_all = ["device", "job"])]
    #[arg(hide_short_help = true)]
    pub(crate) every_device: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `gmlake-sim inspect`
#[derive(Debug, Parser)]
#[command(after_help = INSPECT_EXAMPLES)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Write what was found as JSON ('-' for standard output, in place of the tables)
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
    /// Memory of the device that the recording was made on, as its properties state it [default: not known]
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = "Device")]
    pub(crate) device_memory: Option<Bytes>,
    /// Share of it that the job was allowed to hold [default: inferred]
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = "Device")]
    #[arg(requires = "device_memory", hide_short_help = true)]
    pub(crate) memory_fraction: Option<f64>,
    /// Write what was found as JSON ('-' for standard output, in place of the table)
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
    pub(crate) device: Option<u32>,
    /// Snapshot to take from a file that holds several, from 1 on [default: the last of dumps one behind the other]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) snapshot: Option<NonZeroUsize>,
    /// PyTorch that recorded the file, and that is simulated [default: as the file's keys tell, else 2.11]
    #[arg(long, value_name = "VERSION", hide_short_help = true)]
    pub(crate) torch_version: Option<TorchVersion>,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
    /// Allocator to simulate, see 'gmlake-sim allocators'; several, separated by commas, for perfetto [default: the one
    /// that was recorded]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) allocator: Vec<String>,
    /// Set an option of the allocator, such as gmlake.fragment_limit=2MiB; may be repeated
    #[arg(long, value_name = "ALLOCATOR.OPTION=VALUE", hide_short_help = true)]
    pub(crate) set: Vec<String>,
    /// PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF [default: those of the recording]
    #[arg(long, value_name = "SETTINGS")]
    pub(crate) alloc_conf: Option<String>,
    /// Memory of the simulated device, such as 80GiB, or 'unlimited' [default: as the recording tells]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) device_memory: Option<Memory>,
}

impl ExportArgs {
    /// How the file is opened.
    pub(crate) fn open(&self, stacks: bool) -> OpenOptions {
        let (version, max_input) = (self.torch_version, self.limit.max_input);
        let snapshot = self.snapshot;
        OpenOptions { device: self.device, version, stacks, max_input, snapshot }
    }
}

/// What `export` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// PyTorch's memory snapshot, as a pickle
    Snapshot,
    /// The same as a table: action,addr,size,stream,time_us,pool
    Csv,
    /// Memory over time for ui.perfetto.dev, on the clock of PyTorch's profiler: counters, segments, what ran out
    Perfetto,
    /// When each allocation lives, whatever the allocator: id,lower,upper,size
    Minimalloc,
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
    pub(crate) device: Option<u32>,
    /// Snapshot to take from a file that holds several, from 1 on [default: the last of dumps one behind the other]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) snapshot: Option<NonZeroUsize>,
    /// PyTorch that recorded the files, and that is simulated [default: as their keys tell, else 2.11]
    #[arg(long, value_name = "VERSION", hide_short_help = true)]
    pub(crate) torch_version: Option<TorchVersion>,
    /// Refuse a file about which anything must be assumed
    #[arg(long, hide_short_help = true)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
}

impl InputArgs {
    /// How the files are opened.
    pub(crate) fn open(&self, stacks: bool) -> OpenOptions {
        let (version, max_input) = (self.torch_version, self.limit.max_input);
        let snapshot = self.snapshot;
        OpenOptions { device: self.device, version, stacks, max_input, snapshot }
    }
}

/// How much is read.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Input")]
pub(crate) struct LimitArgs {
    /// Refuse a file with more in it, after decompression; compressed files and pipes may fill half of the machine's
    /// memory, too
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "64GiB")]
    #[arg(hide_short_help = true)]
    pub(crate) max_input: Bytes,
}

/// The simulated device.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Memory of the simulated device, such as 80GiB, or 'unlimited' [default: as the recording tells]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) device_memory: Option<Memory>,
    /// Share of the device's memory that the job may hold [default: as the settings say]
    #[arg(long, value_name = "SHARE", value_parser = share, requires = "device_memory")]
    #[arg(hide_short_help = true)]
    pub(crate) memory_fraction: Option<f64>,
    /// Addresses that the device hands out; they decide ties between equal blocks [default: as recorded for the
    /// allocator that was recorded, driver for others]
    #[arg(long, value_name = "ORDER", hide_short_help = true)]
    pub(crate) addresses: Option<Addresses>,
    /// What the job does when it gets no memory: go on without it, or end
    #[arg(long, value_name = "WHAT", default_value = "skip", hide_short_help = true)]
    pub(crate) on_oom: OnOom,
    /// How many events the GPU lags behind the program, for allocators that let streams wait for each other
    #[arg(long, value_name = "EVENTS", default_value_t = DEFAULT_GPU_LAG, hide_short_help = true)]
    pub(crate) gpu_lag: u64,
    /// Predict the time in driver calls: h200, h100, a100-paper, or a file that gmlake-replay calibrate wrote
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
    /// Set an option of an allocator, such as gmlake.fragment_limit=128MiB; may be repeated
    #[arg(long, value_name = "ALLOCATOR.OPTION=VALUE", hide_short_help = true)]
    pub(crate) set: Vec<String>,
    /// PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF [default: those of the recording]
    #[arg(long, value_name = "SETTINGS")]
    pub(crate) alloc_conf: Option<String>,
}

/// What is written.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Also show each driver call's count and what the allocators count of their own doings
    #[arg(long, hide_short_help = true)]
    pub(crate) details: bool,
    /// Exit with 1 if memory runs out in any allocator but the bounds
    #[arg(long)]
    pub(crate) fail_on_oom: bool,
    /// Threads to use, at most 256; 1 measures host times without disturbance [default: one for each core]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Write every number as JSON; as all exports: may be repeated, '-' for standard output in place of the tables
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
    /// Write what each allocator holds over time as CSV, see 'gmlake-sim help json'
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) export_timeline: Vec<PathBuf>,
}

/// How the simulated device chooses addresses.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Addresses {
    /// As the CUDA driver does, found out on an H200
    Driver,
    /// Each higher than the one before
    Ascending,
    /// Each lower than the one before
    Descending,
}

/// What the job does when it gets no memory.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OnOom {
    /// Go on without it
    Skip,
    /// End there
    Stop,
}

fn memory(text: &str) -> Result<Memory, String> {
    match text {
        "unlimited" => Ok(Memory::Unlimited),
        size => capacity(size).map(Memory::Bytes),
    }
}

fn bytes(text: &str) -> Result<Bytes, String> {
    parse_memory(text).map_err(|error| error.to_string())
}

fn share(text: &str) -> Result<f64, String> {
    let valid = |share: &f64| *share > 0.0 && *share <= 1.0;
    text.parse().ok().filter(valid).ok_or_else(|| "a share is above 0 and at most 1".to_owned())
}

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
