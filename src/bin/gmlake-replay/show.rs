//! Results as plain text.

use std::io::{self, Write};
use std::path::Path;

use gmlake::printable::{printable, printable_lines};
use gmlake::replay::{CallRow, ReplaySummary, StepReplay};
use gmlake::report::table::plain;
use gmlake::report::{Look, is_stdout, stdout, wrapped};
use gmlake::units::{Count, Nanos, Size};

/// Standard output as it is for people; nothing is shown where it is the file of a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    look: Look,
    is_taken: bool,
}

impl Screen {
    /// The screen of a command that writes these files.
    pub(crate) fn beside<'p>(files: impl IntoIterator<Item = Option<&'p Path>>) -> Self {
        let is_taken = files.into_iter().flatten().any(is_stdout);
        Self { look: Look::of_stdout(), is_taken }
    }

    /// Shows lines, folded to the width of the terminal.
    pub(crate) fn say(&self, text: &str) -> io::Result<()> {
        let width = self.look.width.map_or(usize::MAX, usize::from);
        if self.is_taken {
            Ok(())
        } else {
            writeln!(stdout(), "{}", printable_lines(&wrapped(text, width)))
        }
    }

    /// Shows a table, as wide as the terminal, and an empty line.
    pub(crate) fn table(
        &self,
        heading: &[impl ToString],
        rows: Vec<Vec<String>>,
    ) -> io::Result<()> {
        let heading = heading.iter().map(ToString::to_string).collect();
        self.say(&(plain(heading, rows, self.look) + "\n"))
    }
}

/// Prints a line to standard error, after the program's name.
pub(crate) fn complain(text: &str) {
    // If this fails, there is nowhere to report it.
    let _ = writeln!(io::stderr(), "gmlake-replay: {}", printable(text));
}

pub(crate) fn nanos(ns: u64) -> String {
    Nanos(ns as f64).to_string()
}

/// How far `predicted` is from `measured`, as `+12 %`.
fn deviation(predicted: u64, measured: u64) -> String {
    match measured {
        0 => "-".to_owned(),
        _ => format!("{:+.0} %", (predicted as f64 / measured as f64 - 1.0) * 100.0),
    }
}

/// One run: its calls, its steps, and what was found.
pub(crate) fn run(screen: &Screen, summary: &ReplaySummary) -> io::Result<()> {
    screen.say(&format!("{}: {} on {}", summary.file, summary.allocator, summary.gpu))?;
    let of_call = |call: &CallRow| {
        vec![
            call.call.to_owned(),
            call.count.to_string(),
            nanos(call.total_ns),
            nanos(call.p50_ns),
            nanos(call.p99_ns),
            nanos(call.max_ns),
            nanos(call.predicted_ns),
            deviation(call.predicted_ns, call.total_ns),
        ]
    };
    let heading = ["call", "count", "total", "p50", "p99", "max", "predicted", "off"];
    screen.table(&heading, summary.calls.iter().map(of_call).collect())?;
    steps(screen, &summary.steps)?;
    screen.say(&(findings(summary).join("\n") + "\n"))
}

/// Calls and driver time of each step, on one line where steps are alike.
fn steps(screen: &Screen, steps: &[StepReplay]) -> io::Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    let row = |(number, step): (usize, &StepReplay)| {
        let calls = step.calls.to_string();
        vec![number.to_string(), calls, nanos(step.driver_ns), nanos(step.predicted_ns)]
    };
    let rows = (1..).zip(steps).map(row).collect();
    screen.table(&["step", "calls", "driver", "predicted"], rows)
}

fn findings(summary: &ReplaySummary) -> Vec<String> {
    let mut lines = vec![format!(
        "peak: {} reserved, {} according to the driver, {} simulated",
        Size(summary.reserved_peak_bytes),
        Size(summary.physical_peak_bytes),
        Size(summary.simulated_peak_bytes)
    )];
    if let Some(verified) = &summary.verified {
        lines.push(format!(
            "memory: {}; {} in {}, checked {}",
            Count(verified.corrupted_bytes, "corrupted byte"),
            Size(verified.bytes),
            Count(verified.allocations, "allocation"),
            Count(verified.checks, "time")
        ));
        lines.extend(
            verified.first_corruption.iter().map(|first| format!("first corruption: {first}")),
        );
    }
    match &summary.log_difference {
        Some(found) => lines.push(format!(
            "calls: call {} differs: {:?} in the replay, {:?} in the simulation",
            found.call, found.replay, found.simulation
        )),
        None if summary.compared_calls > 0 => {
            lines.push(format!("calls: all {} as simulated", summary.compared_calls));
        }
        None => {}
    }
    if summary.oom_count > 0 {
        lines.push(format!("out of memory {}", Count(summary.oom_count, "time")));
    }
    if let Some(reason) = &summary.stopped {
        let (done, all) = (summary.events, summary.trace_events);
        lines.push(format!("stopped after {done} of {all} events: {reason}"));
    }
    lines
}

/// All allocators of one file side by side. What an answer turns on comes first: where the terminal is narrow, the last
/// columns are left out.
pub(crate) fn overview(screen: &Screen, summaries: &[ReplaySummary]) -> io::Result<()> {
    let Some(first) = summaries.first() else { return Ok(()) };
    screen.say(&format!("{}, profile {}", first.file, first.profile))?;
    let row = |run: &ReplaySummary| {
        vec![
            run.allocator.clone(),
            Size(run.physical_peak_bytes).to_string(),
            Size(run.simulated_peak_bytes).to_string(),
            run.oom_count.to_string(),
            nanos(run.driver_ns),
            nanos(run.predicted_driver_ns),
            deviation(run.predicted_driver_ns, run.driver_ns),
            nanos(run.wait_ns),
            nanos(run.profile_driver_ns),
            run.pace.map_or("-".to_owned(), |pace| format!("{pace:.2}")),
            nanos(run.allocator_ns),
            format!("{:.0}", run.allocator_ns as f64 / run.events.max(1) as f64),
            run.events.to_string(),
        ]
    };
    let heading = [
        "allocator",
        "driver peak",
        "simulated",
        "OOM",
        "driver",
        "predicted",
        "off",
        "waits",
        "by profile",
        "pace",
        "in allocator",
        "ns/event",
        "events",
    ];
    screen.table(&heading, summaries.iter().map(row).collect())
}
