//! Trace entries and stack frames, recognised by their keys the moment their dict is filled.
//!
//! Nearly all dicts of a snapshot are trace entries. As values they would take 128 bytes each; known by their keys they
//! become a [`RawEntry`] of 32 at once. This decides nothing about their *meaning*: only those that are later found in
//! `device_traces` count, and a dict that merely looks like one is either well-formed and ignored elsewhere, or kept in
//! the general form, so that the error can say what is wrong with it.

use super::super::numbers::{NO_LABELS, Numbers};
use super::super::stack_table::NOT_COMPILED;
use super::super::torch::{RawAction, RawEntry};
use super::code::Fallible;
use super::value::{Heap, Value, text};

/// Keys and values in turn, as they lie on the stack.
#[derive(Clone, Copy)]
pub(super) struct Pairs<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) heap: &'a Heap,
    pub(super) items: &'a [Value],
    /// Whether labels are kept next to the stacks.
    pub(super) want_stacks: bool,
}

const HAS_ACTION: u8 = 1;
const HAS_ADDRESS: u8 = 2;
const HAS_SIZE: u8 = 4;

impl Pairs<'_> {
    /// The trace entry, if the keys are an entry's and all values are of the right kind.
    pub(super) fn entry(&self, numbers: &mut Numbers) -> Fallible<Option<RawEntry>> {
        let mut entry = RawEntry::default();
        let is_complete = HAS_ACTION | HAS_ADDRESS | HAS_SIZE;
        Ok(match self.apply(&mut entry, numbers)? {
            // Those of an unknown kind keep their name for the warning.
            Ok(seen) if seen == is_complete && entry.action != RawAction::Unknown => Some(entry),
            _ => None,
        })
    }

    /// Whether these are the items of a stack frame.
    pub(super) fn is_frame(&self) -> bool {
        let has = |name: &[u8]| self.keys().any(|key| text(self.bytes, key) == Some(name));
        has(b"filename") && has(b"line") && has(b"name")
    }

    /// Sets the fields of `entry` that are among the items. Returns which of the necessary ones were there, or the key
    /// whose value is of the wrong kind.
    #[inline]
    pub(super) fn apply(
        &self,
        entry: &mut RawEntry,
        numbers: &mut Numbers,
    ) -> Fallible<Result<u8, &'static str>> {
        let mut seen = 0;
        for pair in self.items.chunks_exact(2) {
            let (Some(key), value) = (text(self.bytes, pair[0]), pair[1]) else { continue };
            let number = match key {
                b"addr" => value.address(self.bytes),
                _ => value.whole(self.bytes),
            };
            match (key, number) {
                (b"action", _) => {
                    let Some(name) = text(self.bytes, value) else { return Ok(Err("action")) };
                    entry.action = RawAction::from_name(name);
                    seen |= HAS_ACTION;
                }
                (b"addr" | b"device_free", Some(addr)) => {
                    entry.addr = addr;
                    seen |= HAS_ADDRESS;
                }
                (b"size", Some(size)) => {
                    entry.size = size;
                    seen |= HAS_SIZE;
                }
                (b"stream", Some(handle)) => entry.stream = numbers.stream(handle)?,
                (b"time_us", Some(time)) => entry.time_us = time,
                (b"frames", _) => match value {
                    Value::List(list) | Value::Tuple(list) => entry.stack = list,
                    Value::None => {}
                    _ => return Ok(Err("frames")),
                },
                (b"pool_id", _) => match self.heap.pair(value) {
                    Some(pool) => {
                        entry.pool = numbers.pool(pool)?;
                        numbers.entries_have_pools = true;
                    }
                    None => return Ok(Err("pool_id")),
                },
                (b"compile_context", _) => numbers.entries_have_labels[0] = true,
                (b"user_metadata", _) => numbers.entries_have_labels[1] = true,
                (b"addr" | b"device_free", None) => return Ok(Err("addr")),
                (b"size", None) => return Ok(Err("size")),
                (b"stream", None) => return Ok(Err("stream")),
                (b"time_us", None) => return Ok(Err("time_us")),
                _ => {}
            }
        }
        if self.want_stacks {
            entry.stack = self.labelled(entry.stack, numbers)?;
        }
        Ok(Ok(seen))
    }

    /// The number of a list of frames with the labels that are among the items; that of the list, if there are none.
    #[cold]
    fn labelled(&self, list: u32, numbers: &mut Numbers) -> Fallible<u32> {
        // An entry that is changed has labels already.
        let (list, mut labels) = numbers.parts(list);
        for pair in self.items.chunks_exact(2) {
            match text(self.bytes, pair[0]) {
                Some(b"compile_context") => labels[0] = self.label(pair[1], NOT_COMPILED),
                Some(b"user_metadata") => labels[1] = self.label(pair[1], ""),
                _ => {}
            }
        }
        Ok(if labels == NO_LABELS { list } else { numbers.label(list, labels)? })
    }

    /// Place and length of a label, if it is a text that says something.
    fn label(&self, value: Value, nothing: &str) -> (u64, u32) {
        match (text(self.bytes, value), value) {
            (Some(text), Value::Str { at, len }) if len > 0 && text != nothing.as_bytes() => {
                (at, len)
            }
            _ => (0, 0),
        }
    }

    fn keys(&self) -> impl Iterator<Item = Value> {
        self.items.chunks_exact(2).map(|pair| pair[0])
    }
}
