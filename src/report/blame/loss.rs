//! Fragmentation by line: what is lost at the peak, to whom it is due, and what to do about it, in one sentence.

use super::{fitted, percent, subject};
use crate::metrics::{By, Cause, Loss};
use crate::report::section::Section;
use crate::report::table::Look;
use crate::units::{Bytes, Grouped, MIB, Size};

/// A headline, the request that forced the growth, a table with the `top` rows of each cause, and the sentence.
#[must_use]
pub fn loss_table(loss: &Loss, top: usize, look: Look) -> String {
    fitted(&loss_sections(loss, top), look)
}

/// The same, part by part.
#[must_use]
pub fn loss_sections(loss: &Loss, top: usize) -> Vec<Section> {
    let mut parts = vec![Section::words(headline(loss))];
    if let Some(growth) = &loss.growth {
        let whose = match loss.by {
            By::Size => String::new(),
            _ => format!(" asked for by {}", subject(&growth.name)),
        };
        let (asked, largest) = (Size(growth.requested_bytes), Size(growth.largest_free_bytes));
        parts.push(Section::words(format!(
            "It grew to that for {asked}{whose}; the largest free block then was {largest}."
        )));
    }
    if loss.lost_bytes > 0 {
        let heading = ["due to", "bytes", "share", "pieces", "largest"];
        parts.push(Section::new("", &heading, rows(loss, top)));
    }
    parts.push(Section::words(advice(loss)));
    parts
}

fn headline(loss: &Loss) -> String {
    let Loss { file, device, allocator, .. } = loss;
    let mut text = format!("{file}, device {device}: {allocator} holds most");
    if let Some(event) = loss.event {
        text += &format!(" at event {}", Grouped(event));
    }
    if let Some(step) = loss.step {
        text += &format!(" in step {}", Grouped(step));
    }
    let (reserved, live, lost) = (loss.reserved_bytes, loss.live_bytes, loss.lost_bytes);
    let share = percent(lost, reserved);
    text + &format!(": {} for {} live; {} ({share}) lost", Size(reserved), Size(live), Size(lost))
}

fn rows(loss: &Loss, top: usize) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let line = |name: String, bytes: Bytes, pieces: u64, largest: String| {
        let share = percent(bytes, loss.lost_bytes);
        vec![name, Size(bytes).to_string(), share, Grouped(pieces).to_string(), largest]
    };
    for cause in Cause::ALL.into_iter().filter(|&cause| loss.bytes(cause) > 0) {
        let of_cause: Vec<_> = loss.rows_of(cause).collect();
        let pieces = of_cause.iter().map(|row| row.pieces).sum();
        rows.push(line(cause.phrase().to_owned(), loss.bytes(cause), pieces, String::new()));
        for row in of_cause.iter().take(top) {
            let largest = Size(row.largest_bytes).to_string();
            rows.push(line(format!("  {}", row.name), row.bytes, row.pieces, largest));
        }
        if let Some(rest) = of_cause.get(top..).filter(|rest| !rest.is_empty()) {
            let bytes = rest.iter().map(|row| row.bytes).sum();
            let pieces = rest.iter().map(|row| row.pieces).sum();
            let name = format!("  {} more", Grouped(rest.len() as u64));
            rows.push(line(name, bytes, pieces, String::new()));
        }
    }
    let pieces = loss.rows.iter().map(|row| row.pieces).sum();
    rows.push(line("all".to_owned(), loss.lost_bytes, pieces, String::new()));
    rows
}

/// What a user could do about the largest cause, in one sentence.
#[must_use]
pub fn advice(loss: &Loss) -> String {
    let worst = Cause::ALL.into_iter().max_by_key(|&cause| loss.bytes(cause));
    let can_be_saved = loss.lost_bytes - loss.needed_later_bytes();
    let is_worth_it = |bytes: Bytes| bytes * 20 >= loss.reserved_bytes;
    if !is_worth_it(can_be_saved) {
        let (most, live) = (Size(can_be_saved), Size(loss.live_peak_bytes));
        return format!(
            "At most {most} can be saved, since up to {live} are live: leave it as it is."
        );
    }
    if loss.growth.is_none() {
        return from_the_beginning(loss);
    }
    let Some(cause) = worst.filter(|&cause| is_worth_it(loss.bytes(cause))) else {
        return "Less than 5 % is lost to any one cause: leave it as it is.".to_owned();
    };
    let (bytes, row) = (Size(loss.bytes(cause)), loss.rows_of(cause).next());
    let largest = Size(row.map_or(0, |row| row.bytes));
    let whose = of(loss.by, row.map_or("", |row| &row.name));
    let asker = loss.growth.as_ref().map_or("a request", |growth| &growth.name);
    let asker = of(loss.by, asker);
    let text = match cause {
        Cause::Rounding => format!(
            "{bytes} are rounding, {largest} of them for {whose}: ask there for fewer and larger \
             tensors"
        ),
        Cause::Remainder => format!(
            "{bytes} lie in holes next to blocks in use, {largest} of them next to those of {whose}: \
             ask for what lives long before what comes and goes, or free it before {asker} asks"
        ),
        Cause::TooSmall => format!(
            "{bytes} are free segments, {largest} of them left behind by {whose}, and too small \
             for what {asker} asks: keep sizes the same from step to step (pad to a few lengths)"
        ),
        Cause::SameStream => format!(
            "{bytes} are free segments that were large enough, {largest} of them left behind by \
             {whose}, and that the settings forbid to split: raise max_split_size_mb"
        ),
        Cause::OtherStream => format!(
            "{bytes} are cached for another stream, {largest} of them by {whose}: ask for that \
             memory on the stream that {asker} runs on"
        ),
        Cause::SmallPool => format!(
            "{bytes} lie in segments for small requests, {largest} of them next to or behind \
             {whose}: keep fewer small tensors there"
        ),
        Cause::WrongPool if is_for_small(loss) => format!(
            "{bytes} are cached in the pool for large requests, {largest} of them left behind by \
             {whose}, and {asker} asks for a small one: torch.cuda.empty_cache() before it gives \
             them back"
        ),
        Cause::WrongPool => format!(
            "{bytes} lie in another pool than {asker} asks, {largest} of them of {whose}: let both \
             share a pool"
        ),
    };
    text + &limit(loss) + &instead(loss)
}

/// Of memory that was held when the recording began, it is not known what for.
fn from_the_beginning(loss: &Loss) -> String {
    let lost = Size(loss.lost_bytes);
    let text = format!("{lost} were free from the beginning; what they were held for is unknown");
    text + &instead(loss).replacen("; or set", "; to hold less, set", 1)
}

fn is_for_small(loss: &Loss) -> bool {
    loss.growth.as_ref().is_some_and(|growth| growth.requested_bytes <= MIB)
}

/// How much of the loss can be saved at all.
fn limit(loss: &Loss) -> String {
    let needed = loss.needed_later_bytes();
    if needed * 20 < loss.lost_bytes {
        return String::new();
    }
    let (live, most) = (Size(loss.live_peak_bytes), Size(loss.lost_bytes - needed));
    format!(" (at most {most} of them can be saved: {live} were live at another moment)")
}

/// A name as the subject of a sentence.
fn of(by: By, name: &str) -> String {
    match by {
        By::Size => format!("requests of {name}"),
        _ => subject(name),
    }
}

/// What the setting would do that costs one line.
fn instead(loss: &Loss) -> String {
    match loss.expandable_bytes {
        Some(bytes) if bytes * 100 <= loss.reserved_bytes * 97 => {
            let (now, then) = (Size(loss.reserved_bytes), Size(bytes));
            format!("; or set expandable_segments:True, which would hold {then} in place of {now}.")
        }
        _ => ".".to_owned(),
    }
}
