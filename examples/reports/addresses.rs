//! `reports/addresses.md`: what a simulation owes to addresses, and whether it has those of the driver.

use anyhow::Result;
use gmlake::alloc_conf::{AllocConf, TorchVersion};
use gmlake::allocator::find;
use gmlake::device::{AddressPolicy, DriverAddresses};
use gmlake::sim::{Conf, Opened, Setup, run};
use gmlake::trace::Action;
use gmlake::units::TIB;

use crate::{Table, Traces, choice, gib};

const HEAD: &str = include_str!("addresses_head.md");

const SETTINGS_HEAD: &str = "\
## From one setting to another

The same program, recorded under both settings: the peak under one, predicted from the recording of the other with the driver's
addresses.

";

/// Of two more settings, what was predicted by hand.
const SETTINGS_TAIL: &str = include_str!("addresses_settings.md");

/// A recording, other settings, and the recording that was made with those.
const SETTINGS: [(&str, &str, &str); 5] = [
    ("opt-1.3b-LR-var", "expandable_segments:True", "opt-1.3b-LR-var.expandable"),
    ("opt-1.3b-LR-var.expandable", "", "opt-1.3b-LR-var"),
    ("opt-1.3b-LR-var.split128", "", "opt-1.3b-LR-var"),
    ("opt-1.3b-LR", "expandable_segments:True", "opt-1.3b-LR.expandable"),
    ("opt-1.3b-LR.expandable", "", "opt-1.3b-LR"),
];

/// The peaks of one recording's allocator, with its own settings.
struct Row {
    recorded: u64,
    /// With ascending and descending addresses, and with the driver's.
    peaks: [u64; 3],
    order: Order,
}

/// Pairs of segments that were there at the same time, and how many of them lie as recorded.
#[derive(Default)]
struct Order {
    pairs: u64,
    as_recorded: u64,
}

pub(crate) fn report(traces: &Traces) -> Result<String> {
    let heading =
        ["recording", "recorded", "ascending", "descending", "driver", "segments in order"];
    let mut table = Table::new(&heading);
    let mut rows = Vec::new();
    for name in traces.names() {
        let Some(opened) = traces.open(name)? else { continue };
        // Where others used the device, no simulated one refuses memory as the recorded did.
        let Some(row) = Row::of(&opened)?.filter(|_| opened.notes.is_empty()) else { continue };
        table.row(&row.cells(name));
        rows.push(row);
    }
    Ok(format!("{HEAD}{}{}\n{SETTINGS_HEAD}{}", table.text(), end(&rows), settings(traces)?))
}

/// The peak under each setting as predicted from the recording of another.
fn settings(traces: &Traces) -> Result<String> {
    let mut table = Table::new(&["from", "settings", "predicted", "recorded", "difference"]);
    for (from, conf, to) in SETTINGS {
        let (Some(from_one), Some(to_other)) = (traces.open(from)?, traces.open(to)?) else {
            continue;
        };
        let conf = AllocConf::parse(conf, TorchVersion::default())?;
        let setup = Setup { conf: Some(Conf::Known(conf.clone())), ..Setup::default() };
        let predicted = peak(&from_one, to_other.recorded_by(), &setup)?;
        let recorded = peak(&to_other, to_other.recorded_by(), &Setup::default())?;
        let shown = if conf.text.is_empty() { "none".to_owned() } else { conf.text };
        let difference = predicted as i64 - recorded as i64;
        let cells = [shown, gib(predicted), gib(recorded), format!("{difference} bytes")];
        table.row(&[vec![from.to_owned()], cells.to_vec()].concat());
    }
    Ok(table.text() + SETTINGS_TAIL)
}

fn peak(opened: &Opened, allocator: &str, setup: &Setup) -> Result<u64> {
    Ok(run(opened, &choice(allocator, &[])?, setup)?.reserved_peak_bytes)
}

impl Row {
    fn of(opened: &Opened) -> Result<Option<Self>> {
        if find(opened.recorded_by()).is_none() {
            return Ok(None);
        }
        let with = |addresses: Option<AddressPolicy>| {
            peak(opened, opened.recorded_by(), &Setup { addresses, ..Setup::default() })
        };
        let peaks = [
            with(Some(AddressPolicy::Ascending))?,
            with(Some(AddressPolicy::Descending))?,
            with(Some(AddressPolicy::Driver))?,
        ];
        Ok(Some(Self { recorded: with(None)?, peaks, order: Order::of(opened) }))
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let peak = |&peak: &u64| match peak == self.recorded {
            true => gib(peak),
            false => format!("{} ({:+.2} %)", gib(peak), 100.0 * self.off(peak)),
        };
        let mut cells = vec![name.to_owned(), gib(self.recorded)];
        cells.extend(self.peaks.iter().map(peak));
        cells.push(self.order.share());
        cells
    }

    fn off(&self, peak: u64) -> f64 {
        peak as f64 / self.recorded.max(1) as f64 - 1.0
    }
}

impl Order {
    /// Hands out addresses to the recorded segments, and compares each pair that was there at the same time.
    fn of(opened: &Opened) -> Self {
        let mut order = Self::default();
        if !opened.start.is_empty() {
            return order;
        }
        let mut driver = DriverAddresses::with_context(128 * TIB);
        let mut live: Vec<(u64, u64)> = Vec::new();
        for entry in &opened.records.entries {
            if entry.action == Action::SegmentAlloc {
                let Some(ours) = driver.take(entry.size) else { break };
                let alike = |other: &&(u64, u64)| (other.0 < entry.addr) == (other.1 < ours);
                order.as_recorded += live.iter().filter(alike).count() as u64;
                order.pairs += live.len() as u64;
                live.push((entry.addr, ours));
            } else if entry.action == Action::SegmentFree
                && let Some(index) = live.iter().position(|other| other.0 == entry.addr)
            {
                driver.give(live.swap_remove(index).1);
            }
        }
        order
    }

    fn share(&self) -> String {
        match self.pairs {
            0 => "-".to_owned(),
            pairs => format!("{:.1} %", 100.0 * self.as_recorded as f64 / pairs as f64),
        }
    }
}

fn end(rows: &[Row]) -> String {
    let [up, down, driver] =
        [0, 1, 2].map(|of| rows.iter().filter(|row| row.peaks[of] == row.recorded).count());
    let worst = |of: usize| {
        let off = |row: &Row| row.off(row.peaks[of]).abs();
        100.0 * rows.iter().map(off).fold(0.0, f64::max)
    };
    format!(
        "Equal to the byte: {up} of {all} with ascending addresses, {down} with descending ones, \
         {driver} with the driver's.\nThe largest difference: {:.1} %, {:.2} %, {:.2} %.\n",
        worst(0),
        worst(1),
        worst(2),
        all = rows.len(),
    )
}
