//! RMM's log: what RAPIDS' `logging_resource_adaptor` writes, in C++ and in Python (`rmm.enable_logging`).
//!
//! ```text
//!   Thread,Time,Action,Pointer,Size,Stream
//!   2342727,15:47:02.841961,allocate,0x10012400000,1048576,0        Time: of the day. Size: bytes, as requested.
//!   2342727,15:47:02.841977,free,0x10012400000,1048576,0            Stream: a handle, in hexadecimal.
//!   2342727,15:47:03.000412,allocate failure,(nil),9663676416,0
//! ```
//!
//! A free is stream-ordered: it is complete when it is logged. The log is buffered, so that its last line may be cut.

use ::csv::StringRecord;

use super::csv::{self, number};
use super::error::excerpt;
use super::json::BYTE_ORDER_MARK;
use super::options::LoadOptions;
use super::torch::{RawAction, RawEntry, Snapshot};
use super::{Action, Position, Records, Result, TraceError};
use gmlake_core::units::Bytes;

const COLUMNS: [&str; 6] = ["thread", "time", "action", "pointer", "size", "stream"];
const REMEDY: &str = "a log of RMM's logging_resource_adaptor is expected: \
                      Thread,Time,Action,Pointer,Size,Stream";
const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// Whether the first line is RMM's header.
pub(super) fn is_log(bytes: &[u8]) -> bool {
    separator(bytes).is_some()
}

fn separator(bytes: &[u8]) -> Option<u8> {
    let has_all = |names: &[Vec<u8>]| {
        ["thread", "action", "pointer", "size"]
            .iter()
            .all(|column| names.iter().any(|name| name == column.as_bytes()))
    };
    csv::separator(bytes, has_all)
}

/// Reads a log. An error names the line, and what is wrong in it.
pub(super) fn read(bytes: &[u8], options: &LoadOptions, room: Bytes) -> Result<Vec<Records>> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut reader = csv::rows(bytes, separator(bytes).unwrap_or(b','));
    let names = csv::names(reader.headers().map_err(|error| csv::damaged(&error))?);
    let at = COLUMNS.map(|column| names.iter().position(|name| name == column));
    let mut log = Log { at, snapshot: Snapshot::new(options.torch_version, room), last_us: 0 };
    let cut = csv::each_row(&mut reader, bytes, |row, line| {
        log.row(row).map_err(|problem| TraceError::new(Position::Line(line), problem, REMEDY))
    })?;
    log.snapshot.cut_if(cut);
    log.snapshot.finish()
}

const TIME: usize = 1;
const ACTION: usize = 2;
const POINTER: usize = 3;
const SIZE: usize = 4;
const STREAM: usize = 5;

/// A log half read.
struct Log {
    /// The place of each of [`COLUMNS`].
    at: [Option<usize>; COLUMNS.len()],
    snapshot: Snapshot,
    last_us: u64,
}

impl Log {
    fn cell<'r>(&self, row: &'r StringRecord, column: usize) -> Option<&'r str> {
        row.get(self.at[column]?)
    }

    /// Takes the next row; an error says what is wrong with it.
    fn row(&mut self, row: &StringRecord) -> Result<(), String> {
        let text = |column| self.cell(row, column).unwrap_or_default();
        let action = match text(ACTION) {
            "allocate" => RawAction::Known(Action::Alloc),
            "free" => RawAction::Free,
            "allocate failure" => RawAction::Known(Action::Oom),
            other => {
                let other = excerpt(other.as_bytes());
                return Err(format!(
                    "Action \"{other}\" is none of allocate, free, allocate failure"
                ));
            }
        };
        let size = number("Size", text(SIZE), None)?;
        let pointer = match text(POINTER) {
            "(nil)" => 0,
            text => number("Pointer", text, None)?,
        };
        let time_us = match text(TIME) {
            "" => 0,
            text => self.time(text).ok_or_else(|| {
                format!(
                    "Time \"{}\" is no time of a day, HH:MM:SS.ffffff",
                    excerpt(text.as_bytes())
                )
            })?,
        };
        let stream = match text(STREAM) {
            "(nil)" => 0,
            text => handle(text)?,
        };
        self.last_us = time_us;
        // A buffer of no bytes has no memory.
        if size == 0 {
            return Ok(());
        }
        let stream = self.snapshot.numbers.stream(stream).map_err(|error| error.problem)?;
        let addr = if action == RawAction::Known(Action::Oom) { 0 } else { pointer };
        let raw = RawEntry { addr, size, time_us, stream, action, ..RawEntry::default() };
        self.snapshot.entry(0, &raw).map_err(|error| error.problem)
    }

    /// Microseconds since the midnight before the first row. Days are counted by the clock's falling back.
    fn time(&self, text: &str) -> Option<u64> {
        let mut parts = text.splitn(3, ':');
        let (hours, minutes) = (parts.next()?.parse::<u64>(), parts.next().map(str::parse::<u64>));
        let since = match (hours, minutes, parts.next()) {
            (Ok(hours), Some(Ok(minutes)), Some(seconds)) => {
                // Older versions separate the fraction by a colon, too.
                let seconds: f64 = seconds.replacen(':', ".", 1).parse().ok()?;
                let is_time = hours < 24 && minutes < 60 && (0.0..61.0).contains(&seconds);
                let micros = (seconds * 1e6).round() as u64;
                is_time.then_some((hours * 60 + minutes) * 60_000_000 + micros)?
            }
            // Seconds since 1970.
            (_, None, None) => {
                let seconds: f64 = text.parse().ok().filter(|at: &f64| (0.0..1e12).contains(at))?;
                return Some((seconds * 1e6).round() as u64);
            }
            _ => return None,
        };
        let days = self.last_us / DAY_US;
        let is_next = since + DAY_US / 2 < self.last_us % DAY_US;
        Some(since + (days + u64::from(is_next)) * DAY_US)
    }
}

/// A stream's handle, in hexadecimal with or without `0x`.
fn handle(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let wrong = || {
        let text = excerpt(text.as_bytes());
        format!("Stream is \"{text}\", but must be a handle in hexadecimal")
    };
    if digits.is_empty() && text.is_empty() {
        return Ok(0);
    }
    u64::from_str_radix(digits, 16).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(last_us: u64) -> Log {
        Log { at: [None; 6], snapshot: Snapshot::new(None, 1 << 20), last_us }
    }

    #[test]
    fn times_go_on_at_midnight() {
        let before = log(0).time("23:59:59.500000").unwrap();
        assert_eq!(before, DAY_US - 500_000);
        assert_eq!(log(before).time("00:00:00:250000"), Some(DAY_US + 250_000));
        // Another thread's row may be a little early.
        assert_eq!(log(before).time("23:59:59.499999"), Some(before - 1));
        assert_eq!(log(DAY_US + 5).time("12:00:00.0"), Some(DAY_US + DAY_US / 2));
        assert_eq!(log(0).time("1634567890.123456"), Some(1_634_567_890_123_456));
        for wrong in ["24:00:00", "1:2", "a:b:c", "", "NaN", "10:00:99"] {
            assert_eq!(log(0).time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn handles_are_hexadecimal() {
        let handles = ["0", "0x0", "7f8a38001020", "0x7f8a38001020", ""].map(handle);
        let (zero, one) = (Ok(0), Ok(0x7f8a_3800_1020));
        assert_eq!(handles, [zero.clone(), zero.clone(), one.clone(), one, zero]);
        assert!(handle("stream").is_err());
    }
}
