//! Up to which batch size each allocator fits.

use super::smallest_memory;
use crate::plan::data::{Limit, Need, Series};
use crate::report::section::Section;
use crate::units::Size;
use gmlake_core::cards::Target;

/// What each allocator needs at each value, and where it stops fitting each device.
pub fn series_section(series: &Series) -> Vec<Section> {
    let Some(first) = series.jobs.iter().find_map(|job| job.ranks.first()) else {
        return Vec::new();
    };
    let labels: Vec<String> = first.needs.iter().map(Need::label).collect();
    let mut sections = vec![needs(series, &labels)];
    if !first.targets.is_empty() {
        let shown: Vec<usize> =
            (0..labels.len()).filter(|&index| !first.needs[index].is_bound()).collect();
        sections.push(limits(series, &labels, &shown, &first.targets));
    }
    sections
}

fn needs(series: &Series, labels: &[String]) -> Section {
    let title = format!("The smallest device memory by {}", series.quantity);
    let values: Vec<String> = series.values.iter().map(f64::to_string).collect();
    let mut heading = vec!["allocator"];
    heading.extend(values.iter().map(String::as_str));
    let row = |(index, label): (usize, &String)| {
        let need = |job: &crate::plan::data::JobPlan| {
            let worst = job.worst(index);
            let figure = worst.and_then(|(plan, need)| {
                smallest_memory(need, |bytes| job.bounded(plan, need, bytes))
            });
            figure.unwrap_or_else(|| "-".to_owned())
        };
        [label.clone()].into_iter().chain(series.jobs.iter().map(need)).collect()
    };
    Section::new(title, &heading, labels.iter().enumerate().map(row).collect())
}

fn limits(series: &Series, labels: &[String], shown: &[usize], targets: &[Target]) -> Section {
    let title = format!(
        "Where each allocator stops fitting, by {}: the largest value that runs, the next that \
         does not, and where a line through what the two need crosses the device; nothing is \
         said outside of the values that were run{}",
        series.quantity,
        crate::plan::show::reserve(targets)
    );
    let mut heading = vec!["device", "for the job"];
    heading.extend(shown.iter().map(|&index| labels[index].as_str()));
    let row = |(number, target): (usize, &Target)| {
        let mut row = vec![target.name.clone(), Size(target.capacity_bytes).to_string()];
        let cell =
            |&index: &usize| series.limit(index, number).map_or_else(|| "-".to_owned(), show);
        row.extend(shown.iter().map(cell));
        row
    };
    Section::new(title, &heading, targets.iter().enumerate().map(row).collect())
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
