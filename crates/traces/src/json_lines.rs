//! Parts of a snapshot side by side, in place of a whole one: in a list, or one a line (JSON lines).
//!
//! ```text
//!   {"action": "alloc", "addr": 512, "size": 4096, "device": 0}      an entry; the device may be left out
//!   {"address": 0, "blocks": [...], ...}                             a segment
//!   {"name": "step", "stage": "START", "time_us": 5, "device": 0}    an annotation
//! ```

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::json_reader::{JsonEntry, Reader, device_of};
use super::options::LoadOptions;
use super::whole::Whole;
use super::{Position, Records, Result, TraceError};
use gmlake_core::reader_error;
use gmlake_core::units::Bytes;

/// Which part of a snapshot an object is, by its keys.
#[derive(Deserialize)]
struct Keys {
    action: Option<IgnoredAny>,
    blocks: Option<IgnoredAny>,
    stage: Option<IgnoredAny>,
    segments: Option<IgnoredAny>,
    device_traces: Option<IgnoredAny>,
}

/// The device of an entry. An annotation may be of none, -1.
#[derive(Deserialize)]
struct OfDevice {
    device: Option<Whole>,
}

impl Keys {
    fn of(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| reader_error::json(&error))
    }

    fn is_snapshot(&self) -> bool {
        self.segments.is_some() || self.device_traces.is_some()
    }

    fn is_part(&self) -> bool {
        let is_part = self.action.is_some() || self.blocks.is_some() || self.stage.is_some();
        is_part && !self.is_snapshot()
    }
}

/// Whether an object is a whole snapshot.
pub(super) fn is_snapshot(text: &str) -> bool {
    text.starts_with('{') && Keys::of(text).is_ok_and(|keys| keys.is_snapshot())
}

/// A first line that is longer is no part of a snapshot.
const LONGEST: usize = 1 << 20;
const REMEDY: &str =
    "a line is an entry of device_traces, a segment or an annotation, as an object";

/// Whether the first line is a part of a snapshot.
pub(super) fn is_lines(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    let head = &text[..text.len().min(LONGEST)];
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    line.starts_with('{') && Keys::of(line).is_ok_and(|keys| keys.is_part())
}

/// Hands an object to the reader as what it is.
pub(super) fn item<'de>(reader: &mut Reader<'de>, item: &'de RawValue) -> Result<(), String> {
    let text = item.get();
    let keys = Keys::of(text)?;
    let plain = |error: serde_json::Error| reader_error::json(&error);
    if keys.action.is_some() {
        let entry: JsonEntry = serde_json::from_str(text).map_err(plain)?;
        let OfDevice { device } = serde_json::from_str(text).map_err(plain)?;
        reader.entry(device_of(device)?, &entry)
    } else if keys.stage.is_some() {
        reader.annotation(serde_json::from_str(text).map_err(plain)?)
    } else {
        // Anything else may be a segment, or says what it lacks to be one.
        reader.segment(serde_json::from_str(text).map_err(plain)?)
    }
}

/// Reads one part a line. An error names the line, and what is wrong in it.
pub(super) fn read(bytes: &[u8], options: &LoadOptions, room: Bytes) -> Result<Vec<Records>> {
    let mut reader = Reader::new(options, room);
    let mut lines = serde_json::Deserializer::from_slice(bytes).into_iter::<&RawValue>();
    loop {
        let from = lines.byte_offset();
        let line = || {
            let begin = bytes[from..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            bytes[..from + begin].iter().filter(|&&byte| byte == b'\n').count() as u64 + 1
        };
        let fail = |problem| TraceError::new(Position::Line(line()), problem, REMEDY);
        match lines.next() {
            None => break,
            Some(Err(error)) if error.is_eof() => {
                reader.snapshot.cut(0, format!("the file ends in the middle of line {}", line()));
                break;
            }
            Some(Err(error)) => return Err(fail(reader_error::json(&error))),
            Some(Ok(line)) => item(&mut reader, line).map_err(fail)?,
        }
    }
    reader.snapshot.finish()
}
