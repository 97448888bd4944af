//! Up to which batch size each allocator fits.

use super::{by_device, dash, reserve, smallest_memory};
use crate::plan::need::{JobPlan, Need, Plan};
use crate::plan::series::{Limit, Series};
use crate::report::section::Section;

/// What each allocator needs at each value, and where it stops fitting each device.
pub fn series_section(series: &Series) -> Vec<Section> {
    let Some(first) = series.jobs.iter().find_map(|job| job.ranks.first()) else {
        return Vec::new();
    };
    let mut sections = vec![needs(series, first)];
    if !first.targets.is_empty() {
        sections.push(limits(series, first));
    }
    sections
}

fn needs(series: &Series, first: &Plan) -> Section {
    let title = format!("The smallest device memory by {}", series.quantity);
    let values: Vec<String> = series.values.iter().map(f64::to_string).collect();
    let mut heading = vec!["allocator"];
    heading.extend(values.iter().map(String::as_str));
    let row = |(index, allocator): (usize, &Need)| {
        let need = |job: &JobPlan| {
            let worst = job.worst(index);
            let figure = worst.and_then(|(plan, need)| {
                smallest_memory(need, |bytes| job.bounded(plan, need, bytes))
            });
            figure.unwrap_or_else(dash)
        };
        [allocator.label()].into_iter().chain(series.jobs.iter().map(need)).collect()
    };
    Section::new(title, &heading, first.needs.iter().enumerate().map(row).collect())
}

fn limits(series: &Series, first: &Plan) -> Section {
    let title = format!(
        "Where each allocator stops fitting, by {}: the largest value that runs, the next that \
         does not, and where a line through what the two need crosses the device; nothing is \
         said outside of the values that were run{}",
        series.quantity,
        reserve(first.targets.iter().map(|target| target.reserve_bytes))
    );
    by_device(title, first, |index, number| series.limit(index, number).map(show))
}

fn show(limit: Limit) -> String {
    match limit {
        Limit::Below { smallest } => format!("not at {smallest}"),
        Limit::Beyond { largest } => format!("runs at {largest}"),
        // Of things that one counts, a part of one is no use.
        Limit::Between { runs, fails, estimate } if runs.fract() == 0.0 && fails.fract() == 0.0 => {
            format!("{runs} to {fails}, near {:.0}", estimate.floor())
        }
        Limit::Between { runs, fails, estimate } => {
            format!("{runs} to {fails}, near {estimate:.3}")
        }
    }
}
