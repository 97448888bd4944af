//! `gmlake-sim tune`: the best settings of PyTorch for a trace.

use anyhow::bail;
use gmlake::device::Profile;
use gmlake::report::section;
use gmlake::sim::{Memory, Setup, open};
use gmlake::tune::{TuneOptions, Tuning, show as report, tune};

use crate::args::TuneArgs;
use crate::export::Exports;
use crate::typed::check_stdin;
use crate::{Answer, pinned, terminal, work};

pub(crate) fn main(args: &TuneArgs) -> anyhow::Result<Answer> {
    if args.host {
        return pinned::tune(args);
    }
    check_stdin(&args.input.files)?;
    if !(0.0..=1.0).contains(&args.worth) {
        bail!("--worth is {}, but must be a share from 0 to 1", args.worth);
    }
    let version = args.input.torch_version.unwrap_or_default();
    let follows_file = args.input.torch_version.is_none();
    let options = TuneOptions {
        setup: Setup { version, follows_file, ..Setup::default() },
        memory: args.device_memory.map_or(Memory::AsRecorded, Memory::Bytes),
        profile: Profile::open(&args.profile)?,
        worth: args.worth,
    };
    let exports = Exports::json("tune", &args.export_json)?;
    let open_options = args.input.open(false);
    let bar = work::progress(args.input.files.len(), &options.setup.runs);
    let pool = work::pool(args.jobs)?;
    let (mut found, mut answer) = (Vec::new(), Answer::Yes);
    for file in &args.input.files {
        let result = open(file, &open_options).map_err(anyhow::Error::from).and_then(|opened| {
            if let Some(warning) = opened.trace.warnings.first().filter(|_| args.input.strict) {
                bail!("{}: {warning} (--strict)", opened.file);
            }
            if let Some(reason) = opened.too_little_to_tune() {
                terminal::print_line(&format!("{}: unknown: {reason}", opened.file));
                return Ok(None);
            }
            if let Some(caution) = opened.coverage.caution() {
                terminal::warn(&format!("{}: {caution}", opened.file));
            }
            Ok(Some(pool.install(|| tune(&opened, &options))?))
        });
        bar.inc(1);
        match result {
            Ok(Some(tuning)) => {
                if !tuning.helps() && answer == Answer::Yes {
                    answer = Answer::No;
                }
                found.push(tuning);
            }
            Ok(None) => answer = Answer::Unknown,
            Err(error) => {
                terminal::print_error(&error);
                answer = Answer::Incomplete;
            }
        }
    }
    bar.finish_and_clear();
    exports.tell(&found, |found, look| {
        let text = |tuning: &Tuning| section::text(&report::sections(tuning), look);
        found.iter().map(text).collect::<Vec<_>>().join("\n\n")
    })?;
    Ok(answer)
}
