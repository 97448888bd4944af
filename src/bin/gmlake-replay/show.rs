//! Results as plain text.

use std::io::{self, Write};

use gmlake::replay::{ReplaySummary, StepReplay};
use gmlake::report::stdout;
use gmlake::units::{Count, Nanos, Size};

/// Lines up columns: the first to the left, the others to the right.
pub(crate) fn table(rows: &[Vec<String>]) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |c| c.chars().count());
    let width = |column| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut out = stdout();
    for row in rows {
        let mut line = String::new();
        for (column, (text, width)) in row.iter().zip(&widths).enumerate() {
            if column == 0 {
                line.push_str(&format!("  {text:<width$}"));
            } else {
                line.push_str(&format!("  {text:>width$}"));
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out)
}

/// Cells of a row.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
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
pub(crate) fn run(summary: &ReplaySummary) -> io::Result<()> {
    writeln!(stdout(), "{}: {} on {}", summary.file, summary.allocator, summary.gpu)?;
    let mut rows = vec![row(["call", "count", "total", "p50", "p99", "max", "predicted", "off"])];
    for call in &summary.calls {
        rows.push(vec![
            call.call.to_owned(),
            call.count.to_string(),
            nanos(call.total_ns),
            nanos(call.p50_ns),
            nanos(call.p99_ns),
            nanos(call.max_ns),
            nanos(call.predicted_ns),
            deviation(call.predicted_ns, call.total_ns),
        ]);
    }
    table(&rows)?;
    steps(&summary.steps)?;
    for line in findings(summary) {
        writeln!(stdout(), "  {line}")?;
    }
    writeln!(stdout())?;
    Ok(())
}

/// Calls and driver time of each step, on one line where steps are alike.
fn steps(steps: &[StepReplay]) -> io::Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    let mut rows = vec![row(["step", "calls", "driver", "predicted"])];
    for (index, step) in steps.iter().enumerate() {
        rows.push(vec![
            (index + 1).to_string(),
            step.calls.to_string(),
            nanos(step.driver_ns),
            nanos(step.predicted_ns),
        ]);
    }
    table(&rows)
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

/// All allocators of one file side by side.
pub(crate) fn overview(summaries: &[ReplaySummary]) -> io::Result<()> {
    let Some(first) = summaries.first() else { return Ok(()) };
    writeln!(stdout(), "{}, profile {}", first.file, first.profile)?;
    let mut rows = vec![row([
        "allocator",
        "events",
        "ns/event",
        "allocator",
        "driver",
        "by profile",
        "pace",
        "predicted",
        "off",
        "waits",
        "driver peak",
        "simulated",
        "OOM",
    ])];
    for run in summaries {
        rows.push(vec![
            run.allocator.clone(),
            run.events.to_string(),
            format!("{:.0}", run.allocator_ns as f64 / run.events.max(1) as f64),
            nanos(run.allocator_ns),
            nanos(run.driver_ns),
            nanos(run.profile_driver_ns),
            run.pace.map_or("-".to_owned(), |pace| format!("{pace:.2}")),
            nanos(run.predicted_driver_ns),
            deviation(run.predicted_driver_ns, run.driver_ns),
            nanos(run.wait_ns),
            Size(run.physical_peak_bytes).to_string(),
            Size(run.simulated_peak_bytes).to_string(),
            run.oom_count.to_string(),
        ]);
    }
    table(&rows)
}
