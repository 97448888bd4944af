//! `gmlake-sim fleet report`: what a fleet's tables tell.

use gmlake::fleet::{show as fleet, summarize};
use gmlake::page::fleet_page;
use gmlake::report::{Export, section};

use crate::args::FleetReportArgs;
use crate::page;
use crate::plan::cards;
use crate::{Answer, terminal};

pub(crate) fn main(args: &FleetReportArgs, json: bool) -> anyhow::Result<Answer> {
    let export = args.out.as_deref().map(Export::open).transpose()?;
    let cards = cards(&args.cards)?;
    let summary = summarize(&args.folder, &cards, args.reference.as_deref())?;
    if let Some(name) = &args.reference
        && summary.reference.as_ref() != Some(name)
    {
        let known: Vec<&str> = summary.totals.iter().map(|t| t.allocator.as_str()).collect();
        anyhow::bail!("there is no row {name:?} to compare with; there are: {}", known.join(", "));
    }
    if json {
        terminal::print_json("fleet report", &summary)?;
    } else if export.as_ref().is_none_or(|export| !export.is_stdout()) {
        terminal::print(&section::text(&fleet::sections(&summary), terminal::look()))?;
    }
    if let Some(export) = export {
        let folder = args.folder.display().to_string();
        let page = fleet_page(&summary, &folder, &page::command())?;
        export.finish(|out| Ok(out.write_all(page.as_bytes())?))?;
    }
    Ok(Answer::Yes)
}
