//! The document: the values of a finished pickle, found by key and checked, with the path of each for an error.

use std::fmt;

use super::super::error::excerpt;
use super::super::{Position, Result, TraceError};
use super::value::{Dict, Heap, Map, Sequence, Value, text};

/// A finished pickle.
pub(super) struct Document<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) heap: Heap,
    pub(super) want_stacks: bool,
}

/// Where a value is: a chain on the call stack, written out only for an error.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    parent: Option<&'p Place<'p>>,
    part: Part<'p>,
}

#[derive(Clone, Copy)]
pub(super) enum Part<'p> {
    Root,
    Key(&'p str),
    Index(usize),
}

impl Place<'_> {
    /// The document itself.
    pub(super) const ROOT: Place<'static> = Place { parent: None, part: Part::Root };

    /// The value under a key of this one.
    pub(super) fn key<'p>(&'p self, key: &'p str) -> Place<'p> {
        Place { parent: Some(self), part: Part::Key(key) }
    }

    /// The item in this place of this one.
    pub(super) fn index(&self, index: usize) -> Place<'_> {
        Place { parent: Some(self), part: Part::Index(index) }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parent) = self.parent else { return f.write_str("snapshot") };
        parent.fmt(f)?;
        match self.part {
            Part::Root => Ok(()),
            Part::Key(key) => write!(f, ".{key}"),
            Part::Index(index) => write!(f, "[{index}]"),
        }
    }
}

pub(super) const REMEDY: &str = "a file of torch.cuda.memory._dump_snapshot is expected";

impl<'a> Document<'a> {
    pub(super) fn new(bytes: &'a [u8], heap: Heap, want_stacks: bool) -> Self {
        Self { bytes, heap, want_stacks }
    }

    pub(super) fn list(&self, value: Value, place: &Place) -> Result<impl Iterator<Item = Value>> {
        let sequence = self.sequence(value).ok_or_else(|| self.expected("a list", value, place))?;
        if sequence.frames_left_out {
            return Err(self.wrong(place, "is a list of stack frames"));
        }
        Ok(self.heap.items(sequence))
    }

    pub(super) fn sequence(&self, value: Value) -> Option<Sequence> {
        match value {
            Value::List(id) | Value::Tuple(id) => Some(self.heap.sequences[id as usize]),
            _ => None,
        }
    }

    pub(super) fn map(&self, value: Value, place: &Place) -> Result<Map> {
        let dict = match value {
            Value::Dict(dict) => self.heap.dicts[dict as usize],
            Value::Entry(entry) => Dict::Entry(entry),
            _ => return Err(self.expected("a dict", value, place)),
        };
        match dict {
            Dict::Map(map) => Ok(self.heap.maps[map as usize]),
            Dict::Empty => Err(self.wrong(place, "is an empty dict")),
            Dict::Entry(_) => Err(self.wrong(place, "is a trace entry, which has no place there")),
            Dict::Frame => Err(self.wrong(place, "is a stack frame, which has no place there")),
        }
    }

    /// The value under a key; Python's `None` counts as absent.
    pub(super) fn field(&self, map: Map, key: &str) -> Option<Value> {
        self.heap.get(self.bytes, map, key.as_bytes()).filter(|&value| value != Value::None)
    }

    pub(super) fn whole(&self, map: Map, key: &str, place: &Place) -> Result<Option<u64>> {
        let Some(value) = self.field(map, key) else { return Ok(None) };
        let number = match key {
            "addr" | "address" => value.address(self.bytes),
            _ => value.whole(self.bytes),
        };
        let wrong =
            || self.wrong_kind("a whole number from 0 to 2^64 - 1", value, &place.key(key), map.at);
        number.map(Some).ok_or_else(wrong)
    }

    pub(super) fn string(&self, map: Map, key: &str, place: &Place) -> Result<Option<&'a [u8]>> {
        let Some(value) = self.field(map, key) else { return Ok(None) };
        let wrong = || self.wrong_kind("a string", value, &place.key(key), map.at);
        text(self.bytes, value).map(Some).ok_or_else(wrong)
    }

    #[cold]
    fn wrong_kind(&self, expected: &str, found: Value, place: &Place, at: u64) -> TraceError {
        let shown = text(self.bytes, found).map(|text| format!(" ({:?})", excerpt(text)));
        let shown = shown.unwrap_or_default();
        self.wrong_at(place, at, &format!("is {}{shown}, but must be {expected}", found.kind()))
    }

    #[cold]
    fn expected(&self, expected: &str, found: Value, place: &Place) -> TraceError {
        self.wrong(place, &format!("is {}, but must be {expected}", found.kind()))
    }

    #[cold]
    pub(super) fn wrong(&self, place: &Place, problem: &str) -> TraceError {
        TraceError::new(Position::File, format!("{place} {problem}"), REMEDY)
    }

    #[cold]
    pub(super) fn wrong_at(&self, place: &Place, at: u64, problem: &str) -> TraceError {
        TraceError::new(position(place, at), problem, REMEDY)
    }
}

/// Longer names are cut.
pub(super) const MAX_NAME: usize = 1024;

/// The same for an error: by its path, and by how far the file was read.
pub(super) fn position(place: &Place, at: u64) -> Position {
    Position::Item(place.to_string(), at)
}
