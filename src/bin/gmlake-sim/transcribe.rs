//! `gmlake-sim export`: a simulated run, or the trace itself, in the formats of other tools.

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use gmlake::allocator::Role;
use gmlake::printable::printable;
use gmlake::report::Export;
use gmlake::sim::{
    Choice, Opened, Setup, choose, note_of_pools, open, transcribe, under, write_tracks,
};
use gmlake::trace::{MOST_TRACKS, Records, write_csv, write_minimalloc, write_snapshot};
use gmlake::units::Count;

use crate::args::{ExportArgs, ExportFormat};
use crate::typed::simulated;
use crate::{Answer, terminal, work};

pub(crate) fn main(args: &ExportArgs, json: bool) -> Result<Answer> {
    let is_simulated = args.format != ExportFormat::Minimalloc;
    ensure!(
        is_simulated || (args.allocator.is_empty() && args.set.is_empty()),
        "lifetimes are the same under every allocator: --format minimalloc goes without --allocator and --set"
    );
    let export = Export::open(&args.out)?;
    // A table cannot hold them, and says so.
    let wants_stacks = [ExportFormat::Snapshot, ExportFormat::Csv].contains(&args.format);
    let options = args.open(wants_stacks);
    let bar = work::reading(&args.file);
    let opened = open(&args.file, &options)?;
    bar.finish_and_clear();
    terminal::warn_of_assumptions(&opened);
    let events = Count(opened.trace.events.len() as u64, "event");
    let bar = work::busy(&format!("writing {events}"));
    match args.format {
        ExportFormat::Minimalloc => {
            export.finish(|out| Ok(write_minimalloc(&opened.trace, out)?))?;
            report_part(&opened);
        }
        ExportFormat::Perfetto => {
            let (choices, setup) = choices(args, &opened)?;
            let mut left_out = 0;
            export.finish(|out| {
                left_out = write_tracks(&opened, &choices, &setup, out)?;
                Ok(())
            })?;
            report_tracks(&opened, left_out);
        }
        ExportFormat::Snapshot => {
            let records = simulate(args, &opened)?;
            export.finish(|out| Ok(write_snapshot(&records, out)?))?;
        }
        ExportFormat::Csv => {
            let records = table(args, &opened)?;
            export.finish(|out| Ok(write_csv(&records, out)?))?;
            report_stacks(&opened);
        }
    }
    bar.finish_and_clear();
    if json {
        let format = args.format.to_possible_value().map(|value| value.get_name().to_owned());
        terminal::print_json(
            "export",
            &serde_json::json!({
                "file": opened.file,
                "device": opened.trace.device,
                "events": opened.trace.events.len(),
                "out": args.out.display().to_string(),
                "format": format,
            }),
        )?;
    }
    Ok(Answer::Yes)
}

/// The world and the allocators that were typed.
fn choices(args: &ExportArgs, opened: &Opened) -> Result<(Vec<Choice>, Setup)> {
    let memory = args.device_memory.unwrap_or_default();
    let simulated = simulated(args.torch_version, args.alloc_conf.as_deref())?;
    let setup = Setup { memory, ..simulated };
    let own = [setup.pytorch(opened).to_owned()];
    let names = if args.allocator.is_empty() { &own[..] } else { &args.allocator };
    let choices = under(choose(names, &args.set)?, setup.conf.as_ref());
    for note in setup.notes(opened).into_iter().chain(note_of_pools(opened, &choices)) {
        terminal::warn(&format!("{}: {note}", opened.file));
    }
    Ok((choices, setup))
}

/// Lifetimes cannot say that they are those of a part of a job.
fn report_part(opened: &Opened) {
    if opened.coverage.is_partial() {
        terminal::warn(&format!(
            "{}: minimalloc's format cannot say that this is a part of the job, and whoever reads it \
             takes it for all; --format csv says it",
            opened.file
        ));
    }
}

fn simulate(args: &ExportArgs, opened: &Opened) -> Result<Records> {
    let (choices, setup) = choices(args, opened)?;
    let [choice] = &choices[..] else {
        bail!("a recording is of one allocator: only --format perfetto takes several");
    };
    if choice.spec.role == Role::Candidate {
        terminal::warn(&format!(
            "{}: {} may map memory at more than one address; a snapshot counts each",
            opened.file, choice.spec.name
        ));
    }
    Ok(transcribe(opened, choice, &setup)?)
}

/// What a run did, for a table: no name in it acts upon a terminal.
fn table(args: &ExportArgs, opened: &Opened) -> Result<Records> {
    let mut records = simulate(args, opened)?;
    for annotation in &mut records.annotations {
        annotation.name = printable(&annotation.name).into();
    }
    Ok(records)
}

fn report_stacks(opened: &Opened) {
    if opened.records.stacks.has_frames() {
        let file = &opened.file;
        terminal::warn(&format!(
            "{file}: a table has no call stacks: --format snapshot keeps them"
        ));
    }
}

fn report_tracks(opened: &Opened, left_out: u64) {
    if left_out > 0 {
        terminal::warn(&format!(
            "{}: {} not on a track, since more than {MOST_TRACKS} were held at once",
            opened.file,
            Count(left_out, "segment")
        ));
    }
}
