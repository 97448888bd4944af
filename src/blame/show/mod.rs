//! Blame tables: who holds the live bytes, on the terminal, as CSV and for flame graphs.

mod diff;
mod fit;
mod flame;
mod growth;
mod loss;
mod message;
mod refusal;

use std::io::Write;

use super::loss::{NEVER_USED, STITCHED};
use super::{BEFORE, Blame, BlameRow, JobBlame, NO_STACK, RankDifference};
use crate::report::parquet::Value;
use crate::report::section::{self, Section};
use crate::report::{Column, Look, Result, write_rows};
use crate::sim::title_of;
use crate::trace::{Bounded, Certainty};
use crate::units::{Bytes, Count, Grouped, Size, grouped};
pub use diff::diff_sections;
pub use fit::cut;
pub use flame::{write_flamegraph, write_folded};
pub use growth::growth_sections;
pub use loss::{advice, loss_sections};
pub use message::message_sections;
pub use refusal::refusal_sections;

/// A headline, and a table of the `top` largest rows, the rest as one, and all.
pub fn sections(blame: &Blame, top: usize) -> Vec<Section> {
    let heading = [blame.by.name(), "bytes", "share", "blocks", "since step"];
    let share = |bytes: Bytes| percent(bytes, blame.live_bytes);
    let line = |name: String, (bytes, blocks): (Bytes, u64), step: String| {
        vec![name, Size(bytes).to_string(), share(bytes), grouped(blocks), step]
    };
    let of_row = |row: &BlameRow| {
        let step = row.oldest_step.map_or("-".to_owned(), grouped);
        line(row.with_own(), (row.bytes, row.blocks), step)
    };
    let mut rows: Vec<Vec<String>> = blame.rows.iter().take(top).map(of_row).collect();
    let rest = blame.rows.get(top..).unwrap_or_default();
    if !rest.is_empty() {
        let name = format!("{} more", Grouped(rest.len() as u64));
        rows.push(line(name, totals(rest), String::new()));
    }
    rows.push(line("all".to_owned(), totals(&blame.rows), String::new()));
    let mut parts = vec![Section::new(headline(blame), &heading, rows)];
    if blame.before_bytes > 0 && blame.before_bytes < blame.live_bytes {
        let (bytes, share) = (Size(blame.before_bytes), share(blame.before_bytes));
        parts.push(Section::words(format!(
            "{bytes} ({share}) was live before the recording started."
        )));
    }
    if blame.stackless_bytes > 0
        && blame.by.needs_stacks()
        && blame.stackless_bytes < blame.live_bytes
    {
        let (bytes, share) = (Size(blame.stackless_bytes), share(blame.stackless_bytes));
        parts.push(Section::words(format!("{bytes} ({share}) has no Python stack.")));
    }
    parts
}

/// One line: the file, the moment, how much is live.
pub fn headline(blame: &Blame) -> String {
    format!("{}, device {}: {}", blame.file, blame.device, moment(blame))
}

/// Two lines for a picture: the recording, and the moment.
pub fn captions(blame: &Blame) -> [String; 2] {
    let live = live(blame);
    [format!("{}: {live} live, by call stack", title_of(&blame.file)), moment(blame)]
}

fn moment(blame: &Blame) -> String {
    let event = blame.event.map(|event| format!("event {}", Grouped(event)));
    let step = blame.step.map(|step| format!("in step {}", Grouped(step)));
    let place = [event, step].into_iter().flatten();
    // What names an event or a step says it once.
    let place: Vec<String> = place.filter(|part| !blame.at.ends_with(part)).collect();
    let mut text = blame.at.clone();
    if !place.is_empty() {
        text += &format!(", {}", place.join(" "));
    }
    let (_, blocks) = totals(&blame.rows);
    text += &format!("; {} live in {}", live(blame), Count(blocks, "block"));
    if let Some(bytes) = blame.reserved_bytes {
        text += &format!(", {} reserved", Bounded { bytes, certainty: blame.certainty });
    }
    text
}

/// What is live. At the peak of an allocator the doubt is about what it reserves.
fn live(blame: &Blame) -> Bounded {
    let certainty = match blame.allocator {
        None => blame.certainty,
        Some(_) => Certainty::Exact,
    };
    Bounded { bytes: blame.live_bytes, certainty }
}

/// The worst rank's table, and what differs between the ranks.
pub fn job_sections(job: &JobBlame, top: usize) -> Vec<Section> {
    let Some(worst) = job.worst() else { return Vec::new() };
    let rank = worst.rank.map_or("?".to_owned(), |rank| rank.to_string());
    let ranks = match job.ranks.len() as u64 {
        1 => "1 rank".to_owned(),
        count => format!("{} ranks, each at its own moment", Grouped(count)),
    };
    let title = format!("{}: {ranks}; rank {rank} has most live", job.name);
    let differences = job.differences();
    let mut parts = vec![Section::words(title)];
    parts.extend(sections(&worst.blame, top));
    if differences.is_empty() {
        parts.push(Section::words("All ranks have the same rows."));
        return parts;
    }
    let line = |row: &RankDifference| {
        let cell = |(bytes, rank): (Bytes, u64)| format!("{} (rank {rank})", Size(bytes));
        let apart = Size(row.most.0 - row.least.0).to_string();
        vec![row.name.clone(), apart, cell(row.least), cell(row.most)]
    };
    let shown = differences.iter().take(top);
    let title = format!("Rows that differ between ranks: {}", Grouped(differences.len() as u64));
    let heading = [worst.blame.by.name(), "differs by", "least", "most"];
    parts.push(Section::new(title, &heading, shown.map(line).collect()));
    parts
}

fn columns<'a>() -> [Column<(&'a Blame, &'a BlameRow)>; 9] {
    [
        ("file", |(blame, _)| Value::text(&blame.file)),
        ("device", |(blame, _)| Value::whole(u64::from(blame.device))),
        ("at", |(blame, _)| Value::text(&blame.at)),
        ("event", |(blame, _)| Value::whole(blame.event)),
        ("by", |(blame, _)| Value::text(blame.by.name())),
        ("name", |(_, row)| Value::text(&row.name)),
        ("bytes", |(_, row)| Value::whole(row.bytes)),
        ("blocks", |(_, row)| Value::whole(row.blocks)),
        ("oldest_step", |(_, row)| Value::whole(row.oldest_step)),
    ]
}

/// Every row of every table, numbers bare.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_csv(blames: &[&Blame], out: &mut dyn Write) -> Result<()> {
    let rows = blames.iter().flat_map(|&blame| blame.rows.iter().map(move |row| (blame, row)));
    write_rows(&columns(), rows, out)
}

/// The sections as text. The first column of each table holds names, cut so that it fits the terminal.
pub fn text(sections: &[Section], look: Look) -> String {
    let fitted = |section: &Section| {
        let mut section = section.clone();
        fit::fit(&mut section, look);
        section
    };
    section::text(&sections.iter().map(fitted).collect::<Vec<_>>(), look)
}

/// A name as the subject of a sentence.
pub(super) fn subject(name: &str) -> String {
    match name {
        NO_STACK => "the backward pass (no Python stack)".to_owned(),
        _ if is_no_request(name) => format!("memory {name}"),
        _ => name.to_owned(),
    }
}

/// Whether a row is of memory whose requests are not known, by line or by size.
pub(super) fn is_no_request(name: &str) -> bool {
    [BEFORE, NEVER_USED, STITCHED].contains(&name)
}

pub(super) fn percent(part: Bytes, whole: Bytes) -> String {
    format!("{:.1} %", if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 })
}

fn totals(rows: &[BlameRow]) -> (Bytes, u64) {
    rows.iter().fold((0, 0), |(bytes, blocks), row| (bytes + row.bytes, blocks + row.blocks))
}

/// A change of bytes, with its sign.
fn signed(bytes: i128) -> String {
    let size = Size(Bytes::try_from(bytes.unsigned_abs()).unwrap_or(Bytes::MAX));
    match bytes {
        0 => "0 B".to_owned(),
        bytes => format!("{}{size}", if bytes < 0 { "-" } else { "+" }),
    }
}

/// A line with the user's own line that called it: `loss_utils.py:40 f (called from train.py:12 g)`.
pub(crate) fn called_from(line: &str, own: Option<&str>) -> String {
    match own {
        Some(own) => format!("{line} (called from {own})"),
        None => line.to_owned(),
    }
}
