//! A pickle writer for plain data: dicts, lists, text and numbers in protocol 4, without the optional frames.
//!
//! Texts come again and again (keys, names of actions), so each is written once and referred to by its number from
//! then on, as PyTorch's own pickles do; so are call stacks and their frames ([`Pickler::remember`]). `MemoryViz.js`,
//! which PyTorch's viewer runs, knows no other opcodes than those.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::opcode as op;

const PROTOCOL: u8 = 4;
/// Items between two marks. CPython's own pickler collects as many.
const BATCH: usize = 1000;

/// Writes one pickle.
pub(crate) struct Pickler<W> {
    out: W,
    memo: FxHashMap<String, u32>,
    /// Things that have a number.
    memo_len: u32,
}

/// A value that can be written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    Int(i128),
    Float(f64),
    Bool(bool),
    Pair(u64, u64),
}

impl From<u64> for Value<'_> {
    fn from(value: u64) -> Self {
        Self::Int(i128::from(value))
    }
}

impl<W: Write> Pickler<W> {
    /// Begins a pickle.
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[op::PROTO, PROTOCOL])?;
        Ok(Self { out, memo: FxHashMap::default(), memo_len: 0 })
    }

    /// Ends it, after its one value.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&[op::STOP])?;
        self.out.flush()
    }

    /// A dict; `items` writes keys and values in turn, with [`Pickler::item`] or by [`Pickler::key`] and a container.
    pub(crate) fn dict(
        &mut self,
        items: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(&[op::EMPTY_DICT, op::MARK])?;
        items(self)?;
        self.out.write_all(&[op::SETITEMS])
    }

    /// A list of what `write` writes for each of `items`.
    pub(crate) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(&[op::EMPTY_LIST])?;
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            self.out.write_all(&[op::MARK])?;
            items.by_ref().take(BATCH).try_for_each(|item| write(self, item))?;
            self.out.write_all(&[op::APPENDS])?;
        }
        Ok(())
    }

    /// A key of a dict and its value.
    pub(crate) fn item<'a>(&mut self, key: &str, value: impl Into<Value<'a>>) -> io::Result<()> {
        self.key(key)?;
        self.value(value.into())
    }

    /// A key of a dict, whose value comes next.
    pub(crate) fn key(&mut self, key: &str) -> io::Result<()> {
        self.text(key)
    }

    fn value(&mut self, value: Value<'_>) -> io::Result<()> {
        match value {
            Value::Text(text) => self.text(text),
            Value::Int(number) => self.int(number),
            Value::Bool(value) => {
                self.out.write_all(&[if value { op::NEWTRUE } else { op::NEWFALSE }])
            }
            Value::Float(value) => {
                self.out.write_all(&[op::BINFLOAT])?;
                self.out.write_all(&value.to_be_bytes())
            }
            Value::Pair(left, right) => {
                self.int(left.into())?;
                self.int(right.into())?;
                self.out.write_all(&[op::TUPLE2])
            }
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&number) = self.memo.get(text) {
            return self.recall(number);
        }
        match u8::try_from(text.len()) {
            Ok(len) => self.out.write_all(&[op::SHORT_BINUNICODE, len])?,
            Err(_) => self.with_u32(op::BINUNICODE, text.len() as u32)?,
        }
        self.out.write_all(text.as_bytes())?;
        let number = self.remember()?;
        self.memo.insert(text.to_owned(), number);
        Ok(())
    }

    /// Gives what was just written a number.
    pub(crate) fn remember(&mut self) -> io::Result<u32> {
        self.out.write_all(&[op::MEMOIZE])?;
        self.memo_len += 1;
        Ok(self.memo_len - 1)
    }

    /// The same object again that was given this number.
    pub(crate) fn recall(&mut self, number: u32) -> io::Result<()> {
        match u8::try_from(number) {
            Ok(number) => self.out.write_all(&[op::BINGET, number]),
            Err(_) => self.with_u32(op::LONG_BINGET, number),
        }
    }

    /// The shortest form that holds the number.
    fn int(&mut self, number: i128) -> io::Result<()> {
        if let Ok(small) = u8::try_from(number) {
            return self.out.write_all(&[op::BININT1, small]);
        }
        if let Ok(small) = u16::try_from(number) {
            let [low, high] = small.to_le_bytes();
            return self.out.write_all(&[op::BININT2, low, high]);
        }
        if let Ok(small) = i32::try_from(number) {
            return self.with_u32(op::BININT, small as u32);
        }
        let bits = 129 - number.unsigned_abs().leading_zeros();
        let len = bits.div_ceil(8) as usize;
        self.out.write_all(&[op::LONG1, len as u8])?;
        self.out.write_all(&number.to_le_bytes()[..len])
    }

    fn with_u32(&mut self, code: u8, number: u32) -> io::Result<()> {
        self.out.write_all(&[code])?;
        self.out.write_all(&number.to_le_bytes())
    }
}
