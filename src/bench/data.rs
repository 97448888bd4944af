//! What a benchmark comes to: a row for each allocator on each trace, and a summary of each allocator.

use serde::{Deserialize, Serialize};

use super::set::Part;
use crate::allocator::find;
use crate::units::Bytes;

/// One allocator on one trace. All but the host's time is the same on every machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name of the trace.
    pub trace: String,
    /// Its part.
    pub part: Part,
    /// Name of the allocator.
    pub allocator: String,
    /// Most bytes that the job had in use at once: no allocator can need less.
    pub live_peak_bytes: Bytes,
    /// Most bytes held from the device, with as much memory as it asks for.
    pub reserved_peak_bytes: Bytes,
    /// Requests that the allocator refused. With any, the other figures are of a part of the job, and no score.
    pub oom_count: u64,
    /// The smallest card on which every request is served; `None`: none of the catalogue.
    pub card: Option<String>,
    /// The smallest card that has what was in use at once, which no allocator can do without.
    pub possible_card: Option<String>,
    /// Calls of the driver.
    pub driver_calls: u64,
    /// Nanoseconds in the driver but for what every step costs, by the profile; `None` of a bound.
    pub driver_once_ns: Option<u64>,
    /// Nanoseconds in the driver in a step: the mean of the second half of the steps. `None` without steps.
    pub driver_step_ns: Option<u64>,
    /// Requests of the trace.
    pub requests: u64,
    /// Nanoseconds of this machine's processor for each request and its free; not part of a submission's check.
    pub host_ns_per_request: Option<f64>,
}

impl Row {
    /// Memory at the peak over live memory: 1 is perfect. `None` of an allocator that refused requests.
    pub fn memory(&self) -> Option<f64> {
        let ratio = self.reserved_peak_bytes as f64 / self.live_peak_bytes.max(1) as f64;
        (self.oom_count == 0).then_some(ratio)
    }
}

/// One allocator on all traces. If it refused requests, it has no score: no memory, and no times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Name of the allocator.
    pub allocator: String,
    /// Traces.
    pub traces: usize,
    /// Requests that it refused, of all traces.
    pub oom_count: u64,
    /// Memory at the peak over live memory: the mean, and the worst.
    pub memory_mean: Option<f64>,
    /// The worst.
    pub memory_worst: Option<f64>,
    /// Traces whose smallest card is the smallest possible one.
    pub on_best_card: usize,
    /// Nanoseconds in the driver once: the median, and the worst.
    pub driver_once_median_ns: Option<u64>,
    /// The worst.
    pub driver_once_worst_ns: Option<u64>,
    /// Nanoseconds in the driver in each step: the median over the traces that have steps, and the worst.
    pub driver_step_median_ns: Option<u64>,
    /// The worst.
    pub driver_step_worst_ns: Option<u64>,
    /// Nanoseconds of the processor for each request: the median.
    pub host_median_ns: Option<f64>,
    /// Whether no other allocator that one could train with is better in memory and no worse in driver time, or the
    /// other way round: means of memory, medians of both driver times.
    pub is_on_front: bool,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Bench {
    /// Name of the set.
    pub set: String,
    /// Name of the price list.
    pub profile: String,
    /// A row for each allocator on each trace, trace by trace.
    pub rows: Vec<Row>,
    /// A summary for each allocator, in the order of the table.
    pub summaries: Vec<Summary>,
}

impl Bench {
    /// The summary of rows.
    pub fn new(set: &str, profile: &str, rows: Vec<Row>) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for row in &rows {
            if !names.contains(&row.allocator.as_str()) {
                names.push(&row.allocator);
            }
        }
        let mut summaries: Vec<_> = names.iter().map(|name| summary(name, &rows)).collect();
        let fronts: Vec<bool> = summaries.iter().map(|one| is_on_front(one, &summaries)).collect();
        for (summary, is_on_front) in summaries.iter_mut().zip(fronts) {
            summary.is_on_front = is_on_front;
        }
        Self { set: set.to_owned(), profile: profile.to_owned(), rows, summaries }
    }

    /// Names of the traces, in order.
    pub fn traces(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.rows.iter().map(|row| row.trace.as_str()).collect();
        names.dedup();
        names
    }
}

fn summary(name: &str, rows: &[Row]) -> Summary {
    let own: Vec<&Row> = rows.iter().filter(|row| row.allocator == name).collect();
    let oom_count = own.iter().fold(0_u64, |sum, row| sum.saturating_add(row.oom_count));
    let scored = if oom_count == 0 { &own[..] } else { &[] };
    let memory: Vec<f64> = scored.iter().filter_map(|row| row.memory()).collect();
    let once: Vec<u64> = scored.iter().filter_map(|row| row.driver_once_ns).collect();
    let step: Vec<u64> = scored.iter().filter_map(|row| row.driver_step_ns).collect();
    let host: Vec<f64> = scored.iter().filter_map(|row| row.host_ns_per_request).collect();
    let best = |row: &&&Row| row.card.is_some() && row.card == row.possible_card;
    Summary {
        allocator: name.to_owned(),
        traces: own.len(),
        oom_count,
        memory_mean: (!memory.is_empty()).then(|| memory.iter().sum::<f64>() / memory.len() as f64),
        memory_worst: memory.iter().copied().reduce(f64::max),
        on_best_card: own.iter().filter(best).count(),
        driver_once_median_ns: median(&once, u64::cmp),
        driver_once_worst_ns: once.iter().max().copied(),
        driver_step_median_ns: median(&step, u64::cmp),
        driver_step_worst_ns: step.iter().max().copied(),
        host_median_ns: median(&host, f64::total_cmp),
        is_on_front: false,
    }
}

/// The median: of an even number of values, the lower of the two in the middle.
fn median<T: Copy>(values: &[T], order: impl Fn(&T, &T) -> std::cmp::Ordering) -> Option<T> {
    let mut sorted = values.to_vec();
    sorted.sort_by(order);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

/// Whether an allocator that one could train with is dominated by no other.
fn is_on_front(one: &Summary, all: &[Summary]) -> bool {
    // What is not known here was submitted, and is a plug-in.
    let is_choice =
        |summary: &Summary| find(&summary.allocator).is_none_or(|spec| spec.role.is_choice());
    let key = |summary: &Summary| {
        let times = (summary.driver_once_median_ns, summary.driver_step_median_ns);
        Some((summary.memory_mean?, times.0.unwrap_or(u64::MAX), times.1.unwrap_or(u64::MAX)))
    };
    let Some((memory, once, step)) = key(one) else { return false };
    let is_better =
        |(m, o, s)| m <= memory && o <= once && s <= step && (m < memory || o < once || s < step);
    let dominates = |other: &Summary| key(other).is_some_and(is_better);
    is_choice(one) && !all.iter().filter(|other| is_choice(other)).any(dominates)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of an allocator that reserved `reserved` bytes for 100.
    fn row(trace: &str, allocator: &str, reserved: u64, once: u64) -> Row {
        Row {
            trace: trace.to_owned(),
            part: Part::of(trace),
            allocator: allocator.to_owned(),
            live_peak_bytes: 100,
            reserved_peak_bytes: reserved,
            oom_count: 0,
            card: Some("T4".to_owned()),
            possible_card: Some("T4".to_owned()),
            driver_calls: 1,
            driver_once_ns: (allocator != "bound").then_some(once),
            driver_step_ns: (allocator != "bound").then_some(once / 10),
            requests: 10,
            host_ns_per_request: Some(50.0),
        }
    }

    #[test]
    fn a_summary_has_means_medians_and_the_worst() {
        let rows = [110, 130, 180].map(|size| row(&format!("t{size}"), "lake", size, size * 1000));
        let bench = Bench::new("mine", "h200", rows.to_vec());
        let summary = &bench.summaries[0];
        assert!((summary.memory_mean.unwrap() - 1.4).abs() < 1e-12);
        assert!((summary.memory_worst.unwrap() - 1.8).abs() < 1e-12);
        assert_eq!(summary.driver_once_median_ns, Some(130_000));
        assert_eq!(summary.driver_step_worst_ns, Some(18_000));
        assert_eq!((summary.traces, bench.traces().len()), (3, 3));
    }

    #[test]
    fn the_front_has_those_that_nobody_dominates_and_no_bound() {
        let rows = vec![
            row("a", "bound", 100, 0),
            row("a", "lake", 105, 50),
            row("a", "gmlake", 101, 500),
            row("a", "expandable", 120, 60),
            row("a", "caching", 150, 10),
        ];
        let bench = Bench::new("mine", "h200", rows);
        let front: Vec<_> = bench.summaries.iter().filter(|s| s.is_on_front).collect();
        let names: Vec<_> = front.iter().map(|summary| summary.allocator.as_str()).collect();
        assert_eq!(names, ["lake", "gmlake", "caching"]);
        assert!(bench.summaries.iter().all(|summary| summary.on_best_card == 1));
    }

    #[test]
    fn counts_that_were_made_up_are_no_panic() {
        let refused = |trace| Row { oom_count: u64::MAX / 2 + 1, ..row(trace, "lake", 1, 1) };
        let bench = Bench::new("mine", "h200", vec![refused("a"), refused("b")]);
        assert_eq!(bench.summaries[0].oom_count, u64::MAX);
    }
}
