//! Fragmentation by line: what is lost at the peak, to whom it is due, and what to do about it, in one sentence.

use super::{named, percent};
use crate::metrics::{Cause, Loss};
use crate::report::table::Look;
use crate::units::{Bytes, Grouped, Size};

/// A headline, the request that forced the growth, a table with the `top` rows of each cause, and the sentence.
#[must_use]
pub fn loss_table(loss: &Loss, top: usize, look: Look) -> String {
    let mut parts = vec![headline(loss)];
    if let Some(growth) = &loss.growth {
        parts.push(format!(
            "It grew to that for {} asked for by {}; the largest free block then was {}.",
            Size(growth.requested_bytes),
            growth.name,
            Size(growth.largest_free_bytes)
        ));
    }
    if loss.lost_bytes > 0 {
        parts.push(named(
            "due to",
            &["bytes", "share", "pieces", "largest"],
            rows(loss, top),
            look,
        ));
    }
    parts.push(advice(loss));
    parts.join("\n\n")
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

fn rows(loss: &Loss, top: usize) -> Vec<(String, Vec<String>)> {
    let mut rows = Vec::new();
    let cells = |bytes: Bytes, pieces: u64, largest: String| {
        let share = percent(bytes, loss.lost_bytes);
        vec![Size(bytes).to_string(), share, Grouped(pieces).to_string(), largest]
    };
    for cause in Cause::ALL.into_iter().filter(|&cause| loss.bytes(cause) > 0) {
        let of_cause: Vec<_> = loss.rows_of(cause).collect();
        let pieces = of_cause.iter().map(|row| row.pieces).sum();
        let title = format!("{}: {}", cause.name(), cause.meaning());
        rows.push((title, cells(loss.bytes(cause), pieces, String::new())));
        for row in of_cause.iter().take(top) {
            let largest = Size(row.largest_bytes).to_string();
            rows.push((format!("  {}", row.name), cells(row.bytes, row.pieces, largest)));
        }
        if let Some(rest) = of_cause.get(top..).filter(|rest| !rest.is_empty()) {
            let bytes = rest.iter().map(|row| row.bytes).sum();
            let pieces = rest.iter().map(|row| row.pieces).sum();
            let name = format!("  {} more", Grouped(rest.len() as u64));
            rows.push((name, cells(bytes, pieces, String::new())));
        }
    }
    let pieces = loss.rows.iter().map(|row| row.pieces).sum();
    rows.push(("all".to_owned(), cells(loss.lost_bytes, pieces, String::new())));
    rows
}

/// What a user could do about the largest cause, in one sentence.
#[must_use]
pub fn advice(loss: &Loss) -> String {
    let worst = Cause::ALL.into_iter().max_by_key(|&cause| loss.bytes(cause));
    let Some(cause) = worst.filter(|&cause| loss.bytes(cause) * 20 >= loss.reserved_bytes) else {
        return "Less than 5 % is lost to any one cause: there is nothing to gain here.".to_owned();
    };
    let (bytes, row) = (Size(loss.bytes(cause)), loss.rows_of(cause).next());
    let name = row.map_or("", |row| &row.name);
    let (whose, asker) = (name, loss.growth.as_ref().map_or("a request", |growth| &growth.name));
    let text = match cause {
        Cause::Rounding => format!(
            "{bytes} are rounding, most of it for {whose}: ask there for fewer and larger tensors"
        ),
        Cause::Remainder => format!(
            "{bytes} lie in holes beside blocks in use, most of it beside those of {whose}: ask for \
             what lives long before what comes and goes, or free it before {asker} asks"
        ),
        Cause::TooSmall => format!(
            "{bytes} are free segments, most of it left behind by {whose}, and too small for what \
             {asker} asks: keep sizes the same from step to step (pad to a few lengths)"
        ),
        Cause::SameStream => format!(
            "{bytes} are free segments that were large enough, most of it left behind by {whose}, and \
             that the settings forbid to split: raise max_split_size_mb"
        ),
        Cause::OtherStream => format!(
            "{bytes} are cached for another stream, most of it by {whose}: ask for that memory on \
             the stream that {asker} runs on"
        ),
        Cause::SmallPool => format!(
            "{bytes} lie in segments for small requests, most of it beside or behind {whose}: keep \
             fewer small tensors there"
        ),
        Cause::WrongPool => format!(
            "{bytes} lie in another pool than {asker} asks, most of it of {whose}: let both share a \
             pool"
        ),
    };
    text + &instead(loss)
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
