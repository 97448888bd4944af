//! The traces: the entries of each device, taken out of a finished pickle.
//!
//! In a file of PyTorch every entry is in one list, and the lists follow each other as the entries do in the heap. Then
//! nothing is copied: the heap's table becomes the records.
//!
//! ```text
//!   heap.entries   0 1 2 3 4 | 5 6 7 8         lists   [run 0..4, odd, entry 4]   [run 5..9]
//!                  device 0    device 1                 device 0                   device 1
//! ```
//!
//! Anything else (an entry in two lists, lists in another order, frees that stand for two entries) is taken entry by
//! entry.

use std::ops::Range;

use super::super::torch::{RawAction, RawEntry, Snapshot};
use super::super::{Entry, Result};
use super::document::{Document, Place};
use super::stacks::StackNumbers;
use super::value::{Dict, Value};

/// The entries of one device: a range of the heap's.
struct Whole {
    range: Range<usize>,
    /// What is no plain entry: its place in the list, how many entries come before it, and what it is.
    odd: Vec<(usize, usize, Value)>,
}

/// Odd items, above which the entries are taken one by one.
const MOST_ODD: usize = 100_000;

impl Document<'_> {
    /// Hands the entries of every device to `out`.
    pub(super) fn device_traces(
        &mut self,
        value: Value,
        place: &Place,
        stacks: &mut StackNumbers,
        out: &mut Snapshot,
    ) -> Result<()> {
        let traces: Vec<Value> = self.list(value, place)?.collect();
        if u32::try_from(traces.len()).is_err() {
            return Err(self.wrong(place, "has a device too many"));
        }
        match self.in_order(&traces) {
            Some(whole) => self.take_whole(&whole, place, stacks, out),
            None => self.take_each(&traces, place, stacks, out),
        }
    }

    /// The entries of each device as ranges that follow each other from the heap's first on.
    fn in_order(&self, traces: &[Value]) -> Option<Vec<Whole>> {
        let mut whole = Vec::new();
        let (mut next, mut most_odd) = (0, MOST_ODD);
        for &trace in traces {
            let list = self.sequence(trace).filter(|list| !list.frames_left_out)?;
            let (first, mut odd, mut index) = (next, Vec::new(), 0);
            for value in self.heap.values(list) {
                let count = match (value, self.number(value)) {
                    (Value::Run { first, count }, _) if first as usize == next => count as usize,
                    (_, Some(number)) if number as usize == next => 1,
                    (Value::Dict(_), None) if most_odd > 0 => {
                        most_odd -= 1;
                        odd.push((index, next - first, value));
                        0
                    }
                    _ => return None,
                };
                next += count;
                index += count.max(1);
            }
            whole.push(Whole { range: first..next, odd });
        }
        let is_plain = |entry: &RawEntry| matches!(entry.action, RawAction::Known(_));
        // What comes behind them, such as pinned memory of the host, is of no device.
        self.heap.entries[..next].iter().all(is_plain).then_some(whole)
    }

    fn take_whole(
        &mut self,
        whole: &[Whole],
        place: &Place,
        stacks: &mut StackNumbers,
        out: &mut Snapshot,
    ) -> Result<()> {
        let mut entries = std::mem::take(&mut self.heap.entries);
        entries.truncate(whole.last().map_or(0, |last| last.range.end));
        for (device, Whole { range, odd }) in whole.iter().enumerate() {
            let place = place.index(device);
            for &(index, at, item) in odd {
                self.odd_entry(item, (device as u32, at), &place.index(index), out)?;
            }
            if self.want_stacks {
                // A free often has the stack of the entry before it.
                let (mut last, mut number) = (Entry::NO_STACK, Entry::NO_STACK);
                for (index, entry) in entries[range.clone()].iter_mut().enumerate() {
                    if entry.stack != last {
                        last = entry.stack;
                        number = self.stack(last, stacks, &place.index(index), out)?;
                    }
                    entry.stack = number;
                }
            }
        }
        // From the last on, so that the first keeps its place.
        for (device, Whole { range, .. }) in whole.iter().enumerate().rev() {
            if range.start == 0 && !range.is_empty() {
                return out.entries(device as u32, entries, self.want_stacks);
            }
            let tail = entries.split_off(range.start);
            out.entries(device as u32, tail, self.want_stacks)?;
            entries.shrink_to_fit();
        }
        Ok(())
    }

    fn take_each(
        &self,
        traces: &[Value],
        place: &Place,
        stacks: &mut StackNumbers,
        out: &mut Snapshot,
    ) -> Result<()> {
        for (device, &trace) in traces.iter().enumerate() {
            let (place, device) = (place.index(device), device as u32);
            for (index, item) in self.list(trace, &place)?.enumerate() {
                let Some(number) = self.number(item) else {
                    let at = (device, out.entries_of(device));
                    self.odd_entry(item, at, &place.index(index), out)?;
                    continue;
                };
                let mut raw = self.heap.entries[number as usize];
                raw.stack = self.stack(raw.stack, stacks, &place.index(index), out)?;
                out.entry(device, &raw)?;
            }
        }
        Ok(())
    }

    /// Whether a value is an entry.
    pub(super) fn is_entry(&self, value: Value) -> bool {
        self.number(value).is_some()
    }

    /// Hands a bare list of entries to `out`.
    pub(super) fn entries_of_one(
        &self,
        list: Value,
        stacks: &mut StackNumbers,
        out: &mut Snapshot,
    ) -> Result<()> {
        self.take_each(&[list], &Place::ROOT, stacks, out)
    }

    /// The number of the entry that a value is.
    #[inline]
    fn number(&self, value: Value) -> Option<u32> {
        match value {
            Value::Entry(entry) => Some(entry),
            Value::Dict(dict) => match self.heap.dicts[dict as usize] {
                Dict::Entry(entry) => Some(entry),
                _ => None,
            },
            _ => None,
        }
    }
}
