//! `gmlake-sim export`: a simulated run, or the trace itself, in the formats of other tools.

use anyhow::{Result, ensure};
use gmlake::alloc_conf::AllocConf;
use gmlake::report::Export;
use gmlake::sim::{OpenOptions, Opened, Setup, choose, open, transcribe};
use gmlake::trace::{Records, write_csv, write_minimalloc, write_snapshot};

use crate::args::{ExportArgs, ExportFormat};
use crate::{Answer, terminal};

pub(crate) fn main(args: &ExportArgs) -> Result<Answer> {
    let is_simulated = args.format != ExportFormat::Minimalloc;
    ensure!(
        is_simulated || (args.allocator.is_none() && args.set.is_empty()),
        "lifetimes are the same under every allocator: --format minimalloc goes without --allocator and --set"
    );
    let export = Export::open(&args.out)?;
    let options = OpenOptions { device: args.device, version: args.torch_version, stacks: true };
    let opened = open(&args.file, &options)?;
    for warning in &opened.trace.warnings {
        terminal::complain(&format!("warning: {}: {warning}", opened.file));
    }
    match args.format {
        ExportFormat::Minimalloc => {
            export.finish(|out| Ok(write_minimalloc(&opened.trace, out)?))?;
        }
        ExportFormat::Snapshot => {
            let records = simulate(args, &opened)?;
            export.finish(|out| Ok(write_snapshot(&records, out)?))?;
        }
        ExportFormat::Csv => {
            let records = simulate(args, &opened)?;
            export.finish(|out| Ok(write_csv(&records, out)?))?;
        }
    }
    Ok(Answer::Yes)
}

fn simulate(args: &ExportArgs, opened: &Opened) -> Result<Records> {
    let name = args.allocator.clone().unwrap_or_else(|| opened.recorded_by().to_owned());
    let choices = choose(&[name], &args.set)?;
    let version = args.torch_version;
    let conf =
        args.alloc_conf.as_deref().map(|text| AllocConf::parse(text, version)).transpose()?;
    let memory = args.device_memory.unwrap_or_default();
    let setup = Setup { version, conf, memory, ..Setup::default() };
    for note in setup.notes(opened) {
        terminal::complain(&format!("warning: {}: {note}", opened.file));
    }
    Ok(transcribe(opened, &choices[0], &setup)?)
}
