//! Arguments of `report` and `plot`.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser};
use gmlake::compare::chart::{CHARTS, Chart};

use super::{AllocatorArgs, DeviceArgs, InputArgs, threads};

/// The one chart that is of no single run.
pub(crate) const SWEEP: &str = "sweep";

const REPORT_EXAMPLES: &str = "\
Examples:
  gmlake-sim report traces/opt-1.3b-LR-var.pickle.xz
  gmlake-sim report before.pickle after.pickle --diff --out change.html

The page needs no network: mail it, or open it from disk. For its numbers:
gmlake-sim compare --export-timeline FILE.csv --export-csv FILE.csv.
Exit codes: 0 success, 2 wrong usage or input.";

/// `gmlake-sim report`
#[derive(Debug, Parser)]
#[command(after_help = REPORT_EXAMPLES)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) allocators: AllocatorArgs,
    /// Row to compare the others with [default: recorded, else caching]
    #[arg(long, value_name = "NAME", help_heading = "Allocators", hide_short_help = true)]
    pub(crate) reference: Option<String>,
    /// Begin with what changed from the first file to the second: by line, category and size
    #[arg(long, help_heading = "Output")]
    pub(crate) diff: bool,
    /// File for the page ('-' for standard output)
    #[arg(long, value_name = "FILE", default_value = "report.html", help_heading = "Output")]
    pub(crate) out: PathBuf,
    /// Threads to use, at most 256 [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads)]
    #[arg(help_heading = "Output", hide_short_help = true)]
    pub(crate) jobs: Option<std::num::NonZeroUsize>,
}

const PLOT_EXAMPLES: &str = "\
Examples:
  gmlake-sim plot traces/opt-1.3b-LR-var.pickle.xz --chart map --out map.svg
  gmlake-sim plot job.pickle --chart latency --profile a100-paper --out latency.png
  gmlake-sim plot job.pickle --chart sweep --set gmlake.fragment_limit=2MiB..1GiB:x2 --out sweep.svg

Exit codes: 0 success, 2 wrong usage or input.";

/// `gmlake-sim plot`
#[derive(Debug, Parser)]
#[command(after_help = PLOT_EXAMPLES)]
pub(crate) struct PlotArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) allocators: AllocatorArgs,
    /// What to draw
    #[arg(long, value_name = "NAME", value_parser = chart_names(), help_heading = "Output")]
    pub(crate) chart: String,
    /// File for the picture, .svg or .png
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) out: PathBuf,
}

/// The charts as the command line offers them, each with what it shows.
fn chart_names() -> PossibleValuesParser {
    let value = |chart: &Chart| PossibleValue::new(chart.name).help(chart.summary);
    let sweep = PossibleValue::new(SWEEP)
        .help("many runs at once: what --set sweeps, or the paper's limit");
    PossibleValuesParser::new(CHARTS.iter().map(value).chain([sweep]))
}
