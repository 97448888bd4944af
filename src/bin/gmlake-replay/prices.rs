//! The table of prices.

use std::io;

use gmlake::device::{PerCall, Profile};
use gmlake::units::{Grouped, Nanos, Size};

use crate::show::Screen;

/// The lines of each call, with their error; and how much of its price pays for rare long calls.
pub(crate) fn show(
    screen: &Screen,
    profile: &Profile,
    rare: &PerCall<f64>,
    observed: u64,
) -> io::Result<()> {
    screen.say(&format!(
        "Prices on an idle GPU, fitted to {} calls of synthetic programs on every allocator",
        Grouped(observed)
    ))?;
    let heading = ["call", "up to", "per call", "per handle", "per MiB", "fit error", "rare"];
    let mut rows = Vec::new();
    let price = |ns: f64| if ns == 0.0 { "-".to_owned() } else { Nanos(ns).to_string() };
    for (call, lines) in profile.calls.rows() {
        for (number, line) in (0..).zip(lines) {
            let mut cells = vec![call.driver_name().to_owned()];
            cells.push(line.up_to.map_or("-".to_owned(), |size| Size(size).to_string()));
            cells.extend([line.per_call_ns, line.per_handle_ns, line.per_mib_ns].map(price));
            let error = line.fit_error.map(|error| format!("{:.1} %", error * 100.0));
            cells.push(error.unwrap_or("-".to_owned()));
            if number == 0 && rare[call] > 0.0 {
                cells.push(format!("+{:.1} %", rare[call] * 100.0));
            }
            rows.push(cells);
        }
    }
    screen.table(&heading, rows)?;
    screen.say(&match profile.zeroing_ns_per_mib {
        0.0 => "the driver reuses freed memory without zeroing it\n".to_owned(),
        ns => format!(
            "the driver zeroes freed memory at {:.0} GiB/s before it reuses it\n",
            1e9 / (ns * 1024.0)
        ),
    })
}
