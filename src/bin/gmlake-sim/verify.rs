//! `gmlake-sim verify`: PyTorch's own decisions, made again and compared.

use std::path::{Path, PathBuf};

use anyhow::Result;
use gmlake::allocator::Environment;
use gmlake::remote;
use gmlake::report::table::plain;
use gmlake::report::{Export, Look};
use gmlake::trace::{self, LoadOptions};
use gmlake::units::Grouped;
use gmlake::verify::{VerificationSummary, verify};
use indicatif::ProgressBar;
use rayon::prelude::*;

use crate::args::VerifyArgs;
use crate::typed::check_stdin;
use crate::{Answer, export, terminal, work};

/// Differences that are printed for each file.
const SHOWN: usize = 5;

pub(crate) fn main(args: &VerifyArgs) -> Result<Answer> {
    let exports = export::open_all(&args.export_json)?;
    check_stdin(&args.input.files)?;
    let bar = work::files(&args.input.files);
    let verify = |file: &PathBuf| {
        let result = verify_file(file, args, &bar);
        bar.inc(1);
        result
    };
    let results: Vec<_> = args.input.files.par_iter().map(verify).collect();
    bar.finish_and_clear();
    let mut found = Vec::new();
    let mut answer = Answer::Yes;
    for result in results {
        match result {
            Ok(summary) => found.push(summary),
            Err(error) => {
                terminal::print_error(&error);
                answer = Answer::Incomplete;
            }
        }
    }
    if answer == Answer::Yes && found.iter().any(|summary| summary.differences > 0) {
        answer = Answer::No;
    }
    if !exports.iter().any(Export::is_stdout) && !found.is_empty() {
        terminal::print(&describe(&found, terminal::look()))?;
    }
    export::write_json(exports, "verify", &found)?;
    Ok(answer)
}

fn verify_file(file: &Path, args: &VerifyArgs, bar: &ProgressBar) -> Result<VerificationSummary> {
    let version = args.input.torch_version;
    let options = LoadOptions {
        torch_version: version,
        max_bytes: args.input.limit.max_input,
        snapshot: args.input.snapshot,
        ..LoadOptions::default()
    };
    let records = trace::choose_device(trace::load(file, &options)?, args.input.device, file)?;
    anyhow::ensure!(
        records.has_segments,
        "{}: there is nothing to verify: only a PyTorch snapshot holds PyTorch's own decisions",
        remote::shown(file)
    );
    bar.set_message(format!("deciding {} entries again", Grouped(records.entries.len() as u64)));
    let conf = records.settings.clone().unwrap_or_default();
    let version = version.unwrap_or_else(|| records.version());
    let mut environment = Environment { version, ..Environment::new(conf) };
    environment.memory_fraction = args.memory_fraction;
    environment.total_memory = args.device_memory.unwrap_or(environment.total_memory);
    let found = verify(&records, &environment);
    let summary = VerificationSummary::new(&remote::shown(file), &records, &found);
    Ok(summary.with_version(version))
}

/// A row for each file, what was assumed, the first differences, and one sentence.
fn describe(found: &[VerificationSummary], look: Look) -> String {
    let heading =
        ["file", "entries", "requests", "segment events", "out of memory", "final blocks"];
    let heading = heading.into_iter().chain(["differences", "entries/s"]).map(str::to_owned);
    let rows = found.iter().map(row).collect();
    let mut parts = vec![plain(heading.collect(), rows, look)];
    for summary in found {
        let words = summary.assumptions();
        if !words.is_empty() {
            parts.push(format!("{}: {}", summary.file, words.join("; ")));
        }
        for difference in summary.first_differences.iter().take(SHOWN) {
            parts.push(format!(
                "{}, entry {}: PyTorch: {}; model: {}",
                summary.file, difference.entry, difference.recorded, difference.model
            ));
        }
    }
    parts.push(verdict(found));
    parts.join("\n")
}

fn row(summary: &VerificationSummary) -> Vec<String> {
    let count = |names: &[&str]| {
        let of = summary.compared.iter().filter(|compared| names.contains(&compared.action));
        Grouped(of.map(|compared| compared.count).sum()).to_string()
    };
    let seconds = summary.elapsed_ns as f64 / 1e9;
    vec![
        summary.file.clone(),
        Grouped(summary.entries).to_string(),
        count(&["alloc", "oom"]),
        count(&["segment_alloc", "segment_free", "segment_map", "segment_unmap"]),
        count(&["oom"]),
        Grouped(summary.final_blocks).to_string(),
        Grouped(summary.differences).to_string(),
        format!("{:.1} million", summary.entries as f64 / 1e6 / seconds.max(1e-9)),
    ]
}

fn verdict(found: &[VerificationSummary]) -> String {
    let entries = Grouped(found.iter().map(|summary| summary.entries).sum());
    let differences: u64 = found.iter().map(|summary| summary.differences).sum();
    let files = match found.len() {
        1 => "1 recording".to_owned(),
        files => format!("{files} recordings"),
    };
    match differences {
        0 => format!("Exact: all {entries} recorded decisions in {files} were made again."),
        _ => format!(
            "Not exact: {} differences in {entries} entries of {files}.",
            Grouped(differences)
        ),
    }
}
