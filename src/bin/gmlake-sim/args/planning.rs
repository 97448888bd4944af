//! Arguments of `plan` and `fits`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;
use gmlake::beside::{counted, is_counted};
use gmlake::units::Bytes;

use super::values::{MOST_MEMORY, bytes, capacity, threads};
use super::{AllocatorArgs, InputArgs};

const PLAN_EXAMPLES: &str = "\
Examples:
  gmlake-sim plan traces/opt-1.3b-LR-var.pickle.xz
  gmlake-sim plan ranks/ --cards H100-80GB,H200 --allocators caching,expandable
  gmlake-sim plan b32.pickle b96.pickle b160.pickle --by batch=32,96,160 --device-memory 80GiB
  gmlake-sim plan b32.pickle b96.pickle --by batch=32,96 --export-plot batch.svg

Files whose names differ only in the rank are one job, and so are the files of a folder or a
quoted pattern. Jobs whose names differ in one number make a series.
Exit codes: 0 success, 2 wrong usage or input (plan leaves out unusable files).";

/// `gmlake-sim plan`
#[derive(Debug, Parser)]
#[command(after_help = PLAN_EXAMPLES)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Quantity in which the jobs differ, perhaps with each value [default: read from the names, if they
    /// differ in one number]
    #[arg(long, value_name = "NAME[=VALUE,...]", help_heading = "Input", hide_short_help = true)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) cards: CardArgs,
    /// Sizes to answer for besides the cards, such as 80GiB; all of it is for the job, without a reserve
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = capacity)]
    #[arg(help_heading = "Device")]
    pub(crate) device_memory: Vec<Bytes>,
    /// Resolution of the smallest memory
    #[arg(long, value_name = "SIZE", value_parser = resolution, default_value = "2MiB")]
    #[arg(help_heading = "Device", hide_short_help = true)]
    pub(crate) resolution: Bytes,
    #[command(flatten)]
    pub(crate) allocators: AllocatorArgs,
    #[command(flatten)]
    pub(crate) output: DataArgs,
    /// Draw what each allocator needs at each value of --by, and the cards, as .svg or .png
    #[arg(long, value_name = "FILE", help_heading = "Output", hide_short_help = true)]
    pub(crate) export_plot: Vec<PathBuf>,
}

const FITS_EXAMPLES: &str = "\
Examples:
  gmlake-sim fits job.pickle --device-memory 80GiB --allocator expandable
  gmlake-sim fits 'ranks/*.pickle' --card H100-80GB --allocator expandable && sbatch train.sh

Exit codes: 0 it fits, 1 it does not (even if another rank cannot be read), 2 wrong usage
or input, 3 unknown: the recorded part fits, but the recording is not the whole job.";

/// `gmlake-sim fits`
#[derive(Debug, Parser)]
#[command(after_help = FITS_EXAMPLES)]
#[command(group = clap::ArgGroup::new("where").required(true).args(["device_memory", "card"]))]
pub(crate) struct FitsArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Memory that the job may reserve, such as 80GiB
    #[arg(long, value_name = "SIZE", value_parser = capacity, help_heading = "Device")]
    pub(crate) device_memory: Option<Bytes>,
    /// Card, as 'gmlake-sim plan' names it; --reserve is subtracted
    #[arg(long, value_name = "NAME", help_heading = "Device")]
    pub(crate) card: Option<String>,
    /// Memory of the card to leave to all but PyTorch: the CUDA context, libraries, NCCL [default: as
    /// measured, by card and number of ranks]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    #[arg(help_heading = "Device", conflicts_with = "device_memory", hide_short_help = true)]
    pub(crate) reserve: Option<Bytes>,
    /// What the job does on the card besides, from which the reserve follows: as predict's JSON has it
    #[arg(long, value_name = "NAME=COUNT,...", value_delimiter = ',', value_parser = one_use)]
    #[arg(help_heading = "Device", hide_short_help = true)]
    pub(crate) uses: Vec<(String, u64)>,
    /// Allocator that the job runs with [default: PyTorch's, with the settings given or recorded]
    #[arg(long, value_name = "NAME", help_heading = "Allocators")]
    pub(crate) allocator: Option<String>,
    /// Set an option of the allocator, such as gmlake.fragment_limit=128MiB; may be repeated
    #[arg(long, value_name = "ALLOCATOR.OPTION=VALUE", help_heading = "Allocators")]
    #[arg(hide_short_help = true)]
    pub(crate) set: Vec<String>,
    /// PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF [default: the recording's]
    #[arg(long, value_name = "SETTINGS", help_heading = "Allocators", hide_short_help = true)]
    pub(crate) alloc_conf: Option<String>,
    /// Threads to use, at most 256 [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads)]
    #[arg(help_heading = "Output", hide_short_help = true)]
    pub(crate) jobs: Option<NonZeroUsize>,
}

/// Which files belong together.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Input")]
pub(crate) struct JobArgs {
    /// Take all files as the ranks of one job, whatever their names
    #[arg(long, hide_short_help = true)]
    pub(crate) job: bool,
}

/// The cards.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Device")]
pub(crate) struct CardArgs {
    /// Cards to answer for: names of the catalogue, 'all' or 'none' [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) cards: Vec<String>,
    /// Another catalogue of cards: CSV with name, marketing_gb, usable and source
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) catalogue: Option<PathBuf>,
    /// Memory of each card to leave to all but PyTorch: the CUDA context, libraries, NCCL [default: as
    /// measured, by card and number of ranks]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    #[arg(hide_short_help = true)]
    pub(crate) reserve: Option<Bytes>,
    /// What the job does on the card besides, from which the reserve follows: as predict's JSON has it
    #[arg(long, value_name = "NAME=COUNT,...", value_delimiter = ',', value_parser = one_use)]
    #[arg(hide_short_help = true)]
    pub(crate) uses: Vec<(String, u64)>,
}

/// What is written.
#[derive(Debug, Parser)]
#[command(next_help_heading = "Output")]
pub(crate) struct DataArgs {
    /// Threads to use, at most 256 [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads, hide_short_help = true)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Write every number as JSON; may be repeated, '-' for standard output in place of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) export_json: Vec<PathBuf>,
    /// Write the rows as CSV
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) export_csv: Vec<PathBuf>,
    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) export_markdown: Vec<PathBuf>,
}

/// How exact the smallest memory is to be.
fn resolution(text: &str) -> Result<Bytes, String> {
    match bytes(text)? {
        0 => Err("the smallest is 1B".to_owned()),
        size => Ok(size.min(MOST_MEMORY)),
    }
}

/// A use of the card besides PyTorch's allocator, and how often it was made.
pub(crate) fn one_use(text: &str) -> Result<(String, u64), String> {
    let (name, count) = text.split_once('=').unwrap_or((text, ""));
    if !is_counted(name) {
        return Err(format!("no such use; there are: {}", counted().join(", ")));
    }
    let count = count.parse().map_err(|_| format!("{name} needs a count, as in {name}=1"))?;
    Ok((name.to_owned(), count))
}
