//! Two peaks side by side, as a table.

use super::{percent, signed};
use crate::blame::{Change, Diff, DiffRow};
use crate::report::section::Section;
use crate::trace::{Bounded, Certainty, Coverage};
use crate::units::{Bytes, Grouped};

/// A headline and a table of the `top` rows that differ most.
pub fn diff_sections(diff: &Diff, top: usize) -> Vec<Section> {
    let renumbered = diff.renumbered();
    let is_changed = |(place, row): &(usize, &DiffRow)| {
        row.change != Change::Same && !renumbered.contains(place)
    };
    let changed: Vec<&DiffRow> =
        diff.rows.iter().enumerate().filter(is_changed).map(|(_, row)| row).collect();
    let mut parts = vec![Section::words(headline(diff))];
    parts.extend(cautions(diff).map(Section::words));
    if changed.is_empty() && renumbered.is_empty() {
        parts.push(Section::words("No row changed."));
        return parts;
    }
    let heading = [diff.by.name(), "change", "bytes", "before", "after", "blocks"];
    let mut rows: Vec<_> = changed.iter().take(top).map(|row| line(diff, row)).collect();
    let rest = changed.get(top..).unwrap_or_default();
    let mut add = |name: String, numbers: [String; 3]| {
        rows.push([&[name, String::new()], &numbers[..], &[String::new()]].concat());
    };
    let mut sum = |name: String, growth: i128, before: Bytes, after: Bytes| {
        add(name, figures(diff, growth, (before, after)));
    };
    if !rest.is_empty() {
        let growth = rest.iter().map(|row| row.growth()).sum();
        let (before, after) = sums(rest.iter().copied());
        sum(format!("{} more", Grouped(rest.len() as u64)), growth, before, after);
    }
    if !renumbered.is_empty() {
        let (before, after) = sums(renumbered.iter().map(|&place| &diff.rows[place]));
        let lines = Grouped(renumbered.len() as u64 / 2);
        sum(format!("{lines} on another line of the same function"), 0, before, after);
    }
    let same: Vec<&DiffRow> = diff.rows.iter().filter(|row| row.change == Change::Same).collect();
    if !same.is_empty() {
        let (before, after) = sums(same.iter().copied());
        sum(format!("{} unchanged", Grouped(same.len() as u64)), 0, before, after);
    }
    let [before, after] = peaks(diff, diff.live_bytes).map(|peak| peak.to_string());
    add("all".to_owned(), [growth(diff, diff.growth()), before, after]);
    parts.push(Section::new("", &heading, rows));
    parts
}

fn sums<'d>(rows: impl Iterator<Item = &'d DiffRow>) -> (Bytes, Bytes) {
    rows.fold((0, 0), |(before, after), row| (before + row.before.0, after + row.after.0))
}

/// What is not the whole job, a sentence for each recording.
fn cautions(diff: &Diff) -> impl Iterator<Item = String> {
    let files = diff.files.iter().zip(&diff.coverage);
    files.filter_map(|(file, coverage)| Some(format!("{file}: {}.", coverage.caution()?)))
}

/// Figures of the peaks, as a reader may take them for the jobs.
fn peaks(diff: &Diff, [before, after]: [Bytes; 2]) -> [Bounded; 2] {
    let [old, new] = diff.coverage.each_ref().map(Coverage::of_what_was_seen);
    [Bounded { bytes: before, certainty: old }, Bounded { bytes: after, certainty: new }]
}

/// How much a peak grew: a bound if one of the recordings is a part; `unknown` where a bound would say nothing.
fn growth(diff: &Diff, bytes: i128) -> String {
    match diff.coverage.each_ref().map(Coverage::is_partial) {
        [false, false] => signed(bytes),
        [false, true] if bytes > 0 => format!(">= {}", signed(bytes)),
        [true, false] => format!("<= {}", signed(bytes)),
        _ => "unknown".to_owned(),
    }
}

/// What a row grew by, and what it had: at the peak of a part, the job may have more or less of it.
fn figures(diff: &Diff, growth: i128, (before, after): (Bytes, Bytes)) -> [String; 3] {
    let [old, new] = diff.coverage.each_ref().map(|coverage| match coverage.is_partial() {
        true => Certainty::About,
        false => Certainty::Exact,
    });
    let of = |bytes, certainty| Bounded { bytes, certainty }.to_string();
    [old.max(new).sign().to_owned() + &signed(growth), of(before, old), of(after, new)]
}

fn line(diff: &Diff, row: &DiffRow) -> Vec<String> {
    let name = match &row.moved_from {
        Some(old) => format!("{} (was {})", row.name, old.split(' ').next().unwrap_or(old)),
        None => row.name.clone(),
    };
    let blocks = match (row.before.1, row.after.1) {
        (before, after) if before == after => Grouped(after).to_string(),
        (before, after) => format!("{} to {}", Grouped(before), Grouped(after)),
    };
    let [growth, before, after] = figures(diff, row.growth(), (row.before.0, row.after.0));
    vec![name, row.change.name().to_owned(), growth, before, after, blocks]
}

fn headline(diff: &Diff) -> String {
    let is_whole = !diff.coverage.iter().any(Coverage::is_partial);
    let share = match diff.growth() {
        0 if is_whole => "unchanged".to_owned(),
        bytes if is_whole => {
            let sign = if bytes < 0 { "-" } else { "+" };
            let share = Bytes::try_from(bytes.unsigned_abs()).unwrap_or(Bytes::MAX);
            format!("{}, {sign}{}", signed(bytes), percent(share, diff.live_bytes[0]))
        }
        bytes => format!("growth {}", growth(diff, bytes)),
    };
    let ([old, new], [before, after]) = (&diff.files, peaks(diff, diff.live_bytes));
    let mut text = format!("{old} to {new}: live peak {before} to {after} ({share})");
    if let [Some(before), Some(after)] = diff.reserved_bytes {
        let [before, after] = peaks(diff, [before, after]);
        text += &format!("; reserved {before} to {after}");
    }
    text
}
