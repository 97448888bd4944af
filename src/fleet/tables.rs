//! The tables that a fleet is written as: their columns. `docs/fleet.md` says what each means.
//!
//! Job and date are columns of every table, too: they are in the names of the folders, as Hive, Spark, DuckDB and
//! pandas read them. A column that is added is a line here and in `docs/fleet.md`; one that changes its meaning or goes
//! raises [`SCHEMA_VERSION`]. Times that this machine took are in no table, so that the same input gives the same
//! bytes.

use super::listing::FileEntry;
use crate::remote;
use crate::report::parquet::{Kind, Value};
use crate::run::{RunSummary, StepSummary};
use crate::sim::Opened;
use crate::sweep::{Point, Setting};

/// Version of the columns.
pub const SCHEMA_VERSION: u32 = 1;

/// A table.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Its name, that of its folder.
    pub name: &'static str,
    /// Names and kinds of its columns.
    pub columns: fn() -> Vec<(&'static str, Kind)>,
}

/// All tables.
pub const TABLES: [Table; 4] = [
    Table { name: "runs", columns: || heading(&runs()) },
    Table { name: "ranks", columns: || heading(&ranks()) },
    Table { name: "steps", columns: || heading(&steps()) },
    Table { name: "errors", columns: || heading(&errors()) },
];

/// One recording through one allocator; without a point it is what the recording itself says.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunRow<'a> {
    pub(super) file: &'a FileEntry,
    pub(super) run: &'a RunSummary,
    pub(super) point: Option<&'a Point>,
}

/// One device of one recording.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankRow<'a> {
    pub(super) file: &'a FileEntry,
    pub(super) opened: &'a Opened,
    /// Most bytes asked for at any time.
    pub(super) requested_peak_bytes: u64,
}

/// One training step of a run, counted from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepRow<'a> {
    pub(super) run: RunRow<'a>,
    pub(super) number: usize,
    pub(super) step: &'a StepSummary,
}

/// What has no result.
#[derive(Debug, Clone, Copy)]
pub(super) struct ErrorRow<'a> {
    pub(super) file: &'a FileEntry,
    pub(super) problem: &'a str,
}

/// A column: its name, kind, and a row's cell.
pub(super) type Column<R> = (&'static str, Kind, fn(&R) -> Value);

pub(super) fn runs<'a>() -> Vec<Column<RunRow<'a>>> {
    vec![
        ("file", Kind::Text, |row| path(row.file)),
        ("rank", Kind::Whole, |row| Value::whole(row.file.rank)),
        ("device", Kind::Whole, |row| Value::whole(u64::from(row.run.device))),
        ("allocator", Kind::Text, |row| Value::text(&row.run.allocator)),
        ("settings", Kind::Text, |row| settings(row)),
        ("options", Kind::Text, |row| Value::text(row.run.options.join(" "))),
        ("device_memory_bytes", Kind::Whole, |row| Value::whole(row.run.device_memory_bytes)),
        ("events", Kind::Whole, |row| Value::whole(row.run.events)),
        ("requested_peak_bytes", Kind::Whole, |row| Value::whole(row.run.requested_peak_bytes)),
        ("active_peak_bytes", Kind::Whole, |row| Value::whole(row.run.active_peak_bytes)),
        ("reserved_peak_bytes", Kind::Whole, |row| Value::whole(row.run.reserved_peak_bytes)),
        ("utilization", Kind::Real, |row| Value::Real(row.run.utilization)),
        ("oom_count", Kind::Whole, |row| Value::whole(row.run.oom_count)),
        ("first_oom_event", Kind::Whole, |row| Value::whole(row.run.first_oom_event)),
        ("first_oom_step", Kind::Whole, |row| Value::whole(row.run.first_oom_step)),
        ("alloc_retries", Kind::Whole, |row| Value::whole(row.run.alloc_retries)),
        ("device_calls", Kind::Whole, |row| Value::whole(row.run.device_calls.total())),
        ("profile", Kind::Text, |row| {
            Value::Text(row.run.prices.as_ref().map(|prices| prices.profile.clone()))
        }),
        ("predicted_driver_ns", Kind::Whole, |row| Value::whole(row.run.predicted_driver_ns())),
    ]
}

pub(super) fn ranks<'a>() -> Vec<Column<RankRow<'a>>> {
    vec![
        ("file", Kind::Text, |row| path(row.file)),
        ("file_bytes", Kind::Whole, |row| Value::whole(row.file.bytes)),
        ("rank", Kind::Whole, |row| Value::whole(row.file.rank)),
        ("device", Kind::Whole, |row| Value::whole(u64::from(row.opened.trace.device))),
        ("events", Kind::Whole, |row| Value::whole(row.opened.trace.events.len() as u64)),
        ("steps", Kind::Whole, |row| Value::whole(row.opened.trace.steps.len() as u64)),
        ("span_us", Kind::Whole, |row| Value::whole(row.opened.trace.span_us())),
        ("recorded_by", Kind::Text, |row| Value::text(row.opened.recorded_by())),
        ("settings", Kind::Text, |row| {
            Value::Text(row.opened.trace.settings.as_ref().map(|conf| conf.text.clone()))
        }),
        ("device_memory_bytes", Kind::Whole, |row| {
            Value::whole(row.opened.limit.or(row.opened.capacity))
        }),
        ("requested_peak_bytes", Kind::Whole, |row| Value::whole(row.requested_peak_bytes)),
        ("recorded_reserved_peak_bytes", Kind::Whole, |row| {
            Value::whole(row.opened.recorded.as_ref().map(|run| run.reserved_peak_bytes))
        }),
        ("coverage", Kind::Text, |row| Value::text(row.opened.coverage.kind().name())),
        ("notes", Kind::Text, |row| {
            let notes = row.opened.all_notes().join("; ");
            Value::Text(Some(notes).filter(|notes| !notes.is_empty()))
        }),
    ]
}

pub(super) fn steps<'a>() -> Vec<Column<StepRow<'a>>> {
    vec![
        ("file", Kind::Text, |row| path(row.run.file)),
        ("rank", Kind::Whole, |row| Value::whole(row.run.file.rank)),
        ("device", Kind::Whole, |row| Value::whole(u64::from(row.run.run.device))),
        ("allocator", Kind::Text, |row| Value::text(&row.run.run.allocator)),
        ("settings", Kind::Text, |row| settings(&row.run)),
        ("step", Kind::Whole, |row| Value::whole(row.number as u64)),
        ("active_peak_bytes", Kind::Whole, |row| Value::whole(row.step.active_peak_bytes)),
        ("reserved_peak_bytes", Kind::Whole, |row| Value::whole(row.step.reserved_peak_bytes)),
        ("device_calls", Kind::Whole, |row| Value::whole(row.step.device_calls.total())),
    ]
}

pub(super) fn errors<'a>() -> Vec<Column<ErrorRow<'a>>> {
    vec![
        ("file", Kind::Text, |row| path(row.file)),
        ("rank", Kind::Whole, |row| Value::whole(row.file.rank)),
        ("problem", Kind::Text, |row| Value::text(row.problem)),
    ]
}

pub(super) fn cells<R>(columns: &[Column<R>], row: &R) -> Vec<Value> {
    columns.iter().map(|(.., get)| get(row)).collect()
}

/// Names and kinds, as a file of the table has them.
pub(super) fn heading<R>(columns: &[Column<R>]) -> Vec<(&'static str, Kind)> {
    columns.iter().map(|&(name, kind, _)| (name, kind)).collect()
}

fn path(file: &FileEntry) -> Value {
    Value::text(remote::shown(&file.path))
}

fn settings(row: &RunRow<'_>) -> Value {
    let settings = row.point.map_or(&[][..], |point| &point.settings);
    let one = |setting: &Setting| format!("{}={}", setting.name, setting.value);
    Value::text(settings.iter().map(one).collect::<Vec<_>>().join(" "))
}
