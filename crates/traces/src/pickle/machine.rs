//! The machine: pickle is a program for a stack machine, and this runs the part of it that builds plain data.
//!
//! ```text
//!   }  ( K 1 K 2 u          EMPTY_DICT MARK BININT1 1 BININT1 2 SETITEMS
//!   │  │ │   │   └─ everything above the last mark becomes items of the dict below it
//!   │  └─┴───┴───── pushed on the stack; no operation may pop below the last mark
//!   └────────────── a new dict: a number in the heap's table
//! ```
//!
//! What would import or call something (GLOBAL, REDUCE, ...) is refused by name, so that nothing can be executed.
//! The operations are those of CPython's `pickletools`; protocols 0 and 1 are refused as a whole.

use super::super::TraceError;
use super::super::numbers::Numbers;
use super::code::Code;
use super::code::Fallible;
use super::memo::Memo;
use super::opcode as op;
use super::refusal::{SAVE_AGAIN, refusal};
use super::room::Room;
use super::run::{Ground, Runs};
use super::value::{Heap, Value};

/// A pickle being run.
pub(super) struct Machine<'a> {
    pub(super) code: Code<'a>,
    pub(super) stack: Vec<Value>,
    marks: Vec<u32>,
    /// Place of the last mark: what lies below is not to be popped.
    pub(super) floor: usize,
    memo: Memo,
    pub(super) want_stacks: bool,
    pub(super) heap: Heap,
    pub(super) numbers: Numbers,
    /// Reads entries without the machine; `None`: the machine reads them all.
    runs: Option<Runs<'a>>,
    /// The pickle is to be read again, [without runs](Self::without_runs).
    pub(super) was_misled: bool,
}

impl<'a> Machine<'a> {
    /// A machine that has not begun, and may take this much memory.
    pub(super) fn new(bytes: &'a [u8], want_stacks: bool, room: Room) -> Self {
        Self {
            code: Code::new(bytes),
            stack: Vec::new(),
            marks: Vec::new(),
            floor: 0,
            memo: Memo::default(),
            want_stacks,
            heap: Heap::new(room),
            numbers: Numbers::default(),
            runs: Some(Runs::default()),
            was_misled: false,
        }
    }

    /// The same, with every entry read operation by operation.
    pub(super) fn without_runs(self) -> Self {
        Self { runs: None, ..self }
    }

    /// Dicts that were read operation by operation, and entries of whatever origin.
    #[cfg(test)]
    pub(super) fn dicts_and_entries(&self) -> (usize, usize) {
        (self.heap.dicts.len(), self.heap.entries.len())
    }

    /// Runs the program and returns the value that it leaves.
    pub(super) fn run(&mut self) -> Fallible<Value> {
        self.protocol()?;
        loop {
            let code = self.code.byte()?;
            match code {
                op::STOP => return self.pop(),
                op::BINGET => {
                    let id = self.code.byte()?;
                    self.get(usize::from(id))?;
                }
                op::LONG_BINGET => {
                    let id = self.code.number::<4>()?;
                    self.get(id as usize)?;
                }
                op::MEMOIZE => self.put(self.memo.len())?,
                op::BINPUT => {
                    let id = self.code.byte()?;
                    self.put(usize::from(id))?;
                }
                op::LONG_BINPUT => {
                    let id = self.code.number::<4>()?;
                    self.put(id as usize)?;
                }
                op::BININT1 => {
                    let value = self.code.byte()?;
                    self.push(Value::Int(i64::from(value)))?;
                }
                op::BININT2 => {
                    let value = self.code.number::<2>()?;
                    self.push(Value::Int(value as i64))?;
                }
                op::BININT => {
                    let value = self.code.number::<4>()? as u32 as i32;
                    self.push(Value::Int(i64::from(value)))?;
                }
                op::LONG1 => {
                    let len = self.code.byte()?;
                    self.long(usize::from(len))?;
                }
                op::MARK => self.mark()?,
                op::EMPTY_DICT => self.empty_dict()?,
                op::SETITEMS => self.set_items()?,
                _ => self.rarer(code)?,
            }
        }
    }

    /// Whether no list, tuple or dict of several values is under way.
    pub(super) fn is_bare(&self) -> bool {
        self.marks.is_empty()
    }

    fn protocol(&mut self) -> Fallible<()> {
        match (self.code.byte()?, self.code.bytes.get(1)) {
            (op::PROTO, Some(2..=5)) => self.code.at = 2,
            (op::PROTO, Some(version)) => {
                let problem = format!("pickle protocol {version} is not one of 2 to 5");
                return Err(self.code.fail(0, problem, SAVE_AGAIN));
            }
            (op::PROTO, None) => return Err(self.code.truncated()),
            _ => {
                return Err(self.code.fail(
                    0,
                    "pickle protocol 0 or 1, not one of 2 to 5",
                    SAVE_AGAIN,
                ));
            }
        }
        Ok(())
    }

    fn rarer(&mut self, code: u8) -> Fallible<()> {
        match code {
            op::PROTO => drop(self.code.take(1)?),
            // The length of a frame is only a hint for reading ahead.
            op::FRAME => drop(self.code.take(8)?),
            op::EMPTY_LIST => self.new_list(self.stack.len())?,
            op::EMPTY_TUPLE => self.new_tuple(self.stack.len())?,
            op::TUPLE1..=op::TUPLE3 => {
                let at = self.above(usize::from(code - op::TUPLE1) + 1)?;
                self.new_tuple(at)?;
            }
            op::TUPLE => {
                let at = self.pop_mark()?;
                self.new_tuple(at)?;
            }
            op::LIST => {
                let at = self.pop_mark()?;
                self.new_list(at)?;
            }
            op::DICT => self.new_dict()?,
            op::SETITEM => {
                let at = self.above(2)?;
                self.update(at)?;
            }
            op::APPEND => {
                let at = self.above(1)?;
                self.append(at)?;
            }
            op::APPENDS => {
                let at = self.pop_mark()?;
                self.append(at)?;
            }
            op::POP if self.stack.len() == self.floor && !self.marks.is_empty() => {
                self.pop_mark()?;
            }
            op::POP => drop(self.pop()?),
            op::POP_MARK => {
                let at = self.pop_mark()?;
                self.stack.truncate(at);
            }
            op::DUP => {
                let top = self.top()?;
                self.push(top)?;
            }
            _ => self.scalar(code)?,
        }
        Ok(())
    }

    fn scalar(&mut self, code: u8) -> Fallible<()> {
        match code {
            op::NONE => self.push(Value::None),
            op::NEWTRUE | op::NEWFALSE => self.push(Value::Bool(code == op::NEWTRUE)),
            op::BINFLOAT => {
                let value = f64::from_bits(self.code.number::<8>()?.swap_bytes());
                self.push(Value::Float(value))
            }
            op::LONG4 => {
                let len = self.code.number::<4>()?;
                self.long(len as usize)
            }
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING => {
                let len = self.code.byte()?;
                self.string(u64::from(len))
            }
            op::BINUNICODE | op::BINSTRING => {
                let len = self.code.number::<4>()?;
                self.string(len)
            }
            op::BINUNICODE8 => {
                let len = self.code.number::<8>()?;
                self.string(len)
            }
            op::SHORT_BINBYTES | op::BINBYTES | op::BINBYTES8 | op::BYTEARRAY8 => {
                self.opaque_bytes(code)
            }
            op::EMPTY_SET => self.push(Value::Other),
            op::ADDITEMS | op::FROZENSET => {
                let at = self.pop_mark()?;
                self.stack.truncate(at);
                // ADDITEMS leaves the set that lies below the mark, FROZENSET pushes a new one.
                if code == op::FROZENSET { self.push(Value::Other) } else { self.top().map(drop) }
            }
            op::GLOBAL | op::STACK_GLOBAL | op::REDUCE | op::BUILD
                if self.known_object(code)? =>
            {
                Ok(())
            }
            _ => Err(refusal(code, &self.code, &self.stack)),
        }
    }

    /// A little-endian number in two's complement, of any length.
    #[inline]
    fn long(&mut self, len: usize) -> Fallible<()> {
        // Addresses and times make this the busiest of all: eight bytes at once, the upper ones shifted out.
        let ahead = self.code.bytes.get(self.code.at..).and_then(|rest| rest.first_chunk::<8>());
        let value = match ahead {
            Some(&word) if (1..=8).contains(&len) => {
                self.code.at += len;
                let spare = 64 - 8 * len as u32;
                Value::Int(i64::from_le_bytes(word) << spare >> spare)
            }
            _ => long(self.code.take(len)?),
        };
        self.push(value)
    }

    fn string(&mut self, len: u64) -> Fallible<()> {
        let at = self.code.at as u64;
        let Ok(short) = u32::try_from(len) else {
            return Err(self.code.fail(self.code.at, "string above 4 GiB", "the file is damaged"));
        };
        self.code.take(short as usize)?;
        self.push(Value::Str { len: short, at })
    }

    fn opaque_bytes(&mut self, code: u8) -> Fallible<()> {
        let len = match code {
            op::SHORT_BINBYTES => u64::from(self.code.byte()?),
            op::BINBYTES => self.code.number::<4>()?,
            _ => self.code.number::<8>()?,
        };
        let at = self.code.at as u64;
        self.code.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        let bytes = |len| Value::Bytes { len, is_latin: false, at };
        self.push(u32::try_from(len).map_or(Value::Other, bytes))
    }

    /// A new dict; or entries, as far as they follow each other.
    #[inline]
    fn empty_dict(&mut self) -> Fallible<()> {
        if let Some(runs) = &mut self.runs {
            let mut ground = Ground {
                bytes: self.code.bytes,
                memo: &mut self.memo,
                heap: &mut self.heap,
                numbers: &mut self.numbers,
                want_stacks: self.want_stacks,
            };
            if let Some((entries, end)) = runs.read(&mut ground, self.code.at)? {
                self.code.at = end;
                return self.push(entries);
            }
        }
        let dict = self.heap.dict()?;
        self.push(dict)
    }

    #[inline]
    pub(super) fn push(&mut self, value: Value) -> Fallible<()> {
        self.heap.room.push(&mut self.stack, value).map(drop)
    }

    #[inline]
    fn pop(&mut self) -> Fallible<Value> {
        let at = self.above(1)?;
        let value = self.stack[at];
        self.stack.truncate(at);
        Ok(value)
    }

    #[inline]
    fn top(&mut self) -> Fallible<Value> {
        let at = self.above(1)?;
        Ok(self.stack[at])
    }

    /// The place of the `count`-th value from the top, all of which must lie above the last mark.
    #[inline]
    fn above(&mut self, count: usize) -> Fallible<usize> {
        let from = self.stack.len().saturating_sub(count).max(self.floor);
        self.unfold(from)?;
        match self.stack.len().checked_sub(count) {
            Some(at) if at >= self.floor => Ok(at),
            _ => Err(self.code.damaged("takes more from the stack than is there")),
        }
    }

    /// Sees to it that there are no runs from place `from` on, which no mark lies above. Only lists take runs as they
    /// are.
    #[inline]
    pub(super) fn unfold(&mut self, from: usize) -> Fallible<()> {
        let is_run = |value: &Value| matches!(value, Value::Run { .. });
        if self.stack[from..].iter().any(is_run) {
            let folded = self.stack.split_off(from);
            for value in folded.into_iter().flat_map(Value::each) {
                self.push(value)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn mark(&mut self) -> Fallible<()> {
        // The mark keeps the floor below it; the new floor is the present top.
        self.heap.room.push(&mut self.marks, self.floor as u32)?;
        self.floor = self.stack.len();
        Ok(())
    }

    /// Removes the last mark and returns its place.
    #[inline]
    pub(super) fn pop_mark(&mut self) -> Fallible<usize> {
        let Some(below) = self.marks.pop() else {
            return Err(self.code.damaged("needs a mark, but there is none"));
        };
        Ok(std::mem::replace(&mut self.floor, below as usize))
    }

    #[inline]
    fn get(&mut self, id: usize) -> Fallible<()> {
        match self.memo.get(id) {
            Value::Unset => Err(self.code.damaged(format!("memo {id} was never set"))),
            value => self.push(value),
        }
    }

    #[inline]
    fn put(&mut self, id: usize) -> Fallible<()> {
        let top = self.top()?;
        if id == self.memo.len() {
            let slot = self.memo.slot(top, &mut self.heap.room)?;
            return self.memo.push(slot, &mut self.heap.room);
        }
        self.put_elsewhere(id, top)
    }

    /// Other picklers number after filling, or leave numbers out, or use them again.
    #[cold]
    fn put_elsewhere(&mut self, id: usize, value: Value) -> Fallible<()> {
        // Whoever numbers honestly uses a number per store, each of which takes a byte or more.
        if id > self.code.bytes.len() {
            return Err(self.code.damaged(format!("memo number {id} is absurd")));
        }
        if id < self.memo.len() && self.runs.is_some() {
            return Err(self.misled());
        }
        self.memo.set(id, value, &mut self.heap.room)
    }

    /// Ends the reading of a pickle that does what runs take it not to do.
    #[cold]
    pub(super) fn misled(&mut self) -> Box<TraceError> {
        self.was_misled = true;
        self.code.damaged("uses a number or a list again")
    }
}

/// The same from a slice that is as long as the number.
fn long(digits: &[u8]) -> Value {
    let mut wide = match digits.last() {
        Some(top) if top & 0x80 != 0 => [0xff; 8],
        _ => [0; 8],
    };
    match digits {
        _ if digits.len() <= 8 => {
            wide[..digits.len()].copy_from_slice(digits);
            Value::Int(i64::from_le_bytes(wide))
        }
        [low @ .., 0] if low.len() == 8 => {
            wide.copy_from_slice(low);
            let value = u64::from_le_bytes(wide);
            i64::try_from(value).map_or(Value::Unsigned(value), Value::Int)
        }
        _ => Value::Huge,
    }
}
