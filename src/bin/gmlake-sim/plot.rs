//! `gmlake-sim plot`: one chart, as a picture.

use anyhow::Context;
use gmlake::report::{CHARTS, ImageFormat};

use crate::args::PlotArgs;
use crate::compare::{self, check_stdin};
use crate::export::Export;
use crate::{Answer, page};

pub(crate) fn main(args: &PlotArgs) -> anyhow::Result<Answer> {
    let chart = CHARTS.iter().find(|chart| chart.name == args.chart);
    let chart = chart.context("the command line knows every chart")?;
    let report = chart.report(ImageFormat::of(&args.out)?);
    let choices = page::choices(&args.input, &args.device, &args.allocators, None)?;
    let export = Export::open(&args.out)?;
    check_stdin(&args.input.files)?;
    let (comparisons, is_complete) = compare::run(&args.input.files, None, &choices)?;
    if comparisons.is_empty() {
        return Ok(Answer::Incomplete);
    }
    export.finish(|out| Ok(report.write(&comparisons, out)?))?;
    Ok(if is_complete { Answer::Yes } else { Answer::Incomplete })
}
