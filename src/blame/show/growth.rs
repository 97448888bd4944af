//! Growth from step to step, as a table.

use super::{called_from, signed, subject};
use crate::blame::rows::with_own;
use crate::blame::{GrowthRow, Leftover, StepGrowth};
use crate::report::section::Section;
use crate::units::{Bytes, Count, Grouped, Size};

/// A headline, a table of the `top` first rows, and a sentence on the leaks.
pub fn growth_sections(growth: &StepGrowth, top: usize) -> Vec<Section> {
    let StepGrowth { file, device, steps, after, .. } = growth;
    if *steps <= *after {
        let few = too_few(growth);
        let text = format!("{file}, device {device}: leaks cannot be found: {few}.");
        return vec![Section::words(text)];
    }
    let later =
        if *after == 1 { "one step".to_owned() } else { format!("{} steps", Grouped(*after)) };
    let title = format!(
        "{file}, device {device}: {} steps; requested in one of them and still live {later} later",
        Grouped(*steps)
    );
    if growth.rows.is_empty() {
        return vec![Section::words(format!("{title}: nothing."))];
    }
    let heading = ["requested by", "kind", "live", "per step", "blocks", "in steps"];
    let rows = growth.rows.iter().take(top).map(row).collect();
    let mut parts = vec![Section::new(title, &heading, rows)];
    if let Some(more) = growth.rows.len().checked_sub(top).filter(|&more| more > 0) {
        parts.push(Section::words(format!("{}.", Count(more as u64, "more row"))));
    }
    parts.push(Section::words(verdict(growth)));
    parts
}

fn row(row: &GrowthRow) -> Vec<String> {
    let steps = match row.steps {
        (first, last) if first == last => Grouped(first).to_string(),
        (first, last) => format!("{} to {}", Grouped(first), Grouped(last)),
    };
    vec![
        with_own(&row.name, row.own.as_deref()),
        row.kind.name().to_owned(),
        Size(row.bytes).to_string(),
        signed(row.per_step_bytes.into()),
        Grouped(row.blocks).to_string(),
        steps,
    ]
}

fn too_few(growth: &StepGrowth) -> String {
    let (steps, least) = (Grouped(growth.steps), Grouped(growth.least_steps()));
    format!("{steps} of at least {least} training steps recorded")
}

fn verdict(growth: &StepGrowth) -> String {
    if growth.steps < growth.least_steps() {
        return format!("Leaks cannot be found: {}.", too_few(growth));
    }
    let leaks = || growth.rows.iter().filter(|row| row.kind == Leftover::Leak);
    let Some(first) = leaks().max_by_key(|row| row.per_step_bytes) else {
        return "No leak: nothing keeps growing to the last step.".to_owned();
    };
    let per_step: i64 = leaks().map(|row| row.per_step_bytes).sum();
    let sum = |bytes: fn(&GrowthRow) -> Bytes| leaks().map(bytes).sum::<Bytes>();
    let (bytes, kept) = (sum(|row| row.bytes), sum(|row| row.kept_bytes));
    let later = match bytes.saturating_sub(kept) {
        0 => String::new(),
        freed if freed == bytes => " All of it is freed before the recording ends.".to_owned(),
        freed => format!(" {} of it is freed before the recording ends.", Size(freed)),
    };
    let line = called_from(&subject(&first.name), first.own.as_deref());
    format!("Leak: {} per step, most of it requested by {line}.{later}", signed(per_step.into()))
}
