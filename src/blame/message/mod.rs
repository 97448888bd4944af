//! The text of an out-of-memory, explained: what most people have when a job has died.
//!
//! ```text
//!   log ──traceback──▶ the line that asked
//!       ──numbers────▶ tensors, cached, others, free ──causes──▶ what it was, or what it cannot have been
//!       ──summary────▶ peaks, retries                  ──advice──▶ what to do, how to record
//! ```
//!
//! A message has no events. So there is no peak, no setting that is confirmed, and no card: only arithmetic in the
//! message's own figures.

mod advice;
mod amount;
mod causes;
mod numbers;
mod summary;
#[cfg(test)]
mod tests;
mod traceback;

use super::data::Message;
use crate::trace::text::{places_of, without_prefix};
use numbers::Numbers;

/// Where the numbers of a message begin: with these words, or with the word before them.
const REQUESTS: [&str; 5] = [
    "out of memory. Tried to allocate",
    "Out of memory. Tried to allocate",
    numbers::PIECE,
    "out of memory (MPS",
    "Allocation on device",
];
/// Parts of messages whose beginning was not copied.
const PARTS: [&str; 4] =
    ["total capacity", "total capacty", "is allocated by PyTorch", "reserved in total by PyTorch"];

/// What a text tells that [`TraceError::text`](crate::trace::TraceError::text) holds, of the file of this name.
#[must_use]
pub fn explain(file: &str, text: &str) -> Message {
    let table = summary::summary(text);
    let places = places(text);
    let joined = places.first().map(|&at| joined(&text[at..]));
    let numbers = joined.as_deref().map(Numbers::read).unwrap_or_default();
    let mut findings = match (&joined, causes::outside(text), &table) {
        (Some(_), ..) => causes::findings(&numbers),
        (None, Some(outside), _) => vec![outside],
        (None, None, Some((summary, _))) => vec![causes::of_summary(summary)],
        (None, None, None) => vec![causes::unknown()],
    };
    findings.dedup_by_key(|finding| finding.cause);
    let stacks = places.iter().copied().chain([text.len()]);
    let line = stacks.into_iter().find_map(|at| traceback::innermost(&text[..at]));
    let (summary, device) = table.map_or((None, None), |(table, device)| (Some(table), device));
    Message {
        file: file.to_owned(),
        backend: numbers.backend.clone(),
        device: numbers.device.or(device),
        numbers: numbers.plain(),
        summary,
        line,
        more: places.len().saturating_sub(1) as u64,
        advice: advice::advice(&findings, &numbers),
        findings,
    }
}

/// Where messages with numbers begin.
fn places(text: &str) -> Vec<usize> {
    let mut found: Vec<usize> = REQUESTS
        .iter()
        .flat_map(|words| places_of(text, words).map(|at| word_before(text, at)))
        .collect();
    if found.is_empty() {
        let first = PARTS.iter().filter_map(|words| places_of(text, words).next()).min();
        // Figures stand before the words, too.
        found.extend(first.map(|at| text.floor_char_boundary(at.saturating_sub(80))));
    }
    found.sort_unstable();
    found
}

/// The beginning of the word before a place, such as `CUDA`; of two, if the last is "backend".
fn word_before(text: &str, at: usize) -> usize {
    let is_of_word = |c: char| c.is_ascii_alphabetic();
    let before = text[..at].trim_end();
    let before = before.strip_suffix(" backend").unwrap_or(before);
    before.rfind(|c| !is_of_word(c)).map_or(0, |at| text.ceil_char_boundary(at + 1))
}

/// The text with single blanks in place of its line breaks, and without what a log writes before each line.
fn joined(text: &str) -> String {
    let lines = text.lines().map(without_prefix);
    lines.flat_map(str::split_whitespace).take(4000).collect::<Vec<_>>().join(" ")
}
