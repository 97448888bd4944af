//! The text of an out-of-memory, explained in words: where the memory was, why it was not enough, what to do.

use crate::blame::{MemorySummary, Message, MessageNumbers, SummaryRow};
use crate::report::section::Section;
use crate::units::{Bytes, Count, Size};

/// A headline, a table of where the memory was, the causes, and what to do.
pub fn message_sections(message: &Message) -> Vec<Section> {
    let mut parts = vec![Section::words(headline(message))];
    let rows = rows(&message.numbers, message.backend.as_deref());
    if !rows.is_empty() {
        parts.push(Section::new("", &["where the memory was", "bytes"], rows));
    }
    if let Some(summary) = &message.summary {
        parts.extend(table(summary));
    }
    let causes = message.findings.iter().map(|finding| finding.explanation.clone());
    parts.extend(causes.map(Section::words));
    let advice: Vec<String> = message.advice.iter().map(|text| format!("- {text}.")).collect();
    if !advice.is_empty() {
        parts.push(Section::words(format!("What to do:\n{}", advice.join("\n"))));
    }
    parts
}

fn headline(message: &Message) -> String {
    let numbers = &message.numbers;
    let gpu = message.device.map_or(String::new(), |device| format!(" on GPU {device}"));
    let backend = message.backend.as_deref().map_or(String::new(), |name| format!("{name} "));
    let ran_out = match (numbers.requested_bytes, &message.summary) {
        (None, Some(_)) => format!("a memory summary{gpu}"),
        _ => format!("{backend}out of memory{gpu}"),
    };
    let requested = numbers.requested_bytes.map(|bytes| format!("{} requested", Size(bytes)));
    let free = numbers.free_bytes.map(|free| match numbers.total_bytes {
        Some(total) => format!("{} of {} free", Size(free), Size(total)),
        None => format!("{} free", Size(free)),
    });
    let facts: Vec<String> = requested.into_iter().chain(free).collect();
    let facts = if facts.is_empty() { String::new() } else { format!(": {}", facts.join(", ")) };
    let mut text = format!("{}: {ran_out}{facts}.", message.file);
    if let Some(line) = &message.line {
        let number = if line.line == 0 { String::new() } else { format!(":{}", line.line) };
        let function = if line.function.is_empty() { "" } else { " in " };
        text += &format!("\n{}{number}{function}{} requested it.", line.file, line.function);
    }
    if message.more > 0 {
        let (more, verb) = (
            Count(message.more, "more such message"),
            if message.more == 1 { "follows" } else { "follow" },
        );
        text += &format!("\n{more} {verb} in the text; this is the first.");
    }
    if let Some(needs) = numbers.needs_at_least_bytes {
        text += &format!("\nTensors alone needed at least {}.", Size(needs));
    }
    text
}

/// What the figures say of the device's memory, part by part.
fn rows(numbers: &MessageNumbers, backend: Option<&str>) -> Vec<Vec<String>> {
    let rest = || {
        let parts = [numbers.allocated_bytes?, numbers.free_bytes?, numbers.unallocated_bytes?];
        let others = numbers.others_bytes.unwrap_or(0);
        numbers.total_bytes?.checked_sub(parts.iter().sum::<Bytes>() + others)
    };
    let is_split = numbers.outside_pytorch_bytes.is_some();
    let context = format!("{} context", backend.unwrap_or("CUDA"));
    let outside = format!("this process outside PyTorch: {context}, libraries");
    let rest_of_all = format!("the {context}, libraries and other processes");
    let parts: [(&str, Option<Bytes>); 8] = [
        ("live tensors", numbers.allocated_bytes),
        ("  of them in private pools, such as CUDA graphs'", numbers.private_pool_bytes),
        ("free in PyTorch's cache", numbers.unallocated_bytes),
        (&outside, numbers.outside_pytorch_bytes),
        ("other processes", numbers.others_bytes.filter(|&bytes| bytes > 0)),
        (&rest_of_all, rest().filter(|_| !is_split)),
        ("free on the device", numbers.free_bytes),
        ("the device", numbers.total_bytes),
    ];
    let row = |(name, bytes): (&str, Option<Bytes>)| {
        Some(vec![name.to_owned(), Size(bytes?).to_string()])
    };
    let mut rows: Vec<Vec<String>> = parts.into_iter().filter_map(row).collect();
    rows.extend(row(("allowed for this process", numbers.allowed_bytes)));
    rows
}

fn table(summary: &MemorySummary) -> Vec<Section> {
    let ooms = summary.ooms.map(|count| format!("{} failed", Count(count, "request")));
    let emptied = |count| format!("PyTorch emptied its cache {} to get more", Count(count, "time"));
    let retries = summary.retries.map(emptied);
    let counts: Vec<String> = ooms.into_iter().chain(retries).collect();
    let mut parts = Vec::new();
    if !counts.is_empty() {
        parts.push(Section::words(format!("{}.", counts.join("; "))));
    }
    if !summary.rows.is_empty() {
        let sizes = |row: &SummaryRow| [row.bytes[0], row.bytes[1]].map(|b| Size(b).to_string());
        let line = |row: &SummaryRow| [&[row.metric.to_lowercase()], &sizes(row)[..]].concat();
        let rows = summary.rows.iter().map(line).collect();
        parts.push(Section::new("", &["", "now", "peak"], rows));
    }
    parts
}
