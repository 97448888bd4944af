//! `gmlake-sim report`: one page with everything about some traces.

use anyhow::ensure;
use gmlake::device::Profile;
use gmlake::report::{Export, Page, Report};
use gmlake::sim::Choices;

use crate::args::{AllocatorArgs, DeviceArgs, InputArgs, ReportArgs};
use crate::compare;
use crate::typed::{self, check_stdin};
use crate::{Answer, terminal};

/// The profile that is used by default: one that we measured.
const PROFILE: &str = "h200";

pub(crate) fn main(args: &ReportArgs, json: bool) -> anyhow::Result<Answer> {
    let reference = args.reference.clone();
    let choices = choices(&args.input, &args.device, &args.allocators, reference)?;
    let export = Export::open(&args.out)?;
    check_stdin(&args.input.files)?;
    let (comparisons, is_complete) = compare::run(&args.input.files, args.jobs, &choices)?;
    if comparisons.is_empty() {
        return Ok(Answer::Incomplete);
    }
    let is_stdout = export.is_stdout();
    ensure!(!(json && is_stdout), "the page and --json cannot both go to standard output");
    let page = Page { command: command() };
    export.finish(|out| Ok(page.write(&comparisons, out)?))?;
    if json {
        compare::print_json(&comparisons)?;
    } else if !is_stdout {
        let verdicts: Vec<_> = comparisons.iter().map(gmlake::report::verdict).collect();
        terminal::print(&format!("{}\n{}", verdicts.join("\n"), args.out.display()))?;
    }
    Ok(if is_complete { Answer::Yes } else { Answer::Incomplete })
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
fn command() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = |text: String| match text.chars().all(is_plain) && !text.is_empty() {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    };
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    std::iter::once("gmlake-sim".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
