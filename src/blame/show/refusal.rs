//! Out of memory, in words: who requested it, who held the memory, what was wasted, and what would have served it.

use std::ops::Range;

use super::{called_from, percent, subject, totals};
use crate::blame::{By, Refusal, Served, UnusableFree};
use crate::printable::printable;
use crate::report::section::Section;
use crate::units::{Bytes, Grouped, Size};
use crate::verify::{most_in, range_in_words};

/// A headline, what was wasted and why, the `top` largest holders, and what would have served it.
pub fn refusal_sections(refusal: &Refusal, top: usize) -> Vec<Section> {
    let mut parts = vec![Section::words(headline(refusal)), Section::words(state(refusal))];
    if !refusal.free.is_empty() {
        let row = |row: &UnusableFree| {
            let numbers = [Size(row.bytes), Size(row.largest_bytes)].map(|size| size.to_string());
            [&[row.meaning.to_owned()], &numbers[..]].concat()
        };
        let rows = refusal.free.iter().map(row).collect();
        parts.push(Section::new("", &["wasted", "bytes", "largest"], rows));
    }
    let rows = holders(refusal, top);
    if !rows.is_empty() {
        parts.push(Section::new("", &["held by", "bytes", "share", "blocks"], rows));
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
        let (bytes, blocks) = totals(rest);
        rows.push(line(format!("{} more", Grouped(rest.len() as u64)), bytes, blocks));
    }
    rows
}

fn headline(refusal: &Refusal) -> String {
    let Refusal { file, device, .. } = refusal;
    let step = refusal.step.map_or(String::new(), |step| format!(" in step {}", Grouped(step)));
    let (requested, event) = (Size(refusal.requested_bytes), Grouped(refusal.event));
    format!(
        "{file}, device {device}: {} ran out of memory{step} (event {event}).\n\
         {} requested {requested}.",
        whose(refusal),
        requester(refusal)
    )
}

/// The allocator as one calls it: that of PyTorch is PyTorch.
fn whose(refusal: &Refusal) -> &str {
    match refusal.allocator.as_str() {
        "caching" => "PyTorch",
        "expandable" => "PyTorch with expandable segments",
        other => other,
    }
}

/// Who requested the memory, at the beginning of a sentence, and the user's own line behind it.
fn requester(refusal: &Refusal) -> String {
    if refusal.by == By::Size {
        return "The program".to_owned();
    }
    let name = called_from(&subject(&refusal.name), refusal.own.as_deref());
    // A path stays as it is.
    match name.strip_prefix("the ") {
        Some(rest) => format!("The {rest}"),
        None => name,
    }
}

fn state(refusal: &Refusal) -> String {
    let (reserved, live) = (Size(refusal.reserved_bytes), Size(refusal.live_bytes));
    let who = whose(refusal);
    let held = match refusal.memory_bytes {
        Some(memory) if let Some(range) = known_range(refusal) => format!(
            "{who} held {reserved} ({live} live). Its limit was {}, simulated with {}",
            range_in_words(&range),
            Size(memory)
        ),
        Some(memory) => {
            let left = Size(memory.saturating_sub(refusal.reserved_bytes));
            format!("Of {}, {who} held {reserved} ({live} live), leaving {left}", Size(memory))
        }
        None => format!("{who} held {reserved} ({live} live)"),
    };
    let usable = match refusal.usable_bytes {
        0 => "Its pool and stream had no free block".to_owned(),
        bytes => format!("The largest free block of its pool and stream was {}", Size(bytes)),
    };
    format!("{held}. {usable}.{}", neighbours(refusal))
}

/// What other processes held of the card, in a sentence that follows others.
fn neighbours(refusal: &Refusal) -> String {
    let held = Size(refusal.others.iter().filter_map(|process| process.bytes).sum());
    match &refusal.others[..] {
        [] => String::new(),
        [one] => {
            let name = printable(&one.name);
            format!(" Another process held {held} of the card (PID {}: {name}).", one.pid)
        }
        several => format!(" {} other processes held {held} of the card.", several.len()),
    }
}

/// What would have helped, in sentences.
fn remedies(refusal: &Refusal) -> String {
    if let Some(free) = refusal.not_short_of {
        return format!(
            "Memory was not short: the driver had {} free. A memory fraction, a MemPool or the driver \
             refused the request. More memory or another setting may not help.",
            Size(free)
        );
    }
    let (same_memory, card) = (in_same_memory(refusal), on_a_card(refusal));
    format!("{same_memory} {card}")
}

/// What serves the request without more memory.
fn in_same_memory(refusal: &Refusal) -> String {
    let names = |runs_job: bool| {
        let served = refusal.served_by.iter().filter(|served| served.runs_job == runs_job);
        listed(&served.map(with_setting).collect::<Vec<_>>())
    };
    let needed = refusal.live_bytes + refusal.requested_bytes;
    if let Some(memory) = refusal.memory_bytes.filter(|&memory| needed > memory) {
        return too_much(refusal, needed, memory);
    }
    if refusal.memory_bytes.is_none() && refusal.served_by.is_empty() {
        return "How much memory there was is not recorded, so what would have served the request \
                is unknown: give --device-memory SIZE."
            .to_owned();
    }
    let memory = memory_in_words(refusal);
    match (names(true), names(false)) {
        (Some(all), _) if refusal.coverage.is_partial() => {
            format!(
                "{memory}, {all} would serve all that was recorded. Whether the job then runs is unknown."
            )
        }
        (Some(all), _) => format!("{memory}, the whole job runs with {all}."),
        (None, Some(some)) => {
            format!("{memory}, {some} would serve this request, but not the whole job.")
        }
        (None, None) if refusal.also_served_by.is_empty() => {
            format!("{memory}, no allocator or setting serves it.")
        }
        (None, None) => {
            let ways = refusal.also_served_by.join(", or ");
            format!("{memory}, the request succeeds {ways}.")
        }
    }
}

/// The memory under which others were tried: of a limit of which only a range is known, one value.
fn memory_in_words(refusal: &Refusal) -> String {
    match refusal.memory_bytes.filter(|_| known_range(refusal).is_some()) {
        Some(memory) => format!("If the limit was {}", Size(memory)),
        None => "In the same memory".to_owned(),
    }
}

/// More would have been live than there was, or may have been.
fn too_much(refusal: &Refusal, needed: Bytes, memory: Bytes) -> String {
    let live = format!("With this request {} would be live", Size(needed));
    let available = match known_range(refusal) {
        Some(range) if needed <= most_in(&range) => {
            return format!(
                "{live}. Whether the limit allows that is unknown: it was {}.",
                range_in_words(&range)
            );
        }
        Some(_) => "limit".to_owned(),
        None => format!("{} available", Size(memory)),
    };
    let remedy = match refusal.free_beyond_limit_bytes {
        None => "Use less memory.".to_owned(),
        Some(free) => format!(
            "The driver had {} free: raise the limit (torch.cuda.set_per_process_memory_fraction), or use \
             less memory.",
            Size(free)
        ),
    };
    format!("{live}, more than the {available}: no allocator or setting can serve it. {remedy}")
}

/// Where the limit lies, if that is all that is known of it.
fn known_range(refusal: &Refusal) -> Option<Range<Bytes>> {
    refusal.memory_range_bytes.map(|(from, to)| from..to)
}

/// `a`, `a or b`, `a, b or c`.
fn listed(names: &[String]) -> Option<String> {
    let (last, rest) = names.split_last()?;
    Some(if rest.is_empty() { last.clone() } else { format!("{} or {last}", rest.join(", ")) })
}

/// Which card the job runs on, if that is known.
fn on_a_card(refusal: &Refusal) -> String {
    let Refusal { allocator, coverage, .. } = refusal;
    match &refusal.card {
        None if coverage.is_partial() => format!(
            "No card can be recommended: {} ({}).",
            coverage.reason(),
            coverage.cure().unwrap_or_default()
        ),
        Some((card, bytes)) => format!(
            "{}The smallest card that runs the whole job with {allocator} is the {card} ({} for the job).",
            with_expandable(refusal),
            Size(*bytes)
        ),
        None => match with_expandable(refusal).as_str() {
            "" => "No larger card of the catalogue fits it either.".to_owned(),
            sentence => sentence.trim_end().to_owned(),
        },
    }
}

/// The smaller card that runs the job with expandable segments, as a sentence with a blank behind it.
fn with_expandable(refusal: &Refusal) -> String {
    refusal.expandable_card.as_ref().map_or_else(String::new, |(card, bytes)| {
        format!(
            "With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, the whole job runs on the {card} \
             ({} for the job). ",
            Size(*bytes)
        )
    })
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
