//! `gmlake-sim plot`: one chart, as a picture.

use anyhow::{Context, bail};
use gmlake::report::{CHARTS, ImageFormat};

use crate::args::{PlotArgs, SWEEP};
use crate::compare::{self, check_stdin};
use crate::export::Export;
use crate::{Answer, page};

pub(crate) fn main(args: &PlotArgs) -> anyhow::Result<Answer> {
    if args.chart == SWEEP {
        bail!(
            "a sweep needs to know what is swept: gmlake-sim sweep FILE --set \
             gmlake.fragment_limit=2MiB..1GiB:x2 --plot {}",
            args.out.display()
        );
    }
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
