//! Writes the tables of `reports/`, and pictures next to them:
//! `cargo run --release --example reports -- [REPORT...] traces [MORE-FOLDERS...]`.
//!
//! Names of reports before the folders choose among them. Every table carries the command that made it. Traces are
//! taken from the folders by name, the first folder first; rows whose trace is not at hand are left out.

mod addresses;
mod lake;
mod paper;
mod planning;
mod published;
mod stitching;
mod verification;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gmlake::allocator::{Options, find};
use gmlake::device::AddressPolicy;
use gmlake::run::RunSummary;
use gmlake::sim::{Choice, Memory, Opened, Setup, open, run};
use gmlake::trace::LoadOptions;

/// The traces at hand, by name.
pub(crate) struct Traces {
    paths: BTreeMap<String, PathBuf>,
}

impl Traces {
    fn find(folders: &[String]) -> Result<Self> {
        let mut paths = BTreeMap::new();
        for folder in folders {
            let files = std::fs::read_dir(folder).with_context(|| folder.clone())?;
            for file in files {
                let path = file?.path();
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                let snapshot_name = |name: &str| {
                    let name = name.strip_suffix(".pickle.xz").or(name.strip_suffix(".pickle"));
                    name.map(str::to_owned)
                };
                if let Some(name) = name.as_deref().and_then(snapshot_name) {
                    paths.entry(name).or_insert(path);
                }
            }
        }
        Ok(Self { paths })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.paths.keys().map(String::as_str)
    }

    pub(crate) fn path(&self, name: &str) -> Option<&Path> {
        self.paths.get(name).map(PathBuf::as_path)
    }

    pub(crate) fn open(&self, name: &str) -> Result<Option<Opened>> {
        let Some(path) = self.path(name) else { return Ok(None) };
        Ok(Some(open(path, &LoadOptions::default())?))
    }
}

/// An allocator by its name, with options written as on the command line.
pub(crate) fn choice(allocator: &str, options: &[(&str, &str)]) -> Result<Choice> {
    let spec = find(allocator).with_context(|| format!("no allocator {allocator}"))?;
    let mut bag = Options::default();
    options.iter().for_each(|(name, value)| bag.set(name, value));
    Ok(Choice { spec, options: bag })
}

/// One run with options written as on the command line, on a device of 141 GiB.
pub(crate) fn simulate(
    opened: &Opened,
    allocator: &str,
    options: &[(&str, &str)],
    addresses: Option<AddressPolicy>,
) -> Result<RunSummary> {
    let memory = Memory::Bytes(141 << 30);
    let setup = Setup { memory, addresses, ..Setup::default() };
    Ok(run(opened, &choice(allocator, options)?, &setup)?)
}

/// A Markdown table.
pub(crate) struct Table {
    text: String,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        let rule: Vec<_> = heading.iter().map(|_| "---:").collect();
        let mut text = format!("| {} |\n", heading.join(" | "));
        let _ = writeln!(text, "| :--- | {} |", rule[1..].join(" | "));
        Self { text }
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    pub(crate) fn text(self) -> String {
        self.text + "\n"
    }
}

/// Bytes in GiB with two digits, as in the paper's tables.
pub(crate) fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 30))
}

/// A report, by the name of its file.
type Report = (&'static str, fn(&Traces) -> Result<String>);

const REPORTS: [Report; 6] = [
    ("verification", verification::report),
    ("addresses", addresses::report),
    ("gmlake", stitching::report),
    ("lake", lake::report),
    ("plan", planning::report),
    ("paper", paper::report),
];

fn main() -> Result<()> {
    let is_report = |name: &String| REPORTS.iter().any(|(report, _)| report == name);
    let (wanted, folders): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(is_report);
    let traces = Traces::find(&folders)?;
    for (name, report) in REPORTS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            std::fs::write(format!("reports/{name}.md"), report(&traces)?)?;
        }
    }
    Ok(())
}
