//! Fragmentation by line: what is wasted at the peak, by whom, and what to do about it.

use super::{is_no_request, percent, subject};
use crate::blame::{By, Emptied, Loss};
use crate::report::section::Section;
use crate::run::Cause;
use crate::trace::Bounded;
use crate::units::{Bytes, Grouped, MIB, Size};

/// A headline, the request that forced the growth, a table with the `top` rows of each cause, and the sentence.
pub fn loss_sections(loss: &Loss, top: usize) -> Vec<Section> {
    let mut parts = vec![Section::words(headline(loss))];
    if let Some(growth) = &loss.growth {
        let whose = match loss.by {
            By::Size => String::new(),
            _ => format!(" by {}", subject(&growth.name)),
        };
        let (requested, largest) = (Size(growth.requested_bytes), Size(growth.largest_free_bytes));
        parts.push(Section::words(format!(
            "It last grew for a request of {requested}{whose}. The largest free block was then {largest}."
        )));
    }
    if loss.lost_bytes > 0 {
        let heading = ["due to", "bytes", "share", "pieces", "largest"];
        parts.push(Section::new("", &heading, rows(loss, top)));
    }
    parts.push(Section::words(advice(loss)));
    parts
}

/// What a run held at most, as a reader may take it.
fn bounded(loss: &Loss, bytes: Bytes) -> Bounded {
    Bounded { bytes, certainty: loss.coverage.of_a_run(false) }
}

fn headline(loss: &Loss) -> String {
    let Loss { file, device, allocator, .. } = loss;
    let mut text = format!("{file}, device {device}: {allocator} reserves most");
    if let Some(step) = loss.step {
        text += &format!(" in step {}", Grouped(step));
    }
    if let Some(event) = loss.event {
        text += &format!(" (event {})", Grouped(event));
    }
    let (reserved, live, lost) = (loss.reserved_bytes, loss.live_bytes, loss.lost_bytes);
    let share = percent(lost, reserved);
    let reserved = bounded(loss, reserved);
    text + &format!(": {reserved} for {} live, {} ({share}) wasted", Size(live), Size(lost))
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

/// What a user could do about the largest cause.
pub fn advice(loss: &Loss) -> String {
    let can_be_saved = loss.savable_bytes();
    if !loss.is_worth_it(can_be_saved) {
        let (most, live) = (Size(can_be_saved), Size(loss.live_peak_bytes));
        return format!(
            "Nothing to gain: up to {live} are live at another moment, so at most {most} can be saved."
        );
    }
    if loss.growth.is_none() {
        let lost = Size(loss.lost_bytes);
        let instead = instead(loss, "Set").unwrap_or_default();
        return format!(
            "{lost} was free when the recording started; why it was reserved is unknown.{instead}"
        );
    }
    let Some(cause) = loss.cause_worth_a_change() else {
        return "Nothing to gain: no single cause wastes 5 %.".to_owned();
    };
    let limit = match cause {
        Cause::WrongPool if is_for_small(loss) => emptied(loss),
        _ => limit(loss),
    };
    of_cause(loss, cause) + &limit + &instead(loss, "Or set").unwrap_or_default()
}

/// What is wasted for a cause, by whom, and what would change that.
fn of_cause(loss: &Loss, cause: Cause) -> String {
    let (bytes, row) = (Size(loss.bytes(cause)), loss.rows_of(cause).next());
    let largest = Size(row.map_or(0, |row| row.bytes));
    let name = row.map_or("", |row| &row.name);
    let (whose, blocks) = match loss.by {
        By::Size if !is_no_request(name) => {
            (format!("requests of {name}"), format!("blocks of {name}"))
        }
        _ => (subject(name), format!("those of {}", subject(name))),
    };
    let next = next(loss);
    match cause {
        Cause::Rounding => format!(
            "Rounding wastes {bytes}, {largest} of it for {whose}. Request fewer and larger tensors \
             there."
        ),
        Cause::Remainder => format!(
            "Holes next to blocks in use waste {bytes}, {largest} of it next to {blocks}. Allocate \
             long-lived tensors first, or free them before {next} {}.",
            if loss.by == By::Size { "comes" } else { "runs" }
        ),
        Cause::TooSmall => format!(
            "Free segments waste {bytes}, {largest} of it left by {whose}. They are too small for \
             {next}. Keep sizes the same from step to step (pad to a few lengths)."
        ),
        Cause::SameStream => format!(
            "Free segments waste {bytes}, {largest} of it left by {whose}. They are large enough, but \
             max_split_size_mb forbids splitting them. Raise it."
        ),
        Cause::OtherStream => format!(
            "{bytes} is cached for another stream, {largest} of it by {whose}. Allocate it on the \
             stream that {next} uses."
        ),
        Cause::SmallPool => format!(
            "Segments for small requests waste {bytes}, {largest} of it due to {whose}. Keep fewer \
             small tensors there."
        ),
        Cause::WrongPool if is_for_small(loss) => format!(
            "{bytes} is cached in the pool for large requests, {largest} of it left by {whose}, and \
             {next} needs a small block."
        ),
        Cause::WrongPool => format!(
            "{bytes} is cached in a different pool from the one {next} uses, {largest} of it by \
             {whose}. Let both share a pool."
        ),
    }
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
    format!(" At most {most} can be saved, since {live} are live at another moment.")
}

/// The request that forced the growth, as the subject of a sentence.
fn next(loss: &Loss) -> String {
    match &loss.growth {
        None => "a request".to_owned(),
        Some(growth) if loss.by == By::Size => format!("a request of {}", growth.name),
        Some(growth) => subject(&growth.name),
    }
}

/// When to empty the cache, if that was seen to save something.
fn emptied(loss: &Loss) -> String {
    let saved = |reserved: Bytes| loss.reserved_bytes.saturating_sub(reserved);
    let found = loss.emptied.filter(|emptied| loss.is_worth_it(saved(emptied.reserved_bytes)));
    let Some(Emptied { event, step, reserved_bytes }) = found else { return String::new() };
    let step = step.map_or(String::new(), |step| format!("in step {}, ", Grouped(step)));
    let (now, then) = (bounded(loss, loss.reserved_bytes), bounded(loss, reserved_bytes));
    format!(
        " Call torch.cuda.empty_cache() once that is free ({step}after event {}): {then} reserved \
         instead of {now}.",
        Grouped(event)
    )
}

/// What the setting would do that costs one line, as a sentence that begins with `verb`, or that it is unknown.
fn instead(loss: &Loss, verb: &str) -> Option<String> {
    let unknown = loss.unknown.as_ref();
    let unknown = unknown.map(|_| " What a setting would save is unknown.".to_owned());
    let saves = |&bytes: &Bytes| bytes * 100 <= loss.anew_bytes * 97;
    unknown.or_else(|| {
        let then = bounded(loss, loss.expandable_bytes.filter(saves)?);
        let now = bounded(loss, loss.anew_bytes);
        Some(format!(" {verb} expandable_segments:True: {then} reserved instead of {now}."))
    })
}
