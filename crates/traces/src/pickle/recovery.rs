//! Recovery: what can be read of a pickle that ends in the middle.
//!
//! Where the bytes end, the machine's stack holds every container that was begun. They are closed from the innermost
//! on. What is half read and an item of a list (an entry, a segment, a frame) is dropped; lists stay as far as they go.
//!
//! ```text
//!   }  (  "segments" [..]  "device_traces" ]  ]  (  entry entry entry }  (  "action" "alloc"  ⊣ the file ends
//!   │                                      │  └──── closed: a list of three entries   └─────── dropped
//!   └─ closed: a snapshot                  └─ closed: a list of one list
//! ```

use super::containers::Open;
use super::machine::Machine;
use super::value::{Dict, Value, text};

/// Keys that only a snapshot has.
const PARTS: [&[u8]; 2] = [b"segments", b"device_traces"];

impl Machine<'_> {
    /// Closes all that is open, and returns the document and the lists that are not complete. `None` if nothing of use
    /// is there.
    pub(super) fn recovered(&mut self) -> Option<(Value, Open)> {
        let mut open = Open::default();
        while let Some(at) = self.close_pending(&mut open) {
            match at.checked_sub(1).map(|below| self.stack[below]) {
                Some(Value::List(list)) => {
                    open.lists.push(list);
                    self.append(at).ok()?;
                }
                Some(Value::Dict(_)) if self.is_kept(at) => self.fill_pairs(at)?,
                // An entry, a segment, or something that no snapshot has: it goes.
                Some(_) => self.stack.truncate(at - 1),
                None => return None,
            }
        }
        self.unfold(0).ok()?;
        if self.stack.len() > 1 && matches!(self.stack[0], Value::Dict(_)) {
            self.fill_pairs(1)?;
        }
        self.stack.first().map(|&root| (root, open))
    }

    /// Puts what lies above the last mark together, as far as no operation says so any more, and removes the mark.
    fn close_pending(&mut self, open: &mut Open) -> Option<usize> {
        // Lists of one item are filled without a mark.
        while let [.., Value::List(outer), Value::List(_) | Value::Entry(_) | Value::Run { .. }] =
            self.stack[self.floor..]
        {
            open.lists.push(outer);
            let at = self.stack.len() - 1;
            self.append(at).ok()?;
        }
        if let [.., Value::List(outer), Value::Dict(_)] = self.stack[self.floor..] {
            open.lists.push(outer);
            self.stack.pop();
        }
        self.pop_mark().ok()
    }

    /// Whether the dict below place `at` is the document, or a snapshot in it.
    fn is_kept(&self, at: usize) -> bool {
        let is_part =
            |&value: &Value| text(self.code.bytes, value).is_some_and(|key| PARTS.contains(&key));
        at == 1 || self.stack[at..].iter().any(is_part)
    }

    /// Fills the dict below place `at` with the keys that have a value.
    fn fill_pairs(&mut self, at: usize) -> Option<()> {
        self.unfold(at).ok()?;
        if !(self.stack.len() - at).is_multiple_of(2) {
            self.stack.pop();
        }
        // Settings that are half read would pass for all.
        while let Some(&Value::Dict(dict)) = self.stack[at..].last() {
            if !matches!(self.heap.dicts[dict as usize], Dict::Empty) {
                break;
            }
            self.stack.truncate(self.stack.len() - 2);
        }
        self.update(at).ok()
    }
}
