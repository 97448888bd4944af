//! `gmlake-sim diff`: the peaks of two recordings side by side.

use std::num::NonZeroUsize;

use anyhow::{Result, bail};
use gmlake::blame::diff;
use gmlake::blame::show::{diff_sections, text};
use gmlake::sim::open;

use crate::args::DiffArgs;
use crate::blame::by;
use crate::export::Exports;
use crate::{Answer, terminal, work};
use gmlake::trace::LoadOptions;

pub(crate) fn main(args: &DiffArgs) -> Result<Answer> {
    let exports = Exports::json("diff", &args.export_json)?;
    let [first, second] = snapshots(&args.snapshot)?;
    let max_bytes = args.limit.max_input;
    let options =
        LoadOptions { device: args.device, stacks: true, max_bytes, ..LoadOptions::default() };
    let bar = work::rate(2, "recordings");
    let before = open(&args.before, &LoadOptions { snapshot: first, ..options.clone() })?;
    bar.inc(1);
    let after = open(&args.after, &LoadOptions { snapshot: second, ..options })?;
    bar.finish_and_clear();
    [&before, &after].into_iter().for_each(terminal::warn_of_assumptions);
    // Both by the same: by what the one with less to tell can tell.
    let of_both = if before.records.stacks.has_frames() { &after } else { &before };
    let found = diff(&before, &after, by(&args.names, of_both)?, args.names.innermost)?;
    if !exports.has_stdout() {
        let sections = diff_sections(&found, args.names.top);
        terminal::print(&text(&sections, terminal::look()))?;
    }
    exports.finish(&found)?;
    Ok(match args.tolerance.is_exceeded(&found) {
        Some(true) => Answer::No,
        Some(false) => Answer::Yes,
        None => Answer::Unknown,
    })
}

/// Which snapshot of each file: one number is for both.
fn snapshots(typed: &[NonZeroUsize]) -> Result<[Option<NonZeroUsize>; 2]> {
    match *typed {
        [] => Ok([None; 2]),
        [both] => Ok([Some(both); 2]),
        [before, after] => Ok([Some(before), Some(after)]),
        _ => bail!("--snapshot: {} numbers; expected one, or one for each file", typed.len()),
    }
}
