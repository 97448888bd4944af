//! Two peaks side by side, as a table.

use super::{fitted, percent, signed};
use crate::blame::data::{Change, Diff, DiffRow};
use crate::report::Look;
use crate::report::section::Section;
use crate::units::{Bytes, Grouped, Size};

/// A headline and a table of the `top` rows that differ most.
pub fn diff_table(diff: &Diff, top: usize, look: Look) -> String {
    fitted(&diff_sections(diff, top), look)
}

/// The same, part by part.
pub fn diff_sections(diff: &Diff, top: usize) -> Vec<Section> {
    let renumbered = diff.renumbered();
    let is_changed = |(place, row): &(usize, &DiffRow)| {
        row.change != Change::Same && !renumbered.contains(place)
    };
    let changed: Vec<&DiffRow> =
        diff.rows.iter().enumerate().filter(is_changed).map(|(_, row)| row).collect();
    let mut parts = vec![Section::words(headline(diff))];
    if changed.is_empty() && renumbered.is_empty() {
        parts.push(Section::words("No row changed."));
        return parts;
    }
    let heading = [diff.by.name(), "change", "bytes", "before", "after", "blocks"];
    let mut rows: Vec<_> = changed.iter().take(top).map(|row| line(row)).collect();
    let rest = changed.get(top..).unwrap_or_default();
    let mut sum = |name: String, growth: i128, before: Bytes, after: Bytes| {
        let numbers = [signed(growth), Size(before).to_string(), Size(after).to_string()];
        rows.push([&[name, String::new()], &numbers[..], &[String::new()]].concat());
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
    sum("all".to_owned(), diff.growth(), diff.live_bytes[0], diff.live_bytes[1]);
    parts.push(Section::new("", &heading, rows));
    parts
}

fn sums<'d>(rows: impl Iterator<Item = &'d DiffRow>) -> (Bytes, Bytes) {
    rows.fold((0, 0), |(before, after), row| (before + row.before.0, after + row.after.0))
}

fn line(row: &DiffRow) -> Vec<String> {
    let name = match &row.moved_from {
        Some(old) => format!("{} (was {})", row.name, old.split(' ').next().unwrap_or(old)),
        None => row.name.clone(),
    };
    let blocks = match (row.before.1, row.after.1) {
        (before, after) if before == after => Grouped(after).to_string(),
        (before, after) => format!("{} to {}", Grouped(before), Grouped(after)),
    };
    let (before, after) = (Size(row.before.0).to_string(), Size(row.after.0).to_string());
    vec![name, row.change.name().to_owned(), signed(row.growth()), before, after, blocks]
}

fn headline(diff: &Diff) -> String {
    let [before, after] = diff.live_bytes;
    let share = match diff.growth() {
        0 => "unchanged".to_owned(),
        growth => {
            let sign = if growth < 0 { "-" } else { "+" };
            let share =
                percent(Bytes::try_from(growth.unsigned_abs()).unwrap_or(Bytes::MAX), before);
            format!("{}, {sign}{share}", signed(growth))
        }
    };
    let [old, new] = &diff.files;
    let mut text =
        format!("{old} to {new}: live peak {} to {} ({share})", Size(before), Size(after));
    if let [Some(before), Some(after)] = diff.reserved_bytes {
        text += &format!("; reserved {} to {}", Size(before), Size(after));
    }
    text
}
