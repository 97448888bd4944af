//! What verifying found out, in words.

use super::counted;
use super::summary::VerificationSummary;
use crate::report::Look;
use crate::report::table::plain;
use crate::units::Grouped;

/// Differences that are printed for each file.
const SHOWN: usize = 5;

/// A row for each file, what was assumed, the first differences, and one sentence.
pub fn text(found: &[VerificationSummary], look: Look) -> String {
    let heading = ["file", "entries", "differences", "requests", "segment events", "out of memory"];
    let heading = heading.into_iter().chain(["final blocks", "entries/s"]).map(str::to_owned);
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
        counted(summary.differences),
        count(&["alloc", "oom"]),
        count(&["segment_alloc", "segment_free", "segment_map", "segment_unmap"]),
        count(&["oom"]),
        Grouped(summary.final_blocks).to_string(),
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
            counted(differences)
        ),
    }
}
