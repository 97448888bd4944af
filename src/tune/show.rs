//! Advice: what to set, what that saves and costs, and what does harm.

use super::data::{Tried, Tuning};
use crate::plan::show::place;
use crate::report::section::Section;
use crate::sim::title_of;
use crate::trace::Bounded;
use crate::units::{Grouped, Nanos, Size};

/// Harmful settings that are shown, the worst first.
const MOST_WARNINGS: usize = 12;

/// The tables, what to paste, and the warnings.
pub fn sections(tuning: &Tuning) -> Vec<Section> {
    let mut sections = vec![figures(tuning), Section::words(advice(tuning))];
    let alone = harmful(&tuning.alone, &tuning.default);
    if !alone.is_empty() {
        let title = "Harmful here, alone instead of PyTorch's defaults:";
        sections.push(table(tuning, title, alone.iter().map(|tried| (tried.conf.clone(), *tried))));
    }
    let harmful_then = harmful(&tuning.beside_best, &tuning.best);
    if !harmful_then.is_empty() && !tuning.best.conf.is_empty() {
        let title = format!("Harmful as a change of {}:", tuning.best.conf);
        let change = |tried: &&Tried| change(&tuning.best, tried);
        sections.push(table(
            tuning,
            &title,
            harmful_then.iter().map(|tried| (change(tried), *tried)),
        ));
    }
    sections
}

/// In what a setting differs from another.
fn change(from: &Tried, to: &Tried) -> String {
    let (old, new) = (from.options(), to.options());
    let added = new.iter().filter(|option| !old.contains(option)).map(|o| format!("with {o}"));
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    let is_gone = |option: &&&str| new.iter().all(|other| name(other) != name(option));
    let gone = old.iter().filter(is_gone).map(|option| format!("without {option}"));
    added.chain(gone).collect::<Vec<_>>().join(", ")
}

/// The line to paste into a shell.
fn export_line(tuning: &Tuning) -> String {
    let (name, conf) = (tuning.variable, &tuning.best.conf);
    // Only lists have characters that a shell would take for its own.
    if conf.contains(['[', '>']) {
        format!("export {name}='{conf}'")
    } else {
        format!("export {name}={conf}")
    }
}

fn figures(tuning: &Tuning) -> Section {
    let memory = match tuning.device_memory_bytes {
        Some(memory) => format!("a device of {}", Size(memory)),
        None => "a device whose memory never runs out".to_owned(),
    };
    let title = format!(
        "{}: {} settings tried on {memory}; driver time by profile {}",
        title_of(&tuning.file),
        Grouped(tuning.tried.len() as u64),
        tuning.profile
    );
    let conf = &tuning.recorded.conf;
    // Other settings are tried at the addresses that the driver gives them.
    let at = if conf.is_empty() { " at the recorded addresses" } else { "" };
    let recorded = format!("as recorded ({}{at})", name(conf));
    let mut rows = vec![(recorded, &tuning.recorded), (name(""), &tuning.default)];
    if !tuning.best.conf.is_empty() {
        rows.push((tuning.best.conf.clone(), &tuning.best));
    }
    table(tuning, &title, rows)
}

fn table<'a>(
    tuning: &Tuning,
    title: &str,
    rows: impl IntoIterator<Item = (String, &'a Tried)>,
) -> Section {
    let certainty = tuning.coverage.of_a_run(false);
    let rows: Vec<(String, &Tried)> = rows.into_iter().collect();
    let mut heading =
        vec!["setting", "peak reserved", "OOMs", "retries", "driver calls", "driver time"];
    // A share of the run's length, where that is known and a GPU's.
    let has_length = rows.iter().any(|(_, tried)| tried.predicted_driver_share.is_some());
    heading.extend(has_length.then_some("of run"));
    let row = |(name, tried): (String, &Tried)| {
        let share = tried.predicted_driver_share;
        let share = share.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", 100.0 * share));
        let mut cells = vec![
            name,
            Bounded { bytes: tried.reserved_peak_bytes, certainty }.to_string(),
            Grouped(tried.oom_count).to_string(),
            Grouped(tried.alloc_retries).to_string(),
            Grouped(tried.device_calls).to_string(),
            Nanos(tried.predicted_driver_ns as f64).to_string(),
        ];
        cells.extend(has_length.then_some(share));
        cells
    };
    Section::new(title, &heading, rows.into_iter().map(row).collect())
}

fn advice(tuning: &Tuning) -> String {
    let (best, default) = (&tuning.best, &tuning.default);
    if best.oom_count > 0 {
        let place = best.shortage.map(place).unwrap_or_default();
        return format!("No setting helps: the best of them still runs out of memory in {place}.");
    }
    if best.conf.is_empty() {
        let known = match tuning.verdict() {
            Some(_) => "No setting helps: PyTorch's defaults are the best here.",
            None => {
                "No setting is known to help: PyTorch's defaults are the best for what was recorded."
            }
        };
        return format!("{known}{}", doubt(tuning));
    }
    let gain = match (default.oom_count, default.shortage) {
        (0, _) => {
            let saved = default.reserved_peak_bytes.saturating_sub(best.reserved_peak_bytes);
            let share = 100.0 * saved as f64 / default.reserved_peak_bytes.max(1) as f64;
            format!("saves {} ({share:.0} %) of PyTorch's defaults", Size(saved))
        }
        (_, shortage) => format!(
            "serves all that was recorded, where PyTorch's defaults run out of memory in {}",
            shortage.map(place).unwrap_or_default()
        ),
    };
    let line = export_line(tuning);
    let time = |tried: &Tried| Nanos(tried.predicted_driver_ns as f64);
    format!(
        "{line}\n\nIt {gain}; it takes {} driver calls instead of {}, {} in them instead of {} (predicted).{}",
        Grouped(best.device_calls),
        Grouped(default.device_calls),
        time(best),
        time(default),
        doubt(tuning)
    )
}

/// What a recording that shows only a part of the job leaves open.
fn doubt(tuning: &Tuning) -> String {
    match tuning.coverage.is_partial() {
        true => {
            format!(" Whether the whole job runs is unknown: {}.", tuning.coverage.reason())
        }
        false => String::new(),
    }
}

/// The settings that do worse than `reference`, the worst first.
fn harmful<'a>(tried: &'a [Tried], reference: &Tried) -> Vec<&'a Tried> {
    let mut worse: Vec<&Tried> = tried.iter().filter(|t| t.is_worse_than(reference)).collect();
    worse.sort_by_key(|t| std::cmp::Reverse((t.oom_count, t.reserved_peak_bytes)));
    worse.truncate(MOST_WARNINGS);
    worse
}

fn name(conf: &str) -> String {
    if conf.is_empty() { "PyTorch's defaults".to_owned() } else { conf.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Coverage, Gap};

    #[test]
    fn a_part_of_a_job_promises_nothing_of_the_whole() {
        let tried =
            |conf: &str, oom_count| Tried { conf: conf.to_owned(), oom_count, ..Tried::default() };
        let tuning = |coverage| Tuning {
            coverage,
            default: tried("", 1),
            best: tried("expandable_segments:True", 0),
            ..Tuning::default()
        };
        let whole = advice(&tuning(Coverage::default()));
        assert!(whole.contains("serves all that was recorded") && !whole.contains("unknown"));
        let gap = Gap::StartedLate { live: 1, held: 1 };
        let part = advice(&tuning(Coverage::new(vec![gap])));
        assert!(part.contains("Whether the whole job runs is unknown: "), "{part}");
    }
}
