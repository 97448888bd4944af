//! `reports/addresses.md`: how much a simulation owes to addresses that nobody can know.

use anyhow::Result;
use gmlake::device::AddressPolicy;
use gmlake::sim::{Choice, Setup, run};

use crate::{Table, Traces, gib};

const HEAD: &str = "\
# What addresses decide

Best fit takes the lowest address among blocks of equal size, so that a simulation depends on the addresses that the
device hands out. A run of the allocator that was recorded, with its settings, gets the recorded addresses and is exact.
A what-if run cannot have them: no one knows what a driver would have answered another allocator. Its addresses ascend
(one counter from 4 GiB up, nothing used again), or descend with `--addresses descending`. The table says how much that
matters for the caching allocator: its peak of reserved memory in GiB under each policy. Recordings with expandable
segments are run with those; each has one long range of addresses, so that little is left to decide.

Made by `cargo run --release --example reports -- traces [more folders]`.

";

pub(crate) fn report(traces: &Traces) -> Result<String> {
    let heading = ["recording", "recorded", "ascending", "descending", "largest difference"];
    let mut table = Table::new(&heading);
    let mut worst: f64 = 0.0;
    for name in traces.names() {
        let Some(opened) = traces.open(name)? else { continue };
        let Some(spec) = gmlake::allocator::find(opened.recorded_by()) else { continue };
        // Where others used the device, no simulated one refuses memory as the recorded did.
        if !opened.notes.is_empty() {
            continue;
        }
        let choice = Choice { spec, options: gmlake::allocator::Options::default() };
        let mut peaks = Vec::new();
        for addresses in [None, Some(AddressPolicy::Ascending), Some(AddressPolicy::Descending)] {
            let setup = Setup { addresses, ..Setup::default() };
            peaks.push(run(&opened, &choice, &setup)?.reserved_peak_bytes);
        }
        let recorded = peaks[0].max(1) as f64;
        let off = |peak: &u64| (*peak as f64 / recorded - 1.0).abs();
        let difference = peaks.iter().map(off).fold(0.0, f64::max);
        worst = worst.max(difference);
        let mut cells = vec![name.to_owned()];
        cells.extend(peaks.iter().map(|&peak| gib(peak)));
        cells.push(format!("{:.1} %", 100.0 * difference));
        table.row(&cells);
    }
    let end = format!(
        "So a what-if figure of the caching allocator is good to about {:.0} %, and no conclusion should rest on less.\n",
        100.0 * worst
    );
    Ok(format!("{HEAD}{}{end}", table.text()))
}
