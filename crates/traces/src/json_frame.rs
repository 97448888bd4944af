//! A frame of a call stack in JSON.

use std::borrow::Cow;

use serde::Deserialize;

use super::stack_table::StackTable;

/// A frame: a dict, or one text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a frame is a dict or a text")]
pub(super) enum JsonFrame<'a> {
    Parts {
        #[serde(borrow)]
        name: Option<Cow<'a, str>>,
        #[serde(borrow)]
        filename: Option<Cow<'a, str>>,
        line: Option<u64>,
    },
    Text(#[serde(borrow)] Cow<'a, str>),
}

impl JsonFrame<'_> {
    /// The number of the frame in `table`.
    pub(super) fn number(&self, table: &mut StackTable) -> u32 {
        match self {
            Self::Text(text) => table.frame_of_text(text),
            Self::Parts { name, filename, line } => {
                let part =
                    |part: &Option<Cow<str>>| part.clone().unwrap_or("?".into()).into_owned();
                table.frame(&part(filename), line.unwrap_or(0), &part(name))
            }
        }
    }
}
