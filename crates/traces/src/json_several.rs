//! Several snapshots in one JSON file: found without being read.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::json_lines::is_snapshot;

/// The snapshots of a file.
#[derive(Debug, Default)]
pub(super) struct Found<'a> {
    /// The text of each, in order.
    pub(super) texts: Vec<&'a str>,
    /// Whether they are documents of their own, one behind the other, and not the items of a list or a dict.
    pub(super) are_documents: bool,
    /// What is behind the last document that is complete.
    pub(super) rest: &'a [u8],
}

/// Finds the snapshots in a text.
pub(super) fn find(bytes: &[u8]) -> Found<'_> {
    let mut found = Found { are_documents: true, ..Found::default() };
    let mut documents = serde_json::Deserializer::from_slice(bytes).into_iter::<&RawValue>();
    while let Some(Ok(document)) = documents.next() {
        let text = document.get();
        found.rest = bytes[documents.byte_offset()..].trim_ascii_start();
        if is_snapshot(text) {
            found.texts.push(text);
        } else if let Ok(Values(values)) = serde_json::from_str(text) {
            let inside = values.into_iter().map(RawValue::get).filter(|text| is_snapshot(text));
            let before = found.texts.len();
            found.texts.extend(inside);
            found.are_documents &= found.texts.len() == before;
        }
    }
    found
}

/// The values of an object or the items of a list, in order.
struct Values<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Values<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Collect).map(Self)
    }
}

struct Collect;

impl<'de> Visitor<'de> for Collect {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some((IgnoredAny, value)) = map.next_entry()? {
            values.push(value);
        }
        Ok(values)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(values)
    }
}
