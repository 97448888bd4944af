//! `gmlake-sim tune`: the best settings of PyTorch for a trace.

use std::path::Path;

use anyhow::bail;
use gmlake::device::Profile;
use gmlake::plan::FitVerdict;
use gmlake::report::section;
use gmlake::sim::{Memory, Setup, open};
use gmlake::tune::{TuneOptions, Tuned, Tuning, Untuned, show as report, tune};

use crate::args::TuneArgs;
use crate::export::Exports;
use crate::{Answer, pinned, terminal, work};

pub(crate) fn main(args: &TuneArgs) -> anyhow::Result<Answer> {
    if args.host {
        return pinned::tune(args);
    }
    let options = options(args)?;
    let exports = Exports::json("tune", &args.export_json)?;
    let bar = work::progress(args.input.files.len(), &options.setup.runs);
    let pool = work::pool(args.jobs)?;
    let (found, answer) = terminal::usable(args.input.files.iter().map(|file| {
        let result = pool.install(|| tuned(file, args, &options));
        bar.inc(1);
        result
    }));
    bar.finish_and_clear();
    if !found.is_empty() {
        tell(exports, &found)?;
    }
    let helps = |tuned: &Tuned| tuned.known().and_then(Tuning::verdict);
    Ok(match answer {
        Answer::Yes if found.iter().any(|one| helps(one).is_none()) => Answer::Unknown,
        Answer::Yes if found.iter().any(|one| helps(one) == Some(false)) => Answer::No,
        other => other,
    })
}

fn options(args: &TuneArgs) -> anyhow::Result<TuneOptions> {
    let version = args.input.torch_version.unwrap_or_default();
    let follows_file = args.input.torch_version.is_none();
    Ok(TuneOptions {
        setup: Setup { version, follows_file, ..Setup::default() },
        memory: args.device_memory.map_or(Memory::AsRecorded, Memory::Bytes),
        profile: Profile::open(&args.profile)?,
        worth: args.worth,
    })
}

/// The settings for one file, or why none can be recommended, which is printed.
fn tuned(file: &Path, args: &TuneArgs, options: &TuneOptions) -> anyhow::Result<Tuned> {
    let opened = open(file, &args.input.open(false))?;
    if let Some(warning) = opened.trace.warnings.first().filter(|_| args.input.strict) {
        bail!("{}: {warning} (--strict)", opened.file);
    }
    if let Some(reason) = opened.too_little_to_tune() {
        terminal::print_line(&format!("{}: unknown: {reason}", opened.file));
        let (file, coverage) = (opened.file, opened.coverage);
        let verdict = FitVerdict::Unknown;
        return Ok(Tuned::Unknown(Untuned { file, coverage, verdict, reason }));
    }
    if let Some(caution) = opened.coverage.caution() {
        terminal::warn(&format!("{}: {caution}", opened.file));
    }
    Ok(Tuned::Known(Box::new(tune(&opened, options)?)))
}

/// Prints the settings that are known, unless a file goes to standard output, and writes the files.
fn tell(exports: Exports<'_, [Tuned]>, found: &[Tuned]) -> anyhow::Result<()> {
    let look = terminal::look();
    let texts = found.iter().filter_map(Tuned::known);
    let texts: Vec<String> =
        texts.map(|tuning| section::text(&report::sections(tuning), look)).collect();
    if !texts.is_empty() && !exports.has_stdout() {
        terminal::print(&texts.join("\n\n"))?;
    }
    Ok(exports.finish(found)?)
}
