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
mod outside;
mod platform;
mod summary;
#[cfg(test)]
mod tests;
mod traceback;

use super::data::Message;
use crate::trace::text::{joined, places_of, without_colors};
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

/// Bytes in which the figures stand that go before such words.
const FIGURES: usize = 80;

/// What a text tells that [`TraceError::text`](crate::trace::TraceError::text) holds, of the file of this name.
pub fn explain(file: &str, text: &str) -> Message {
    let text = &*without_colors(text);
    let table = summary::summary(text);
    let mut places = places(text);
    let joined = places.first().map(|&at| joined(&text[at..]));
    let numbers = joined.as_deref().map(Numbers::read).unwrap_or_default();
    let mut findings = match (&joined, outside::find(text), &table) {
        (Some(_), ..) => outside::with_host(causes::findings(&numbers), text),
        (None, Some((at, outside)), _) => {
            places.push(at);
            vec![outside]
        }
        (None, None, Some((summary, _))) => vec![causes::of_summary(summary)],
        (None, None, None) => vec![causes::unknown()],
    };
    findings.dedup_by_key(|finding| finding.cause);
    let line = places.iter().find_map(|&at| traceback::innermost(text, at));
    let advice = advice::advice(&findings, &numbers);
    let words = |text| platform::in_words_of(numbers.backend.as_deref(), text);
    for finding in &mut findings {
        finding.explanation = words(std::mem::take(&mut finding.explanation));
    }
    let (summary, device) = table.map_or((None, None), |(table, device)| (Some(table), device));
    Message {
        file: file.to_owned(),
        backend: numbers.backend.clone(),
        device: numbers.device.or(device),
        numbers: numbers.plain(),
        summary,
        line,
        more: places.len().saturating_sub(1) as u64,
        advice: advice.into_iter().map(words).collect(),
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
        // Figures stand before the words, too: on their line, or at the end of the one above.
        let end = |at: usize| text[..at].rfind('\n').filter(|end| at - end < FIGURES).unwrap_or(at);
        let begin = |at| text.floor_char_boundary(end(at).saturating_sub(FIGURES));
        found.extend(first.map(begin));
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
