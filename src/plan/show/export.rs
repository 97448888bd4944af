//! Plans for programs: every number, as JSON and as CSV.

use std::io::{self, Write};

use serde::Serialize;

use crate::plan::data::{JobPlan, Limit, Need, Plan, Series, Trial, Verdict};
use crate::report::{Result, write_answer, write_row};

#[derive(Serialize)]
struct Document<'a> {
    jobs: &'a [JobPlan],
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<SeriesDocument<'a>>,
}

#[derive(Serialize)]
struct SeriesDocument<'a> {
    quantity: &'a str,
    values: &'a [f64],
    limits: Vec<LimitDocument<'a>>,
}

#[derive(Serialize)]
struct LimitDocument<'a> {
    allocator: &'a str,
    target: &'a str,
    #[serde(flatten)]
    limit: Limit,
}

/// Writes `{jobs, series}` as the answer of `plan`; `series` only if there is one, whose jobs are `jobs`.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_json(jobs: &[JobPlan], series: Option<&Series>, out: &mut dyn Write) -> Result<()> {
    let document = Document {
        jobs: series.map_or(jobs, |series| &series.jobs),
        series: series.map(series_document),
    };
    write_answer("plan", &document, out)
}

fn series_document(series: &Series) -> SeriesDocument<'_> {
    let first = series.jobs.iter().find_map(|job| job.ranks.first());
    let mut limits = Vec::new();
    for (index, need) in first.iter().flat_map(|plan| plan.needs.iter().enumerate()) {
        for (number, target) in first.iter().flat_map(|plan| plan.targets.iter().enumerate()) {
            if let Some(limit) = series.limit(index, number) {
                let (allocator, target) = (need.allocator.as_str(), target.name.as_str());
                limits.push(LimitDocument { allocator, target, limit });
            }
        }
    }
    SeriesDocument { quantity: &series.quantity, values: &series.values, limits }
}

/// Names of the columns that [`write_csv`] writes.
const COLUMNS: [&str; 18] = [
    "job",
    "file",
    "rank",
    "allocator",
    "options",
    "live_peak_bytes",
    "unlimited_bytes",
    "smallest_bytes",
    "resolution_bytes",
    "alloc_retries",
    "device_calls",
    "below_oom_step",
    "below_oom_event",
    "target",
    "capacity_bytes",
    "spare_bytes",
    "oom_step",
    "oom_event",
];

/// Writes a row for each rank, allocator and device; one with empty cells at the end where no device was asked about.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_csv(jobs: &[JobPlan], out: &mut dyn Write) -> Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(COLUMNS).map_err(io::Error::from)?;
    for job in jobs {
        for plan in &job.ranks {
            for need in &plan.needs {
                for row in rows(job, plan, need) {
                    write_row(&mut writer, row)?;
                }
            }
        }
    }
    Ok(writer.flush()?)
}

fn rows(job: &JobPlan, plan: &Plan, need: &Need) -> Vec<Vec<String>> {
    let mut before = vec![
        job.name.clone(),
        plan.file.clone(),
        number(plan.rank),
        need.allocator.clone(),
        need.options.join(" "),
        plan.live_peak_bytes.to_string(),
        need.unlimited_bytes.to_string(),
        number(need.smallest_bytes()),
        plan.resolution_bytes.to_string(),
        number(need.smallest.map(|trial| trial.alloc_retries)),
        number(need.smallest.map(|trial| trial.device_calls)),
    ];
    before.extend(shortage(need.below.as_ref()));
    if need.verdicts.is_empty() {
        before.resize(COLUMNS.len(), String::new());
        return vec![before];
    }
    let with_target = |(name, verdict): (&String, &Verdict)| {
        let capacity = verdict.trial.capacity_bytes.to_string();
        let mut row = before.clone();
        row.extend([name.clone(), capacity, number(verdict.spare_bytes)]);
        row.extend(shortage(Some(&verdict.trial)));
        row
    };
    let names = plan.targets.iter().map(|target| &target.name);
    names.zip(&need.verdicts).map(with_target).collect()
}

/// Step and event of a shortage.
fn shortage(trial: Option<&Trial>) -> [String; 2] {
    let shortage = trial.and_then(|trial| trial.shortage);
    [number(shortage.and_then(|s| s.step)), number(shortage.map(|s| s.event))]
}

fn number(value: Option<u64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
