//! Texts of an out-of-memory in the place of a recording: explained, where a command can answer without events.

use anyhow::{Error, Result};
use gmlake::blame::show::{message_sections, text};
use gmlake::blame::{Message, explain};
use gmlake::sim::FileError;
use gmlake::trace::TraceError;
use serde::Serialize;

use crate::terminal;

/// What was found about a file, for JSON.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Found<T, M = Message> {
    /// A recording.
    Recording(T),
    /// A text.
    Message(M),
}

/// The explanation of a file that could not be opened because it is such a text.
pub(crate) fn explained(error: &Error) -> Option<Message> {
    let trace = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(FileError::Trace(trace)) => Some(trace),
        _ => cause.downcast_ref::<TraceError>(),
    })?;
    let file = if trace.path == "-" { "standard input" } else { &trace.path };
    Some(explain(file, trace.text.as_deref()?))
}

/// The texts among files that could not be opened, and the other failures.
pub(crate) fn apart(failures: Vec<Error>) -> (Vec<Message>, Vec<Error>) {
    let (mut messages, mut others) = (Vec::new(), Vec::new());
    for error in failures {
        match explained(&error) {
            Some(message) => messages.push(message),
            None => others.push(error),
        }
    }
    (messages, others)
}

/// Prints explanations, as JSON if that is wanted.
pub(crate) fn show(messages: &[Message], as_json: bool) -> Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    if as_json {
        return Ok(terminal::print_json("compare", &messages)?);
    }
    let sections: Vec<_> = messages.iter().flat_map(message_sections).collect();
    Ok(terminal::print(&text(&sections, terminal::look()))?)
}
