//! `gmlake-sim report`: one page with everything about some traces.

use std::path::PathBuf;

use anyhow::ensure;
use gmlake::blame::{By, Diff, diff};
use gmlake::device::Profile;
use gmlake::page::Page;
use gmlake::remote::shown;
use gmlake::report::Export;
use gmlake::sim::{Choices, open};

use crate::args::{AllocatorArgs, DeviceArgs, InputArgs, ReportArgs};
use crate::typed;
use crate::{Answer, compare, terminal};
use gmlake::trace::LoadOptions;

/// The profile that is used by default: one that we measured.
const PROFILE: &str = "h200";

pub(crate) fn main(args: &ReportArgs, json: bool) -> anyhow::Result<Answer> {
    let reference = args.reference.clone();
    let mut choices = choices(&args.input, &args.device, &args.allocators, reference)?;
    choices.open.stacks = true;
    (choices.every_device, choices.in_depth) = (true, true);
    let is_pair = args.input.files.len() == 2;
    ensure!(is_pair || !args.diff, "--diff compares two files: before and after");
    let export = Export::open(&args.out)?;
    let is_stdout = export.is_stdout();
    let (comparisons, is_complete) = compare::run(&args.input.files, args.jobs, &choices)?;
    if comparisons.is_empty() {
        return Ok(Answer::Incomplete);
    }
    let diffs = if args.diff { diffs(&args.input.files, &choices.open)? } else { Vec::new() };
    let page = Page { command: command(), diffs };
    export.finish(|out| Ok(page.write(&comparisons, out)?))?;
    if json {
        compare::print_json("report", &comparisons)?;
    } else if !is_stdout {
        let verdicts: Vec<_> = comparisons.iter().map(gmlake::compare::show::verdict).collect();
        terminal::print(&format!("{}\n{}", verdicts.join("\n"), shown(&args.out)))?;
    }
    Ok(if is_complete { Answer::Yes } else { Answer::Incomplete })
}

/// What changed from the first of two files to the second, by every kind of name that both have.
fn diffs(files: &[PathBuf], options: &LoadOptions) -> anyhow::Result<Vec<Diff>> {
    let (before, after) = (open(&files[0], options)?, open(&files[1], options)?);
    let has_stacks = [&before, &after].iter().all(|one| one.records.stacks.has_frames());
    let kinds = [By::Line, By::Category, By::Size].into_iter();
    let kinds = kinds.filter(|&by| has_stacks || by == By::Size);
    Ok(kinds.map(|by| diff(&before, &after, by, false)).collect::<Result<_, _>>()?)
}

/// Peaks are kept and calls are priced.
pub(crate) fn choices(
    input: &InputArgs,
    device: &DeviceArgs,
    allocators: &AllocatorArgs,
    reference: Option<String>,
) -> anyhow::Result<Choices> {
    let mut choices = typed::choices(input, device, allocators, reference)?;
    choices.has_peaks = true;
    choices.setup.profile = choices.setup.profile.or_else(|| Profile::built_in(PROFILE));
    Ok(choices)
}

/// What was typed, so that it can be typed again.
pub(crate) fn command() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = |text: String| match text.chars().all(is_plain) && !text.is_empty() {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    };
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    std::iter::once("gmlake-sim".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
