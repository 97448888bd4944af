//! Call stacks in a pickle: lists of frames, which are mostly shared, and labels, which are mostly not there.
//!
//! PyTorch makes a new list for each entry, of frames that all lists share. Frames are therefore looked up by their
//! number in the heap, and lists by the numbers of their frames.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::super::torch::Snapshot;
use super::super::{Entry, Result};
use super::document::{Document, MAX_NAME, Place};
use super::value::{Map, Value, text};
use gmlake_core::units::Bytes;

/// Frames and lists of frames that were met already, by their number in the heap. Shared ones are looked at once.
#[derive(Default)]
pub(super) struct StackNumbers {
    lists: FxHashMap<u32, u32>,
    /// Number of the frame that each dict of the heap is.
    frames: Vec<u32>,
    /// The list at hand.
    list: Vec<u32>,
}

const UNKNOWN: u32 = u32::MAX;

impl Document<'_> {
    /// The number of the stack of an entry, whose `list` is a list of the heap, or one with labels.
    #[inline]
    pub(super) fn stack(
        &self,
        list: u32,
        known: &mut StackNumbers,
        place: &Place,
        out: &mut Snapshot,
    ) -> Result<u32> {
        if !self.want_stacks || list == Entry::NO_STACK {
            return Ok(Entry::NO_STACK);
        }
        let (list, labels) = out.numbers.parts(list);
        let frames = match list {
            Entry::NO_STACK => out.stacks.list(&[]),
            list => self.frames(list, known, place, out)?,
        };
        let [context, metadata] = labels.map(|(at, len)| self.label(at, len));
        out.spend((context.len() + metadata.len()) as Bytes)?;
        Ok(out.stacks.stack(frames, &context, &metadata))
    }

    /// The number of the stack of a block in the final state.
    pub(super) fn block_stack(
        &self,
        block: Map,
        known: &mut StackNumbers,
        place: &Place,
        out: &mut Snapshot,
    ) -> Result<u32> {
        // PyTorch 2.0 kept the stack in the block's `history`, the newest first.
        let old = || self.field(self.latest_of_history(block)?, "frames");
        let frames = self.field(block, "frames").filter(|frames| !self.is_empty(*frames));
        match frames.or_else(old).filter(|_| self.want_stacks) {
            Some(Value::List(list) | Value::Tuple(list)) => self.stack(list, known, place, out),
            _ => Ok(Entry::NO_STACK),
        }
    }

    fn is_empty(&self, list: Value) -> bool {
        self.sequence(list).is_some_and(|list| self.heap.items(list).next().is_none())
    }

    fn label(&self, at: u64, len: u32) -> Cow<'_, str> {
        let bytes = text(self.bytes, Value::Str { len: len.min(MAX_NAME as u32), at });
        String::from_utf8_lossy(bytes.unwrap_or_default())
    }

    /// The number of the list of frames.
    fn frames(
        &self,
        list: u32,
        known: &mut StackNumbers,
        place: &Place,
        out: &mut Snapshot,
    ) -> Result<u32> {
        if let Some(&number) = known.lists.get(&list) {
            return Ok(number);
        }
        known.frames.resize(self.heap.dicts.len(), UNKNOWN);
        known.list.clear();
        let place = place.key("frames");
        for (index, item) in self.heap.items(self.heap.sequences[list as usize]).enumerate() {
            let number = match item {
                Value::Dict(dict) if known.frames[dict as usize] != UNKNOWN => {
                    known.frames[dict as usize]
                }
                _ => self.frame(item, known, &place.index(index), out)?,
            };
            known.list.push(number);
        }
        let number = out.stacks.list(&known.list);
        known.lists.insert(list, number);
        Ok(number)
    }

    fn frame(
        &self,
        item: Value,
        known: &mut StackNumbers,
        place: &Place,
        out: &mut Snapshot,
    ) -> Result<u32> {
        if let Some(whole) = text(self.bytes, item) {
            let whole = String::from_utf8_lossy(&whole[..whole.len().min(MAX_NAME)]);
            out.spend(whole.len() as Bytes)?;
            return Ok(out.stacks.frame_of_text(&whole));
        }
        let map = self.map(item, place)?;
        let part = |key| -> Result<_> {
            let text = self.string(map, key, place)?.unwrap_or(b"?");
            Ok(String::from_utf8_lossy(&text[..text.len().min(MAX_NAME)]))
        };
        let (file, function) = (part("filename")?, part("name")?);
        let line = self.field(map, "line").and_then(Value::as_u64).unwrap_or(0);
        out.spend((file.len() + function.len()) as Bytes)?;
        let number = out.stacks.frame(&file, line, &function);
        if let Value::Dict(dict) = item {
            known.frames[dict as usize] = number;
        }
        Ok(number)
    }
}
