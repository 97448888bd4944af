//! Answers: the JSON of every command, which has one shape.
//!
//! ```text
//!   {"schema_version": 2, "tool_version": "0.1.0", "command": "blame", "result": ...}
//! ```
//!
//! `python -m gmlake` writes the same (`answer.py`). `docs/json.md` says what each result is.

use std::io::{self, Write};

use serde::Serialize;

use super::Result;

/// Version of all JSON; raised when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 2;

#[derive(Serialize)]
struct Answer<'a, T: ?Sized> {
    schema_version: u32,
    tool_version: &'static str,
    command: &'a str,
    result: &'a T,
}

/// Writes the result of a command as JSON, with a line break at its end.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_answer(
    command: &str,
    result: &(impl Serialize + ?Sized),
    out: &mut dyn Write,
) -> Result<()> {
    let tool_version = env!("CARGO_PKG_VERSION");
    let answer = Answer { schema_version: SCHEMA_VERSION, tool_version, command, result };
    serde_json::to_writer_pretty(&mut *out, &answer).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}
