//! `gmlake-sim verify`: PyTorch's own decisions, made again and compared.

use std::path::{Path, PathBuf};

use anyhow::Result;
use gmlake::allocator::Environment;
use gmlake::remote;
use gmlake::trace::{self, LoadOptions};
use gmlake::units::Grouped;
use gmlake::verify::{VerificationSummary, show, verify};
use indicatif::ProgressBar;
use rayon::prelude::*;

use crate::args::VerifyArgs;
use crate::export::Exports;
use crate::{Answer, pinned, terminal, work};

pub(crate) fn main(args: &VerifyArgs) -> Result<Answer> {
    if args.host {
        return pinned::verify(args);
    }
    let exports = Exports::json("verify", &args.export_json)?;
    let bar = work::files(&args.input.files);
    let verify = |file: &PathBuf| {
        let result = verify_file(file, args, &bar);
        bar.inc(1);
        result
    };
    let results: Vec<_> = args.input.files.par_iter().map(verify).collect();
    bar.finish_and_clear();
    let (found, mut answer) = terminal::usable(results);
    if answer == Answer::Yes && found.iter().any(|summary| summary.differences > 0) {
        answer = Answer::No;
    }
    exports.tell(&found, show::text)?;
    Ok(answer)
}

fn verify_file(file: &Path, args: &VerifyArgs, bar: &ProgressBar) -> Result<VerificationSummary> {
    let options = LoadOptions { stacks_of_flushes: true, ..args.input.open(false) };
    let records = trace::choose_device(trace::load(file, &options)?, options.device, file)?;
    anyhow::ensure!(
        records.has_segments && !records.marks.is_simulated,
        "{}: there is nothing to verify: only a PyTorch snapshot holds PyTorch's own decisions",
        remote::shown(file)
    );
    bar.set_message(format!("deciding {} entries again", Grouped(records.entries.len() as u64)));
    let conf = records.settings.clone().unwrap_or_default();
    let version = options.torch_version.unwrap_or_else(|| records.version());
    let mut environment = Environment { version, ..Environment::new(conf) };
    environment.memory_fraction = args.memory_fraction;
    environment.total_memory = args.device_memory.unwrap_or(environment.total_memory);
    let found = verify(&records, &environment);
    anyhow::ensure!(
        found.difference_count > 0 || found.compared.iter().any(|&count| count > 0),
        "{}: there is nothing to verify: no decision was recorded",
        remote::shown(file)
    );
    let mut summary = VerificationSummary::new(&remote::shown(file), &records, &found);
    summary.torch_version = version.to_string();
    Ok(summary)
}
