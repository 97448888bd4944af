//! Plans for programs: every number, as JSON and as CSV.

use std::io::Write;

use serde::Serialize;

use crate::plan::need::{JobPlan, Need, Plan, Shortage, Trial, Verdict};
use crate::plan::series::{Limit, Series};
use crate::report::parquet::Value;
use crate::report::{Column, Result, write_answer, write_rows};
use gmlake_core::cards::Target;

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

/// What an allocator needs for a rank, and for one of the devices that were asked about.
struct Row<'a> {
    job: &'a JobPlan,
    plan: &'a Plan,
    need: &'a Need,
    target: Option<(&'a Target, &'a Verdict)>,
}

fn columns<'a>() -> [Column<Row<'a>>; 18] {
    [
        ("job", |row| Value::text(&row.job.name)),
        ("file", |row| Value::text(&row.plan.file)),
        ("rank", |row| Value::whole(row.plan.rank)),
        ("allocator", |row| Value::text(&row.need.allocator)),
        ("options", |row| Value::text(row.need.options.join(" "))),
        ("live_peak_bytes", |row| Value::whole(row.plan.live_peak_bytes)),
        ("unlimited_bytes", |row| Value::whole(row.need.unlimited_bytes)),
        ("smallest_bytes", |row| Value::whole(row.need.smallest_bytes())),
        ("resolution_bytes", |row| Value::whole(row.plan.resolution_bytes)),
        ("alloc_retries", |row| Value::whole(row.need.smallest.map(|trial| trial.alloc_retries))),
        ("device_calls", |row| Value::whole(row.need.smallest.map(|trial| trial.device_calls))),
        ("below_oom_step", |row| Value::whole(row.below().and_then(|place| place.step))),
        ("below_oom_event", |row| Value::whole(row.below().map(|place| place.event))),
        ("target", |row| Value::Text(row.target.map(|(target, _)| target.name.clone()))),
        ("capacity_bytes", |row| Value::whole(row.trial().map(|trial| trial.capacity_bytes))),
        ("spare_bytes", |row| Value::whole(row.target.and_then(|(_, fit)| fit.spare_bytes))),
        ("oom_step", |row| Value::whole(row.there().and_then(|place| place.step))),
        ("oom_event", |row| Value::whole(row.there().map(|place| place.event))),
    ]
}

impl Row<'_> {
    /// Where memory runs out on a device that is a step too small.
    fn below(&self) -> Option<Shortage> {
        self.need.below?.shortage
    }

    fn trial(&self) -> Option<Trial> {
        self.target.map(|(_, verdict)| verdict.trial)
    }

    /// Where memory runs out on the device that was asked about.
    fn there(&self) -> Option<Shortage> {
        self.trial()?.shortage
    }
}

/// Writes a row for each rank, allocator and device; one with empty cells at the end where no device was asked about.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_csv(jobs: &[JobPlan], out: &mut dyn Write) -> Result<()> {
    let mut all = Vec::new();
    for job in jobs {
        for plan in &job.ranks {
            for need in &plan.needs {
                let row = |target| Row { job, plan, need, target };
                let targets = plan.targets.iter().zip(&need.verdicts);
                all.extend(targets.map(|target| row(Some(target))));
                if need.verdicts.is_empty() {
                    all.push(row(None));
                }
            }
        }
    }
    write_rows(&columns(), all, out)
}
