//! `reports/verification.md`: every recorded decision, made again.

use anyhow::Result;
use gmlake::allocator::Environment;
use gmlake::trace::{self, LoadOptions};
use gmlake::verify::{VerificationSummary, verify};

use crate::{Table, Traces};

const HEAD: &str = "\
# Verification: PyTorch's own decisions, made again

Only requests and frees are fed to our model of PyTorch's allocator; every block address, every segment event, every
out-of-memory and the complete final state are compared with the recording. `cargo run --release --bin gmlake-sim -- \
verify traces/*.pickle.xz` does the same. Speed is that of one core, on the machine that wrote this page.

Made by `cargo run --release --example reports -- traces [more folders]`.

";

pub(crate) fn report(traces: &Traces) -> Result<String> {
    let heading =
        ["recording", "entries", "final blocks", "differences", "assumed", "million entries/s"];
    let mut table = Table::new(&heading);
    let (mut entries, mut nanos) = (0, 0);
    for name in traces.names() {
        let Some(path) = traces.path(name) else { continue };
        let records =
            trace::choose_device(trace::load(path, &LoadOptions::default())?, None, path)?;
        let environment = Environment::new(records.settings.clone().unwrap_or_default());
        let found = VerificationSummary::new(name, &records, &verify(&records, &environment));
        entries += found.entries;
        nanos += found.elapsed_ns;
        table.row(&[
            name.to_owned(),
            found.entries.to_string(),
            found.final_blocks.to_string(),
            found.differences.to_string(),
            found.assumptions().join("; "),
            format!("{:.1}", found.entries as f64 * 1e3 / found.elapsed_ns.max(1) as f64),
        ]);
    }
    let speed = entries as f64 * 1e3 / nanos.max(1) as f64;
    let total = format!("All together: {entries} entries, {speed:.1} million entries/s.\n");
    Ok(format!("{HEAD}{}{total}", table.text()))
}
