//! `gmlake-sim plot`: one chart, as a picture.

use anyhow::Context;
use gmlake::compare::chart::CHARTS;
use gmlake::report::{Export, ImageFormat};
use gmlake::sweep::chart::write_sweep;
use gmlake::sweep::{Grid, Sweep, SweepPlan};

use crate::args::{PlotArgs, SWEEP};
use crate::typed;
use crate::{Answer, compare, page, sweep, terminal};

pub(crate) fn main(args: &PlotArgs, json: bool) -> anyhow::Result<Answer> {
    if args.chart == SWEEP {
        return draw_sweep(args, json);
    }
    let chart = CHARTS.iter().find(|chart| chart.name == args.chart);
    let chart = chart.context("the command line knows every chart")?;
    let format = ImageFormat::of(&args.out)?;
    let choices = page::choices(&args.input, &args.device, &args.allocators, None)?;
    let export = Export::open(&args.out)?;
    let (comparisons, is_complete) = compare::run(&args.input.files, None, &choices)?;
    if comparisons.is_empty() {
        return Ok(Answer::Incomplete);
    }
    export.finish(|out| Ok((chart.draw)(&comparisons, format, out)?))?;
    if json {
        compare::print_json("plot", &comparisons)?;
    }
    Ok(if is_complete { Answer::Yes } else { Answer::Incomplete })
}

/// What is swept by default: the paper's option.
const SWEPT: &str = "gmlake.fragment_limit=2MiB..1GiB:x2";

/// The chart of many runs. `gmlake-sim sweep` makes the same one, and keeps a journal of long sweeps.
fn draw_sweep(args: &PlotArgs, json: bool) -> anyhow::Result<Answer> {
    let format = ImageFormat::of(&args.out)?;
    let base = typed::setup(
        args.input.torch_version,
        &args.device,
        args.allocators.alloc_conf.as_deref(),
    )?;
    let swept = [SWEPT.to_owned()];
    let given = &args.allocators.set;
    let axes: &[String] = if given.is_empty() { &swept } else { given };
    let grid = Grid::new(&args.allocators.allocators, axes, &base)?;
    let open = args.input.open(false);
    let (is_strict, only_fitting) = (args.input.strict, false);
    let plan = SweepPlan { grid, open, is_strict, only_fitting, journal: None };
    let export = Export::open(&args.out)?;
    let (rows, answer) = sweep::run(&args.input.files, None, &plan)?;
    if !rows.is_empty() {
        let found = Sweep { axes: plan.grid.axes.clone(), rows };
        export.finish(|out| Ok(write_sweep(&found, format, out)?))?;
        if json {
            terminal::print_json("plot", &found)?;
        }
    }
    Ok(answer)
}
