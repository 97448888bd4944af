//! Containers: the operations that fill lists, tuples and dicts with what lies on the machine's stack.
//!
//! ```text
//!   stack   ... ]  │ 1  2  3      APPENDS      ... [1, 2, 3]
//!               └──┴─ the last mark: what lies above it goes into what lies below
//! ```

use super::code::Fallible;
use super::entry;
use super::machine::Machine;
use super::value::{Dict, Value};

/// Lists that are not complete, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) lists: Vec<u32>,
}

impl Machine<'_> {
    pub(super) fn new_list(&mut self, at: usize) -> Fallible<()> {
        let list = self.heap.sequence(&[])?;
        self.heap.room.reserve(&mut self.stack, 1)?;
        self.stack.insert(at, Value::List(list));
        self.append(at + 1)
    }

    pub(super) fn new_tuple(&mut self, at: usize) -> Fallible<()> {
        let tuple = self.heap.sequence(&self.stack[at..])?;
        self.stack.truncate(at);
        self.push(Value::Tuple(tuple))
    }

    pub(super) fn new_dict(&mut self) -> Fallible<()> {
        let at = self.pop_mark()?;
        let dict = self.heap.dict()?;
        self.heap.room.reserve(&mut self.stack, 1)?;
        self.stack.insert(at, dict);
        self.update(at + 1)
    }

    #[inline]
    pub(super) fn set_items(&mut self) -> Fallible<()> {
        let at = self.pop_mark()?;
        self.update(at)
    }

    /// Moves the values from place `at` on, keys and values in turn, into the dict below them.
    #[inline]
    pub(super) fn update(&mut self, at: usize) -> Fallible<()> {
        // The dict may be the last of a run.
        let below = at.saturating_sub(1).max(self.floor);
        let folded = self.stack[below..at].first().map_or(1, |value| value.each().count());
        self.unfold(below)?;
        let at = at + folded - 1;
        let dict = match at.checked_sub(1).filter(|&below| below >= self.floor) {
            Some(below) => self.stack[below],
            None => Value::Unset,
        };
        let is_dict = matches!(dict, Value::Dict(_) | Value::Entry(_));
        if is_dict && !(self.stack.len() - at).is_multiple_of(2) {
            return Err(self.code.damaged("sets a key without a value"));
        }
        match dict {
            Value::Dict(dict) => self.fill(dict as usize, at)?,
            Value::Entry(entry) => self.change(entry, at)?,
            _ => {
                let problem = format!("sets items of {}, not of a dict", dict.kind());
                return Err(self.code.damaged(problem));
            }
        }
        self.stack.truncate(at);
        Ok(())
    }

    fn fill(&mut self, dict: usize, at: usize) -> Fallible<()> {
        let items = &self.stack[at..];
        let (bytes, want_stacks) = (self.code.bytes, self.want_stacks);
        let pairs = |heap| entry::Pairs { bytes, heap, items, want_stacks };
        match self.heap.dicts[dict] {
            Dict::Empty if items.is_empty() => {}
            Dict::Empty => {
                let pairs = pairs(&self.heap);
                self.heap.dicts[dict] = match pairs.entry(&mut self.numbers)? {
                    Some(entry) => self.heap.entry(entry)?,
                    None if !self.want_stacks && pairs.is_frame() => Dict::Frame,
                    None => self.heap.map(items, self.code.at as u64)?,
                };
            }
            Dict::Map(map) => {
                let mut grown = self.heap.maps[map as usize];
                self.heap.extend(&mut grown.items, items)?;
                self.heap.maps[map as usize] = grown;
            }
            Dict::Frame => {}
            Dict::Entry(entry) => self.change(entry, at)?,
        }
        Ok(())
    }

    /// Sets items of a trace entry again.
    #[cold]
    fn change(&mut self, entry: u32, at: usize) -> Fallible<()> {
        let (bytes, heap, want_stacks) = (self.code.bytes, &self.heap, self.want_stacks);
        let pairs = entry::Pairs { bytes, heap, items: &self.stack[at..], want_stacks };
        let mut changed = self.heap.entries[entry as usize];
        if let Err(key) = pairs.apply(&mut changed, &mut self.numbers)? {
            let problem = format!("changes the {key:?} of a trace entry into what it cannot be");
            return Err(self.code.damaged(problem));
        }
        self.heap.entries[entry as usize] = changed;
        Ok(())
    }

    /// Moves the values from place `at` on into the list below them.
    pub(super) fn append(&mut self, at: usize) -> Fallible<()> {
        let list = match at.checked_sub(1).filter(|&below| below >= self.floor) {
            Some(below) => self.stack[below],
            None => Value::Unset,
        };
        match list {
            Value::List(list) => {
                let mut grown = self.heap.sequences[list as usize];
                let items = &self.stack[at..];
                if grown.is_shared && !items.is_empty() {
                    return Err(self.misled());
                }
                if !items.is_empty() && items.iter().all(|&item| self.is_left_out(item)) {
                    grown.frames_left_out = true;
                } else {
                    self.heap.extend(&mut grown, items)?;
                }
                self.heap.sequences[list as usize] = grown;
            }
            other => {
                return Err(self.code.damaged(format!("appends to {}, not a list", other.kind())));
            }
        }
        self.stack.truncate(at);
        Ok(())
    }

    fn is_left_out(&self, item: Value) -> bool {
        matches!(item, Value::Dict(dict) if matches!(self.heap.dicts[dict as usize], Dict::Frame))
    }
}
