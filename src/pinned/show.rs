//! Pinned memory in words and tables.

use super::{PinnedComparison, PinnedRow, PinnedVerification};
use crate::alloc_conf::TorchVersion;
use crate::report::Look;
use crate::report::section::{self, Section};
use crate::report::table::plain;
use crate::run::RECORDED;
use crate::trace::{Bounded, Certainty};
use crate::units::{Bytes, Count, Grouped, Size};

/// A table for each file, and a sentence.
#[must_use]
pub fn comparisons(found: &[PinnedComparison], look: Look) -> String {
    let sections: Vec<Section> =
        found.iter().flat_map(|one| [table(one, |_| true), Section::words(verdict(one))]).collect();
    section::text(&sections, look)
}

/// What to set for each file, and what that pins.
#[must_use]
pub fn tunings(found: &[PinnedComparison], look: Look) -> String {
    let advice = |one: &PinnedComparison| {
        let best = one.best().map(|row| &row.settings);
        let is_shown = |row: &PinnedRow| row.since.is_none() || Some(&row.settings) == best;
        let name = one.torch_version.alloc_conf_name();
        let set = best.map(|settings| Section::words(format!("export {name}={settings}")));
        let rest = [Section::words(verdict(one)), table(one, is_shown)];
        set.into_iter().chain(rest).collect::<Vec<_>>()
    };
    section::text(&found.iter().flat_map(advice).collect::<Vec<_>>(), look)
}

fn table(one: &PinnedComparison, is_shown: impl Fn(&PinnedRow) -> bool) -> Section {
    let title = format!(
        "{}: pinned host memory of {}, simulated as in PyTorch {}",
        one.file,
        Count(one.requests, "request"),
        one.torch_version
    );
    let row = |row: &PinnedRow| {
        vec![
            row.settings.clone(),
            bounded(one, row).to_string(),
            times(row.pinned_peak_bytes, one),
            Grouped(row.pins).to_string(),
            Grouped(row.unpins).to_string(),
            row.since.map_or(String::new(), |since| since.to_string()),
        ]
    };
    let heading = ["setting", "peak pinned", "times the needed", "pins", "unpins", "from PyTorch"];
    Section::new(title, &heading, one.rows.iter().filter(|row| is_shown(row)).map(row).collect())
}

/// The peak of a row, and how it stands to the job's.
fn bounded(one: &PinnedComparison, row: &PinnedRow) -> Bounded {
    let certainty = one.coverage.of_a_run(row.settings == RECORDED);
    Bounded { bytes: row.pinned_peak_bytes, certainty }
}

/// How many times what was needed, or between which bounds; of nothing nothing is a multiple.
fn times(bytes: Bytes, one: &PinnedComparison) -> String {
    let times = |needed: Bytes| match needed {
        0 => "-".to_owned(),
        needed => format!("{:.2}", bytes as f64 / needed as f64),
    };
    match one.needed_peak_least_bytes {
        _ if one.needed_peak_bytes == 0 => times(0),
        None => times(one.needed_peak_bytes),
        Some(least) => format!("{} to {}", times(one.needed_peak_bytes), times(least)),
    }
}

fn verdict(one: &PinnedComparison) -> String {
    let (needed, certainty) = (Size(one.needed_peak_bytes), one.coverage.of_what_was_seen());
    let needed = match one.needed_peak_least_bytes.map(Size) {
        None => format!("{}{needed}", certainty.words()),
        Some(least) if certainty == Certainty::AtLeast => format!("at least {least}"),
        Some(least) => format!("from {least} to {needed}"),
    };
    let mut words = format!("The job needed {needed} at once");
    words += match one.needed_peak_least_bytes {
        None => ".",
        Some(_) => {
            ": the recording has rounded sizes. For exact ones record it again with \
             pinned_max_round_threshold_mb:0,pinned_max_cached_size_mb:0."
        }
    };
    words += &one.default_row().map_or(String::new(), |default| advice(one, default));
    if one.unseen_bytes > 0 {
        let unseen = Size(one.unseen_bytes);
        words += &format!(" {unseen} were pinned before the recording began, and are left out.");
    }
    if one.foreign_peak_bytes > 0 {
        words += &format!(" The program pinned {} more by itself.", Size(one.foreign_peak_bytes));
    }
    words
}

/// The setting that helps, in this version or a newer one.
fn advice(one: &PinnedComparison, default: &PinnedRow) -> String {
    let version = one.torch_version;
    let less = |best: &PinnedRow| {
        let (pinned, default) = (Size(best.pinned_peak_bytes), Size(default.pinned_peak_bytes));
        format!("{} pins {pinned} in place of {default}.", best.settings)
    };
    match (one.best(), one.best_in(TorchVersion::NEWEST)) {
        (Some(best), _) => format!(" {}={}", version.alloc_conf_name(), less(best)),
        (None, Some(later)) => {
            let since = later.since.unwrap_or(version);
            format!(" No setting of PyTorch {version} pins less. From {since} on, {}", less(later))
        }
        (None, None) => " No setting pins less than PyTorch's defaults.".to_owned(),
    }
}

/// A row for each file, the first differences, and a sentence.
#[must_use]
pub fn verifications(found: &[PinnedVerification], look: Look) -> String {
    let heading = ["file", "entries", "requests", "pinned for them", "left out", "differences"];
    let row = |one: &PinnedVerification| {
        let counts =
            [one.entries, one.requests, one.pins, one.foreign + one.unseen, one.differences];
        let counts = counts.iter().map(|&count| Grouped(count).to_string());
        std::iter::once(one.file.clone()).chain(counts).collect()
    };
    let heading = heading.map(str::to_owned).to_vec();
    let mut parts = vec![plain(heading, found.iter().map(row).collect(), look)];
    for one in found {
        parts.extend(one.first_differences.iter().take(5).map(|difference| {
            format!(
                "{}, entry {}: PyTorch {}; the model {}",
                one.file, difference.entry, difference.recorded, difference.model
            )
        }));
    }
    let (requests, differences) = found.iter().fold((0, 0), |(requests, differences), one| {
        (requests + one.requests, differences + one.differences)
    });
    parts.push(match differences {
        0 => format!(
            "Exact: all {} decisions about pinned memory were made again.",
            Grouped(requests)
        ),
        _ => format!(
            "Not exact: {} in {}.",
            Count(differences, "difference"),
            Count(requests, "decision")
        ),
    });
    parts.join("\n")
}
