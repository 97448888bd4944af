//! What a column of runs is, and every column that there is: tables, CSV, JSON and Markdown are all made from these.

use crate::run::RunSummary;
use crate::units::{Grouped, Nanos, Size};

/// One run in a table, and the run that it is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The run.
    pub run: &'a RunSummary,
    /// The run that it is compared with, which may be the same one.
    pub reference: Option<&'a RunSummary>,
}

/// What a column's numbers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes; may be negative.
    Bytes,
    /// Bytes of a peak, which may be larger where the recording is not the whole job.
    Peak,
    /// A share of one, shown in percent.
    Share,
    /// A number of things.
    Count,
    /// Nanoseconds.
    Nanos,
}

/// Which numbers in a column are good ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Higher ones.
    Higher,
    /// Lower ones.
    Lower,
    /// None at all: any is an alarm.
    Zero,
    /// It says nothing about the allocator.
    Neither,
}

/// The runs that have a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// All.
    Always,
    /// Those whose driver calls were priced.
    Priced,
    /// Those, if the recording has times.
    Timed,
}

/// The tables that show a column. Data (CSV, JSON) has all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// All.
    Everywhere,
    /// Not the page, where another column says the same.
    NotOnPage,
    /// The page only where a number is not zero, as it would only make the table wider.
    OnPageIfAny,
    /// The terminal's with `--details`.
    Details,
}

/// One column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Heading for people.
    pub name: &'static str,
    /// Heading for programs, with the unit.
    pub key: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Which numbers are good.
    pub better: Better,
    /// The runs that have it.
    pub when: When,
    /// The tables that show it.
    pub tables: Tables,
    /// The number, where there is one. Bytes and counts of real runs are far below 2^53, so that they are exact.
    pub get: fn(&Row<'_>) -> Option<f64>,
}

/// The columns that a narrow terminal drops, by their keys; the first goes first.
const DROPPED: &[&str] = &[
    "fragmentation",
    "host_ns_per_event",
    "saved_share",
    "predicted_driver_share",
    "alloc_retries",
    "active_peak_bytes",
    "device_calls",
    "oom_count",
    "predicted_driver_ns",
    "saved_bytes",
    "utilization",
    "reserved_peak_bytes",
];

/// A column as most are: of every run, in every table.
const fn column(
    name: &'static str,
    key: &'static str,
    unit: Unit,
    better: Better,
    get: fn(&Row<'_>) -> Option<f64>,
) -> Column {
    Column { name, key, unit, better, when: When::Always, tables: Tables::Everywhere, get }
}

/// The columns of every run, in the order of all tables. To add a metric, add its line here.
pub(super) const COLUMNS: &[Column] = &[
    column("peak reserved", "reserved_peak_bytes", Unit::Peak, Better::Lower, |row| {
        Some(row.run.reserved_peak_bytes as f64)
    }),
    column("peak active", "active_peak_bytes", Unit::Peak, Better::Neither, |row| {
        Some(row.run.active_peak_bytes as f64)
    }),
    column("utilization", "utilization", Unit::Share, Better::Higher, |row| {
        Some(row.run.utilization)
    }),
    column("fragmentation", "fragmentation", Unit::Share, Better::Lower, |row| {
        Some(row.run.fragmentation)
    })
    .shown_in(Tables::NotOnPage),
    column("saved", "saved_bytes", Unit::Bytes, Better::Higher, |row| row.saved()),
    column("saved %", "saved_share", Unit::Share, Better::Higher, |row| {
        let reference = row.reference?.reserved_peak_bytes as f64;
        row.saved().filter(|_| reference > 0.0).map(|saved| saved / reference)
    }),
    column("OOMs", "oom_count", Unit::Count, Better::Zero, |row| Some(row.run.oom_count as f64))
        .shown_in(Tables::OnPageIfAny),
    column("retries", "alloc_retries", Unit::Count, Better::Lower, |row| {
        row.of_allocator(row.run.alloc_retries as f64)
    })
    .shown_in(Tables::OnPageIfAny),
    column("driver calls", "device_calls", Unit::Count, Better::Lower, |row| {
        row.of_allocator(row.run.device_calls.total() as f64)
    }),
    column("host/event", "host_ns_per_event", Unit::Nanos, Better::Lower, |row| {
        row.of_allocator(row.run.host_ns_per_event()?)
    })
    .shown_in(Tables::Details),
    column("driver time", "predicted_driver_ns", Unit::Nanos, Better::Lower, |row| {
        row.of_allocator(row.run.predicted_driver_ns()? as f64)
    })
    .when(When::Priced),
    column("of run", "predicted_driver_share", Unit::Share, Better::Lower, |row| {
        row.of_allocator(row.run.prices.as_ref()?.share()?)
    })
    .when(When::Timed),
];

impl Column {
    const fn when(self, when: When) -> Self {
        Self { when, ..self }
    }

    const fn shown_in(self, tables: Tables) -> Self {
        Self { tables, ..self }
    }

    /// Whether it tells of the simulator itself, and of no allocator: for `--details`.
    pub fn is_detail(&self) -> bool {
        self.tables == Tables::Details
    }

    /// How many columns a narrow terminal drops before this one.
    pub fn dropped(&self) -> usize {
        DROPPED.iter().position(|&key| key == self.key).unwrap_or(DROPPED.len())
    }

    /// Whether the page shows it for these rows.
    pub fn is_on_page<'a>(&self, mut rows: impl Iterator<Item = Row<'a>>) -> bool {
        match self.tables {
            Tables::Everywhere => true,
            Tables::OnPageIfAny => rows.any(|row| (self.get)(&row).unwrap_or(0.0) > 0.0),
            Tables::NotOnPage | Tables::Details => false,
        }
    }
}

impl Row<'_> {
    /// Bytes of peak reserved memory that the run needs less than the reference. Where one of them left out more
    /// requests than the other, they did not do the same work, and there is no such number.
    pub fn saved(&self) -> Option<f64> {
        let reference = self.reference?;
        let is_comparable = self.run.oom_count == reference.oom_count;
        let saved = reference.reserved_peak_bytes as f64 - self.run.reserved_peak_bytes as f64;
        is_comparable.then_some(saved)
    }

    /// A number that means nothing for a lower bound, which is no allocator.
    fn of_allocator(&self, value: f64) -> Option<f64> {
        (!self.run.is_bound()).then_some(value)
    }

    /// Whether this run is the one that the others are compared with.
    pub fn is_reference(&self) -> bool {
        self.reference.is_some_and(|reference| std::ptr::eq(reference, self.run))
    }
}

impl Unit {
    /// The number as people read it.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Bytes | Self::Peak if value < 0.0 => format!("-{}", Size(-value as u64)),
            Self::Bytes | Self::Peak => Size(value as u64).to_string(),
            Self::Share => format!("{:.1} %", 100.0 * value),
            Self::Count => Grouped(value as u64).to_string(),
            Self::Nanos => Nanos(value).to_string(),
        }
    }

    /// The number as programs read it: bytes and counts whole, shares with six digits.
    pub fn raw(self, value: f64) -> String {
        match self {
            Self::Bytes | Self::Peak => format!("{}", value as i64),
            Self::Count => format!("{}", value as u64),
            Self::Share => format!("{value:.6}"),
            Self::Nanos => format!("{value:.2}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::units::GIB;

    #[test]
    fn numbers_are_shown_for_people_and_for_programs() {
        assert_eq!(Unit::Bytes.show(-1.5 * GIB as f64), "-1.50 GiB");
        assert_eq!(Unit::Share.show(0.3964), "39.6 %");
        assert_eq!(Unit::Count.show(1_234_567.0), "1,234,567");
        assert_eq!(Unit::Count.show(123.0), "123");
        assert_eq!(Unit::Bytes.raw(-2e9), "-2000000000");
        assert_eq!(Unit::Share.raw(0.5), "0.500000");
    }

    #[test]
    fn a_run_that_left_requests_out_has_saved_nothing() {
        let reference = RunSummary { reserved_peak_bytes: 10 * GIB, ..RunSummary::default() };
        let mut run = RunSummary { reserved_peak_bytes: 4 * GIB, ..RunSummary::default() };
        let saved = |run: &RunSummary| Row { run, reference: Some(&reference) }.saved();
        assert_eq!(saved(&run), Some(6.0 * GIB as f64));
        run.oom_count = 1;
        assert_eq!(saved(&run), None);
    }

    #[test]
    fn every_column_has_its_key_and_its_place_in_the_queue() {
        let keys: BTreeSet<_> = COLUMNS.iter().map(|column| column.key).collect();
        let dropped: BTreeSet<_> = DROPPED.iter().copied().collect();
        assert_eq!(
            (keys.len(), DROPPED.len()),
            (COLUMNS.len(), dropped.len()),
            "one is there twice"
        );
        assert_eq!(keys, dropped);
    }
}
