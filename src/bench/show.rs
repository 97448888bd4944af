//! A benchmark in words: the table of the allocators, and that of every trace.

use super::data::{Bench, Row, Summary};
use crate::report::section::Section;
use crate::units::{Count, Grouped, Nanos, Size};

/// The table of the allocators; with `each`, a table for every trace too.
pub fn sections(bench: &Bench, each: bool) -> Vec<Section> {
    let mut sections = vec![overview(bench)];
    if each {
        sections.extend(bench.traces().into_iter().map(|trace| of_trace(bench, trace)));
    }
    sections
}

fn overview(bench: &Bench) -> Section {
    let traces = Count(bench.traces().len() as u64, "trace");
    let title = format!(
        "The set {}, {traces}; driver time by profile {}; * no other allocator is better in memory and driver time",
        bench.set, bench.profile
    );
    let heading = [
        "allocator",
        "memory / live\nmean",
        "memory / live\nworst",
        "on the smallest\npossible card",
        "driver once\nmedian",
        "driver once\nworst",
        "driver a step\nmedian",
        "driver a step\nworst",
        "host a request\nmedian",
    ];
    Section::new(title, &heading, bench.summaries.iter().map(summary_cells).collect())
}

fn summary_cells(summary: &Summary) -> Vec<String> {
    let star = if summary.is_on_front { " *" } else { "" };
    vec![
        format!("{}{star}", summary.allocator),
        score(summary.memory_mean, summary.oom_count),
        summary.memory_worst.map_or_else(|| "-".to_owned(), |worst| format!("{worst:.3}")),
        format!("{} of {}", summary.on_best_card, summary.traces),
        time(summary.driver_once_median_ns),
        time(summary.driver_once_worst_ns),
        time(summary.driver_step_median_ns),
        time(summary.driver_step_worst_ns),
        time(summary.host_median_ns.map(|ns| ns.round() as u64)),
    ]
}

fn of_trace(bench: &Bench, trace: &str) -> Section {
    let rows: Vec<&Row> = bench.rows.iter().filter(|row| row.trace == trace).collect();
    let title = rows.first().map_or(String::new(), |row| {
        let (live, requests) = (Size(row.live_peak_bytes), Count(row.requests, "request"));
        format!("{trace} ({}): {requests}, {live} live at the peak", row.part)
    });
    let heading = [
        "allocator",
        "peak\nreserved",
        "memory /\nlive",
        "smallest card",
        "driver\ncalls",
        "driver\nonce",
        "driver\na step",
        "host\na request",
    ];
    Section::new(title, &heading, rows.into_iter().map(row_cells).collect())
}

fn row_cells(row: &Row) -> Vec<String> {
    let time = |ns: Option<u64>| time(ns.filter(|_| row.oom_count == 0));
    vec![
        row.allocator.clone(),
        Size(row.reserved_peak_bytes).to_string(),
        score(row.memory(), row.oom_count),
        row.card.clone().unwrap_or_else(|| "none".to_owned()),
        Grouped(row.driver_calls).to_string(),
        time(row.driver_once_ns),
        time(row.driver_step_ns),
        time(row.host_ns_per_request.map(|ns| ns.round() as u64)),
    ]
}

/// Memory over live memory, or why there is none.
fn score(memory: Option<f64>, ooms: u64) -> String {
    memory.map_or_else(|| Count(ooms, "OOM").to_string(), |memory| format!("{memory:.3}"))
}

fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| Nanos(ns as f64).to_string())
}
