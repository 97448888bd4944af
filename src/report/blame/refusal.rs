//! Out of memory, in words: who asked, who held, what was free and of no use, what would have served it.

use super::{fitted, percent, subject};
use crate::metrics::{By, Refusal, Served};
use crate::report::section::Section;
use crate::report::table::Look;
use crate::units::{Bytes, Grouped, Size};

/// A headline, what was free and why it was of no use, the `top` largest holders, and what would have served it.
#[must_use]
pub fn refusal_text(refusal: &Refusal, top: usize, look: Look) -> String {
    fitted(&refusal_sections(refusal, top), look)
}

/// The same, part by part.
#[must_use]
pub fn refusal_sections(refusal: &Refusal, top: usize) -> Vec<Section> {
    let mut parts = vec![Section::words(headline(refusal)), Section::words(state(refusal))];
    if !refusal.free.is_empty() {
        let row = |row: &crate::metrics::UnusableFree| {
            let numbers = [Size(row.bytes), Size(row.largest_bytes)].map(|size| size.to_string());
            [&[row.meaning.to_owned()], &numbers[..]].concat()
        };
        let rows = refusal.free.iter().map(row).collect();
        parts.push(Section::new("", &["held, and of no use to it", "bytes", "largest"], rows));
    }
    let rows = holders(refusal, top);
    if !rows.is_empty() {
        parts.push(Section::new("", &["who held", "bytes", "share", "blocks"], rows));
    }
    parts.push(Section::words(remedies(refusal)));
    parts
}

fn holders(refusal: &Refusal, top: usize) -> Vec<Vec<String>> {
    let line = |name: String, bytes: Bytes, blocks: u64| {
        let share = percent(bytes, refusal.live_bytes);
        vec![name, Size(bytes).to_string(), share, Grouped(blocks).to_string()]
    };
    let shown = refusal.held.iter().take(top);
    let mut rows: Vec<_> = shown.map(|row| line(row.with_own(), row.bytes, row.blocks)).collect();
    if let Some(rest) = refusal.held.get(top..).filter(|rest| !rest.is_empty()) {
        let (bytes, blocks) =
            (rest.iter().map(|r| r.bytes).sum(), rest.iter().map(|r| r.blocks).sum());
        rows.push(line(format!("{} more", Grouped(rest.len() as u64)), bytes, blocks));
    }
    rows
}

fn headline(refusal: &Refusal) -> String {
    let Refusal { file, device, allocator, .. } = refusal;
    let step = refusal.step.map_or(String::new(), |step| format!(" in step {}", Grouped(step)));
    let (asked, event) = (Size(refusal.requested_bytes), Grouped(refusal.event));
    let mut who = match refusal.by {
        By::Size => "the program".to_owned(),
        _ => subject(&refusal.name),
    };
    // A path stays as it is.
    if who.starts_with("the ") {
        who.replace_range(..1, "T");
    }
    format!(
        "{file}, device {device}: {allocator} ran out of memory at event {event}{step}.\n\
         {who} asked for {asked}."
    )
}

fn state(refusal: &Refusal) -> String {
    let (reserved, live) = (Size(refusal.reserved_bytes), Size(refusal.live_bytes));
    let limit = match refusal.memory_bytes {
        Some(memory) => {
            let left = Size(memory.saturating_sub(refusal.reserved_bytes));
            format!(" of the {} that it may hold, so that {left} were left to be had", Size(memory))
        }
        None => String::new(),
    };
    let usable = match refusal.usable_bytes {
        0 => "no free block was in the pool and on the stream that it asks".to_owned(),
        bytes => {
            format!("the largest free block in its pool and on its stream was {}", Size(bytes))
        }
    };
    format!("{reserved} were held{limit}. Of what was held {live} were live; {usable}.")
}

fn remedies(refusal: &Refusal) -> String {
    let names = |runs_job: bool| -> Vec<String> {
        let served = refusal.served_by.iter().filter(|served| served.runs_job == runs_job);
        served.map(with_setting).collect()
    };
    let (whole, part) = (names(true), names(false));
    if let Some(free) = refusal.not_short_of {
        return format!(
            "Memory was not short: the driver had {} free. A memory fraction, a MemPool or the driver \
             refused it; more memory or another setting need not help.",
            Size(free)
        );
    }
    let needed = refusal.live_bytes + refusal.requested_bytes;
    let too_much = refusal.memory_bytes.filter(|&memory| needed > memory).map(|memory| {
        let (needed, memory) = (Size(needed), Size(memory));
        format!("With the request {needed} would be live, and there are {memory}: hold less")
    });
    let text = match (whole.is_empty(), part.is_empty()) {
        _ if too_much.is_some() => too_much.unwrap_or_default(),
        (true, true) if !refusal.also_served_by.is_empty() => {
            format!(
                "Within the same memory it is served by {}",
                refusal.also_served_by.join(", or by ")
            )
        }
        (true, true) => "No other allocator serves it within the same memory".to_owned(),
        (true, false) => {
            format!("Within the same memory {} serve it, but not the whole job", part.join(", "))
        }
        (false, _) if refusal.coverage.is_lower_bound() => {
            format!("Within the same memory all that was recorded runs with {}", whole.join(", "))
        }
        (false, _) => {
            format!("Within the same memory the whole job runs with {}", whole.join(", "))
        }
    };
    text + &on_a_card(refusal)
}

/// Which card the job runs on, if that is known.
fn on_a_card(refusal: &Refusal) -> String {
    let Refusal { allocator, coverage, .. } = refusal;
    match &refusal.card {
        None if coverage.is_lower_bound() => format!(
            ". No card can be recommended: {} ({}).",
            coverage.reason(),
            coverage.cure().unwrap_or_default()
        ),
        Some((card, bytes)) => {
            format!("; with {allocator} it runs on {card} ({} for the job) or more.", Size(*bytes))
        }
        None => format!("; with {allocator} it runs on no larger card of the catalogue."),
    }
}

/// The allocator, with how to get it where that is a setting.
fn with_setting(served: &Served) -> String {
    let allocator = &served.allocator;
    match (&served.setting, allocator.as_str()) {
        (Some(setting), _) => format!("{allocator} with {setting}"),
        (None, "expandable") => {
            format!("{allocator} (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)")
        }
        (None, _) => allocator.clone(),
    }
}
