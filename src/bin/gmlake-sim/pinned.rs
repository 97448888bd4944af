//! `--host` of `compare`, `tune` and `verify`: pinned memory of the host in place of GPU memory.

use std::path::PathBuf;

use anyhow::{Result, bail};
use gmlake::pinned::{PinnedRecording, comparisons, tunings, verifications};
use gmlake::remote::shown;

use crate::args::{CompareArgs, InputArgs, TuneArgs, VerifyArgs};
use crate::export::Exports;
use crate::{Answer, terminal};

/// `gmlake-sim compare --host`
pub(crate) fn compare(args: &CompareArgs) -> Result<Answer> {
    let exports = Exports::json("compare", &args.output.export_json)?;
    let conf = args.allocators.alloc_conf.as_deref();
    let (found, answer) = each(&args.input, |recording| Ok(recording.compare(conf)?))?;
    exports.tell(&found, comparisons)?;
    Ok(answer)
}

/// `gmlake-sim tune --host`
pub(crate) fn tune(args: &TuneArgs) -> Result<Answer> {
    let exports = Exports::json("tune", &args.export_json)?;
    let (found, answer) = each(&args.input, |recording| Ok(recording.tune()?))?;
    exports.tell(&found, tunings)?;
    let is_known = found.iter().all(|one| one.default_row().is_some());
    let is_whole = found.iter().all(|one| !one.coverage.is_partial());
    let helps = found.iter().all(|one| one.best().is_some());
    Ok(match answer {
        Answer::Yes if !is_known || !is_whole => Answer::Unknown,
        Answer::Yes if !helps => Answer::No,
        other => other,
    })
}

/// `gmlake-sim verify --host`
pub(crate) fn verify(args: &VerifyArgs) -> Result<Answer> {
    let exports = Exports::json("verify", &args.export_json)?;
    let (found, answer) = each(&args.input, |recording| {
        let found = recording.verify()?;
        anyhow::ensure!(
            found.requests > 0,
            "{}: there is nothing to verify: all blocks are from before the recording, or pinned by the program itself",
            found.file
        );
        Ok(found)
    })?;
    exports.tell(&found, verifications)?;
    let is_exact = found.iter().all(|one| one.differences == 0);
    Ok(if answer == Answer::Yes && !is_exact { Answer::No } else { answer })
}

/// What is found out about each file; a file that cannot be used is reported.
fn each<T>(
    input: &InputArgs,
    find: impl Fn(&PinnedRecording) -> Result<T>,
) -> Result<(Vec<T>, Answer)> {
    let options = input.open(false);
    let open = |file: &PathBuf| {
        let recording = PinnedRecording::open(file, &options)?;
        let name = shown(file);
        for note in recording.notes() {
            if input.strict {
                bail!("{name}: {note} (--strict)");
            }
            terminal::warn(&format!("{name}: {note}"));
        }
        find(&recording)
    };
    Ok(terminal::usable(input.files.iter().map(open)))
}
