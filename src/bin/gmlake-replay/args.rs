//! The command line, as it is typed.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use gmlake::units::{MOST_COUNT, parse_whole};

/// Runs GPU memory allocators on a real GPU, and measures how long its memory calls take.
#[derive(Debug, Parser)]
#[command(name = "gmlake-replay", version, args_conflicts_with_subcommands = true)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    short: RunArgs,
    /// Without a FILE: draw the latency of blocks made of chunks, next to the paper's, as .svg or .png
    #[arg(long, value_name = "PICTURE", conflicts_with = "files")]
    export_plot: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gmlake-replay --device 0                                # measure the memory calls of this GPU
  gmlake-replay --device 0 traces/opt-1.3b-LR.pickle.xz   # replay a recording on every allocator
  gmlake-replay calibrate --seconds 120 --out mine.json   # write a profile for gmlake-sim
  gmlake-replay calibrate --export-plot cost.svg          # draw the latency next to the paper's
  gmlake-replay fit times.csv --profile mine.json         # fit the prices again, without a GPU
  gmlake-replay run --verify all --allocators gmlake,caching traces/*.xz

Exit codes: 0 every run is as it should be, 1 a run ended early or found something wrong,
2 wrong usage or input, or no GPU.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure every memory call by size and number of handles, and fit a device profile
    Calibrate(CalibrateArgs),
    /// Fit the prices of a profile again, to call times that calibrate wrote; needs no GPU
    Fit(FitArgs),
    /// Replay recordings on allocators
    Run(RunArgs),
    /// Write the manual pages to a folder
    #[command(hide = true)]
    Man(ManArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Folder to write the pages to, one for each command
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CalibrateArgs {
    /// Index of the GPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = parse_whole::<u32, 0, MOST_DEVICE>, allow_negative_numbers = true)]
    pub(crate) device: u32,
    /// Write the profile as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write all measurements as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) export_json: Option<PathBuf>,
    /// Draw the latency of blocks made of chunks, next to the paper's, as .svg or .png
    #[arg(long, value_name = "FILE")]
    pub(crate) export_plot: Option<PathBuf>,
    /// Write the time of every call that the prices are fitted to, as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) call_times: Option<PathBuf>,
    /// Time to spend, in seconds
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    #[arg(value_parser = positive, allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// Name of the profile
    #[arg(long, value_name = "NAME", default_value = "measured")]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FitArgs {
    /// Call times of the same GPU, from calibrate --call-times
    #[arg(value_name = "TIMES", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Profile to take zeroing and fences from: the file of the same calibration, or h200, h100, a100-paper
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: String,
    /// Write the profile as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Name of the profile [default: as before]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Recordings: PyTorch snapshots, CSV or profiler traces, also compressed
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Index of the GPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = parse_whole::<u32, 0, MOST_DEVICE>, allow_negative_numbers = true)]
    pub(crate) device: u32,
    /// Device to take from the files [default: the only one with events]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = parse_whole::<u32, 0, MOST_DEVICE>, allow_negative_numbers = true)]
    pub(crate) trace_device: Option<u32>,
    /// Snapshot to take from files with several, from 1 [default: the last of consecutive dumps]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = parse_whole::<NonZeroUsize, 1, MOST_COUNT>, allow_negative_numbers = true)]
    pub(crate) snapshot: Option<NonZeroUsize>,
    /// Allocators to run, or 'all' [default: the usual ones, see 'gmlake-sim allocators']
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) allocators: Vec<String>,
    /// Also run an allocator of your own: a shared library with the interface of gmlake_allocator.h
    #[arg(long, value_name = "LIBRARY")]
    pub(crate) plugin: Vec<PathBuf>,
    /// Set an option of an allocator, such as gmlake.fragment_limit=128MiB; may be repeated
    #[arg(long = "set", value_name = "ALLOCATOR.OPTION=VALUE")]
    pub(crate) options: Vec<String>,
    /// Time between events
    #[arg(long, value_name = "PACE", default_value = "max")]
    pub(crate) speed: Speed,
    /// Memory to write and check for corruption
    #[arg(long, value_name = "WHAT", default_value = "none")]
    pub(crate) verify: Verify,
    /// Multiply every size by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    #[arg(value_parser = positive, allow_negative_numbers = true)]
    pub(crate) scale: f64,
    /// Keep this much work queued on the GPU, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    #[arg(value_parser = not_negative, allow_negative_numbers = true)]
    pub(crate) background_load: f64,
    /// Replay each allocator N times, and show the run with the median driver time
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = parse_whole::<u32, 1, 1_000_000>, allow_negative_numbers = true)]
    pub(crate) repeat: u32,
    /// Stop each run after N seconds
    #[arg(long, value_name = "N")]
    #[arg(value_parser = positive, allow_negative_numbers = true)]
    pub(crate) max_seconds: Option<f64>,
    /// Predicted prices to compare with: h200, h100, a100-paper or a file of calibrate
    #[arg(long, value_name = "PROFILE", default_value = "h200")]
    pub(crate) profile: String,
    /// Write every number as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) export_json: Option<PathBuf>,
    /// Write every device call, with handles and addresses numbered in order of appearance
    #[arg(long, value_name = "FILE")]
    pub(crate) call_log: Option<PathBuf>,
    /// Write the time of every device call as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) call_times: Option<PathBuf>,
}

/// How fast events follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Speed {
    /// As recorded
    AsRecorded,
    /// None
    Max,
}

/// How much memory to write and check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verify {
    /// Nothing
    None,
    /// 4 KiB of every 2 MiB
    Sample,
    /// Every byte
    All,
}

impl Args {
    /// Without a subcommand: replay if there is a trace, else a short calibration.
    pub(crate) fn command(self) -> Command {
        match self.command {
            Some(command) => command,
            None if self.short.files.is_empty() => Command::Calibrate(CalibrateArgs {
                device: self.short.device,
                out: None,
                export_json: self.short.export_json,
                export_plot: self.export_plot,
                call_times: self.short.call_times,
                seconds: 20.0,
                name: "measured".to_owned(),
            }),
            None => Command::Run(self.short),
        }
    }
}

/// Devices have numbers of 32 bits.
const MOST_DEVICE: u64 = u32::MAX as u64;

fn not_negative(text: &str) -> Result<f64, String> {
    let valid = |number: &f64| number.is_finite() && (0.0..1e6).contains(number);
    text.parse().ok().filter(valid).ok_or_else(|| "not a number from 0 to a million".to_owned())
}

fn positive(text: &str) -> Result<f64, String> {
    not_negative(text)
        .ok()
        .filter(|&number| number > 0.0)
        .ok_or_else(|| "not a number above 0 and up to a million".to_owned())
}

#[cfg(test)]
#[path = "../gmlake-sim/args/wrong_numbers.rs"]
mod wrong_numbers;

#[cfg(test)]
mod tests {
    #[test]
    fn a_wrong_number_is_told_what_is_expected() {
        let words = ["a whole number from", "a million"];
        let typed = |long: &str, wrong: &str| vec![format!("--{long}"), wrong.to_owned()];
        let command = <super::Args as clap::CommandFactory>::command();
        let tried = super::wrong_numbers::try_all(&command, &["N", "FACTOR", "MS"], &words, typed);
        assert!(tried > 50, "{tried}");
    }
}
