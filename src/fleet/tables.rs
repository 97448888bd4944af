//! The tables that a fleet is written as: their columns, each with what it means.
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
    /// What one row is.
    pub row: &'static str,
    /// Names, kinds and meanings of its columns.
    pub columns: fn() -> Vec<(&'static str, Kind, &'static str)>,
}

/// All tables.
pub const TABLES: [Table; 4] = [
    Table { name: "runs", row: "one recording through one allocator", columns: || about(&runs()) },
    Table { name: "ranks", row: "one device of one recording", columns: || about(&ranks()) },
    Table { name: "steps", row: "one training step of one run", columns: || about(&steps()) },
    Table { name: "errors", row: "something that has no result", columns: || about(&errors()) },
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

/// A column: its name, kind, meaning, and a row's cell.
pub(super) type Column<R> = (&'static str, Kind, &'static str, fn(&R) -> Value);

pub(super) fn runs<'a>() -> Vec<Column<RunRow<'a>>> {
    vec![
        ("file", Kind::Text, "path of the recording", |row| path(row.file)),
        ("rank", Kind::Whole, "rank, from the path or the manifest", |row| rank(row.file)),
        ("device", Kind::Whole, "index of the device in the file", |row| {
            whole(row.run.device.into())
        }),
        ("allocator", Kind::Text, "name; `recorded` is what PyTorch itself did", |row| {
            text(&row.run.allocator)
        }),
        ("settings", Kind::Text, "what was varied, as `name=value`", |row| settings(row)),
        ("options", Kind::Text, "its options that differ from the defaults", |row| {
            text(&row.run.options.join(" "))
        }),
        (
            "device_memory_bytes",
            Kind::Whole,
            "memory of the device; empty: it never runs out",
            |row| Value::Whole(row.run.device_memory_bytes),
        ),
        ("events", Kind::Whole, "requests and frees", |row| whole(row.run.events)),
        ("requested_peak_bytes", Kind::Whole, "most bytes requested at any time", |row| {
            whole(row.run.requested_peak_bytes)
        }),
        ("active_peak_bytes", Kind::Whole, "most bytes in blocks in use", |row| {
            whole(row.run.active_peak_bytes)
        }),
        ("reserved_peak_bytes", Kind::Whole, "most physical memory reserved", |row| {
            whole(row.run.reserved_peak_bytes)
        }),
        ("utilization", Kind::Real, "active over reserved peak", |row| {
            Value::Real(row.run.utilization)
        }),
        ("oom_count", Kind::Whole, "requests that were not served", |row| whole(row.run.oom_count)),
        ("first_oom_event", Kind::Whole, "index of the first of them", |row| {
            Value::Whole(row.run.first_oom_event)
        }),
        ("first_oom_step", Kind::Whole, "its step, from 1", |row| {
            Value::Whole(row.run.first_oom_step)
        }),
        ("alloc_retries", Kind::Whole, "times that all free memory was released", |row| {
            whole(row.run.alloc_retries)
        }),
        ("device_calls", Kind::Whole, "driver calls", |row| whole(row.run.device_calls.total())),
        ("profile", Kind::Text, "device profile of the predicted time", |row| {
            Value::Text(row.run.prices.as_ref().map(|prices| prices.profile.clone()))
        }),
        ("predicted_driver_ns", Kind::Whole, "predicted time in driver calls", |row| {
            Value::Whole(row.run.predicted_driver_ns())
        }),
    ]
}

pub(super) fn ranks<'a>() -> Vec<Column<RankRow<'a>>> {
    vec![
        ("file", Kind::Text, "path of the recording", |row| path(row.file)),
        ("file_bytes", Kind::Whole, "its stored size", |row| whole(row.file.bytes)),
        ("rank", Kind::Whole, "rank, from the path or the manifest", |row| rank(row.file)),
        ("device", Kind::Whole, "index of the device in the file", |row| {
            whole(row.opened.trace.device.into())
        }),
        ("events", Kind::Whole, "requests and frees", |row| {
            whole(row.opened.trace.events.len() as u64)
        }),
        ("steps", Kind::Whole, "training steps found", |row| {
            whole(row.opened.trace.steps.len() as u64)
        }),
        ("span_us", Kind::Whole, "microseconds from the first to the last event", |row| {
            whole(row.opened.trace.span_us())
        }),
        ("recorded_by", Kind::Text, "allocator that the recording ran on", |row| {
            text(row.opened.recorded_by())
        }),
        ("settings", Kind::Text, "PyTorch's settings in the recording", |row| {
            Value::Text(row.opened.trace.settings.as_ref().map(|conf| conf.text.clone()))
        }),
        (
            "device_memory_bytes",
            Kind::Whole,
            "memory that PyTorch ran within, if it ran short",
            |row| Value::Whole(row.opened.limit.or(row.opened.capacity)),
        ),
        ("requested_peak_bytes", Kind::Whole, "most bytes requested at any time", |row| {
            whole(row.requested_peak_bytes)
        }),
        (
            "recorded_reserved_peak_bytes",
            Kind::Whole,
            "most physical memory PyTorch reserved",
            |row| Value::Whole(row.opened.recorded.as_ref().map(|run| run.reserved_peak_bytes)),
        ),
        (
            "coverage",
            Kind::Text,
            "how much of the job was recorded; `complete` or why not",
            |row| text(row.opened.coverage.kind().name()),
        ),
        ("notes", Kind::Text, "what was assumed, a sentence each", |row| {
            let notes = row.opened.all_notes().join("; ");
            Value::Text(Some(notes).filter(|notes| !notes.is_empty()))
        }),
    ]
}

pub(super) fn steps<'a>() -> Vec<Column<StepRow<'a>>> {
    vec![
        ("file", Kind::Text, "path of the recording", |row| path(row.run.file)),
        ("rank", Kind::Whole, "rank", |row| rank(row.run.file)),
        ("device", Kind::Whole, "index of the device", |row| whole(row.run.run.device.into())),
        ("allocator", Kind::Text, "name of the allocator", |row| text(&row.run.run.allocator)),
        ("settings", Kind::Text, "what was varied, as `name=value`", |row| settings(&row.run)),
        ("step", Kind::Whole, "number of the step, from 1", |row| whole(row.number as u64)),
        ("active_peak_bytes", Kind::Whole, "most bytes in blocks in use", |row| {
            whole(row.step.active_peak_bytes)
        }),
        ("reserved_peak_bytes", Kind::Whole, "most physical memory reserved", |row| {
            whole(row.step.reserved_peak_bytes)
        }),
        ("device_calls", Kind::Whole, "driver calls", |row| whole(row.step.device_calls.total())),
    ]
}

pub(super) fn errors<'a>() -> Vec<Column<ErrorRow<'a>>> {
    vec![
        ("file", Kind::Text, "path of the recording", |row| path(row.file)),
        ("rank", Kind::Whole, "rank", |row| rank(row.file)),
        ("problem", Kind::Text, "what is wrong, in a line", |row| text(row.problem)),
    ]
}

pub(super) fn cells<R>(columns: &[Column<R>], row: &R) -> Vec<Value> {
    columns.iter().map(|(_, _, _, get)| get(row)).collect()
}

/// Names and kinds, as a file of the table has them.
pub(super) fn heading<R>(columns: &[Column<R>]) -> Vec<(&'static str, Kind)> {
    columns.iter().map(|&(name, kind, _, _)| (name, kind)).collect()
}

fn about<R>(columns: &[Column<R>]) -> Vec<(&'static str, Kind, &'static str)> {
    columns.iter().map(|&(name, kind, what, _)| (name, kind, what)).collect()
}

fn path(file: &FileEntry) -> Value {
    text(&remote::shown(&file.path))
}

fn settings(row: &RunRow<'_>) -> Value {
    let settings = row.point.map_or(&[][..], |point| &point.settings);
    let one = |setting: &Setting| format!("{}={}", setting.name, setting.value);
    text(&settings.iter().map(one).collect::<Vec<_>>().join(" "))
}

const fn rank(file: &FileEntry) -> Value {
    Value::Whole(file.rank)
}

fn text(text: &str) -> Value {
    Value::Text(Some(text.to_owned()))
}

const fn whole(number: u64) -> Value {
    Value::Whole(Some(number))
}
