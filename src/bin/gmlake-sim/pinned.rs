//! `--host` of `compare`, `tune` and `verify`: pinned memory of the host in place of GPU memory.

use std::path::PathBuf;

use anyhow::Result;
use gmlake::pinned::{PinnedRecording, comparisons, tunings, verifications};
use gmlake::report::Export;

use crate::args::{CompareArgs, InputArgs, TuneArgs, VerifyArgs};
use crate::typed::check_stdin;
use crate::{Answer, export, terminal};

/// `gmlake-sim compare --host`
pub(crate) fn compare(args: &CompareArgs) -> Result<Answer> {
    let exports = export::open_all(&args.output.export_json)?;
    let conf = args.allocators.alloc_conf.as_deref();
    let (found, answer) = each(&args.input, |recording| Ok(recording.compare(conf)?))?;
    if !exports.iter().any(Export::is_stdout) && !found.is_empty() {
        terminal::print(&comparisons(&found, terminal::look()))?;
    }
    export::write_json(exports, "compare", &found)?;
    Ok(answer)
}

/// `gmlake-sim tune --host`
pub(crate) fn tune(args: &TuneArgs) -> Result<Answer> {
    let exports = export::open_all(&args.export_json)?;
    let (found, answer) = each(&args.input, |recording| Ok(recording.tune()?))?;
    if !exports.iter().any(Export::is_stdout) && !found.is_empty() {
        terminal::print(&tunings(&found, terminal::look()))?;
    }
    let is_known = found.iter().all(|one| one.default_row().is_some());
    let helps = found.iter().all(|one| one.best().is_some());
    export::write_json(exports, "tune", &found)?;
    Ok(match answer {
        Answer::Yes if !is_known => Answer::Unknown,
        Answer::Yes if !helps => Answer::No,
        other => other,
    })
}

/// `gmlake-sim verify --host`
pub(crate) fn verify(args: &VerifyArgs) -> Result<Answer> {
    let exports = export::open_all(&args.export_json)?;
    let (found, answer) = each(&args.input, |recording| Ok(recording.verify()?))?;
    if !exports.iter().any(Export::is_stdout) && !found.is_empty() {
        terminal::print(&verifications(&found, terminal::look()))?;
    }
    let is_exact = found.iter().all(|one| one.differences == 0);
    export::write_json(exports, "verify", &found)?;
    Ok(if answer == Answer::Yes && !is_exact { Answer::No } else { answer })
}

/// What is found out about each file; a file that cannot be used is reported.
fn each<T>(
    input: &InputArgs,
    find: impl Fn(&PinnedRecording) -> Result<T>,
) -> Result<(Vec<T>, Answer)> {
    check_stdin(&input.files)?;
    let options = input.open(false);
    let (mut found, mut answer) = (Vec::new(), Answer::Yes);
    for file in &input.files {
        let open = |file: &PathBuf| find(&PinnedRecording::open(file, &options)?);
        match open(file) {
            Ok(one) => found.push(one),
            Err(error) => {
                terminal::print_error(&error);
                answer = Answer::Incomplete;
            }
        }
    }
    Ok((found, answer))
}
