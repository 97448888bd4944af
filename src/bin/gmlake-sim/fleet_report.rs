//! `gmlake-sim fleet report`: what a fleet's tables tell.

use crate::Answer;
use crate::args::FleetReportArgs;

pub(crate) fn main(args: &FleetReportArgs, json: bool) -> anyhow::Result<Answer> {
    let _ = (args, json);
    anyhow::bail!("not built yet")
}
