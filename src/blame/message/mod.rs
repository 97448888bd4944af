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

use serde::Serialize;

use crate::trace::text::{joined, places_of, without_colors};
use crate::units::Bytes;
use numbers::Numbers;

/// Why memory ran out, as far as a text can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A limit that was set for the process, below the memory of the device.
    Limit,
    /// The device had more free than was requested.
    FreeYetRefused,
    /// PyTorch held enough free memory, in pieces.
    Fragmentation,
    /// Other processes held memory of the device.
    OtherProcesses,
    /// More was needed than there was.
    TooMuch,
    /// The size of the request makes no sense.
    WrongSize,
    /// Not PyTorch's allocator but the driver, or a library, found no memory.
    OutsidePyTorch,
    /// The allocator of another framework, such as XLA's, found no memory.
    OtherFramework,
    /// What a server of language models keeps of the device is too small for it.
    ServerShare,
    /// It was the memory of the host, not that of a GPU.
    HostMemory,
    /// The text does not say.
    Unknown,
}

/// One of the causes, with what speaks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// Whether the numbers leave no other explanation.
    pub is_certain: bool,
    /// The bytes that it concerns, as far as they are known.
    pub bytes: Option<Bytes>,
    /// What speaks for it, in words.
    pub explanation: String,
}

impl Finding {
    fn certain(cause: Cause, bytes: Option<Bytes>, explanation: impl Into<String>) -> Self {
        Self { cause, is_certain: true, bytes, explanation: explanation.into() }
    }

    fn possible(cause: Cause, bytes: Option<Bytes>, explanation: impl Into<String>) -> Self {
        Self { is_certain: false, ..Self::certain(cause, bytes, explanation) }
    }
}

/// The numbers of a message; `None` where it does not say. They are rounded as the text is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MessageNumbers {
    /// Bytes that were requested from the device, after rounding.
    pub requested_bytes: Option<Bytes>,
    /// Memory of the device.
    pub total_bytes: Option<Bytes>,
    /// What the device had free after the request had failed.
    pub free_bytes: Option<Bytes>,
    /// The most that the process might hold.
    pub allowed_bytes: Option<Bytes>,
    /// Bytes of live tensors.
    pub allocated_bytes: Option<Bytes>,
    /// Those of them in private pools, such as CUDA graphs'.
    pub private_pool_bytes: Option<Bytes>,
    /// Bytes that PyTorch held free.
    pub unallocated_bytes: Option<Bytes>,
    /// All that the process held of the device.
    pub process_bytes: Option<Bytes>,
    /// What of it was not PyTorch's: the context of CUDA, libraries.
    pub outside_pytorch_bytes: Option<Bytes>,
    /// What other processes held.
    pub others_bytes: Option<Bytes>,
    /// The least that the job needs in live tensors.
    pub needs_at_least_bytes: Option<Bytes>,
}

/// A row of `torch.cuda.memory_summary()`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SummaryRow {
    /// Its name there.
    pub metric: String,
    /// Current, peak, allocated in all, freed in all.
    pub bytes: [Bytes; 4],
}

/// What `torch.cuda.memory_summary()` printed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MemorySummary {
    /// Requests that failed.
    pub ooms: Option<u64>,
    /// How often PyTorch emptied its cache because the device had no more.
    pub retries: Option<u64>,
    /// The rows that are sizes and are not of a single pool.
    pub rows: Vec<SummaryRow>,
}

impl MemorySummary {
    /// The row of this name.
    pub fn row(&self, metric: &str) -> Option<[Bytes; 4]> {
        self.rows.iter().find(|row| row.metric == metric).map(|row| row.bytes)
    }
}

/// The line of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceLine {
    /// The file.
    pub file: String,
    /// The line.
    pub line: u64,
    /// The function.
    pub function: String,
}

/// The text of an out-of-memory, explained.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The file, as given.
    pub file: String,
    /// Who reported it: `CUDA`, `HIP`, `XPU` or another backend, if it says so.
    pub backend: Option<String>,
    /// Index of the GPU.
    pub device: Option<u32>,
    /// The numbers.
    pub numbers: MessageNumbers,
    /// The table of `memory_summary()`, if there is one.
    pub summary: Option<MemorySummary>,
    /// The innermost line of the call stack that a user can change.
    pub line: Option<SourceLine>,
    /// Further messages in the text.
    pub more: u64,
    /// Causes, the likeliest first.
    pub findings: Vec<Finding>,
    /// What to do, the most promising first.
    pub advice: Vec<String>,
}

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
