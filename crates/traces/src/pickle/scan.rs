//! The scan: single operations of a pickle, read where they lie. Anything that is not expected is `None`.

use super::opcode as op;
use super::value::{Value, text};

/// A place in the bytes.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

/// A text, and where it lies.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Text<'a> {
    /// The text that a value is.
    #[inline]
    pub(super) fn of(bytes: &'a [u8], value: Value) -> Option<Self> {
        let Value::Str { at, .. } = value else { return None };
        Some(Self { text: text(bytes, value)?, at: at as usize })
    }

    pub(super) fn value(self) -> Option<Value> {
        let len = u32::try_from(self.text.len()).ok()?;
        Some(Value::Str { len, at: self.at as u64 })
    }
}

/// An operation with what belongs to it, as it is written: to be met again.
#[derive(Clone, Copy)]
pub(super) struct Pattern<'a> {
    /// The first eight bytes, of which `mask` counts.
    head: u64,
    mask: u64,
    /// The others.
    tail: &'a [u8],
    len: usize,
}

impl<'a> Pattern<'a> {
    pub(super) fn new(code: &'a [u8]) -> Self {
        let (mut head, len) = ([0; 8], code.len());
        head[..len.min(8)].copy_from_slice(&code[..len.min(8)]);
        let mask = if len < 8 { (1 << (8 * len)) - 1 } else { u64::MAX };
        Self { head: u64::from_le_bytes(head), mask, tail: code.get(8..).unwrap_or_default(), len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether it stands where the scan is, whose next eight bytes are `word`.
    #[inline]
    pub(super) fn is_at(&self, word: u64, scan: &Scan) -> bool {
        word & self.mask == self.head
            && (self.tail.is_empty() || scan.bytes[scan.at + 8..].starts_with(self.tail))
    }
}

/// A key and the beginning of its value: all that is before the digits of a number, or the whole of another value.
#[derive(Clone, Copy)]
pub(super) struct Prefix {
    /// At most eight bytes, of which `mask` counts.
    head: u64,
    mask: u64,
    len: usize,
    /// How many digits follow, and which of their bits count. The number is negative if it has `sign`.
    digits: usize,
    bits: u64,
    sign: u64,
}

impl Default for Prefix {
    /// What stands nowhere.
    fn default() -> Self {
        Self { head: 1, mask: 0, len: 0, digits: 0, bits: 0, sign: 0 }
    }
}

impl Prefix {
    /// That of the key which stands at `begin` and the value at `value`, if they are short enough.
    pub(super) fn new(bytes: &[u8], begin: usize, value: usize) -> Option<Self> {
        let (code, digits, is_signed) = match bytes.get(value..)? {
            [op::NONE, ..] => (1, 0, false),
            [op::BINGET, ..] => (2, 0, false),
            [op::LONG_BINGET, ..] => (5, 0, false),
            [op::BININT1, ..] => (1, 1, false),
            [op::BININT2, ..] => (1, 2, false),
            [op::BININT, ..] => (1, 4, true),
            &[op::LONG1, digits @ 1..=8, ..] => (2, usize::from(digits), true),
            _ => return None,
        };
        let len = value + code - begin;
        let (head, bits) = (bytes.get(begin..begin + len)?, low(digits));
        let mut word = [0; 8];
        word.get_mut(..len)?.copy_from_slice(head);
        let sign = if is_signed { bits ^ (bits >> 1) } else { 0 };
        Some(Self { head: u64::from_le_bytes(word), mask: low(len), len, digits, bits, sign })
    }

    /// The number behind it, or 0, if it stands where the scan is, which goes on behind that.
    #[inline]
    pub(super) fn number(&self, scan: &mut Scan) -> Option<u64> {
        if scan.word()? & self.mask != self.head {
            return None;
        }
        let digits = scan.bytes.get(scan.at + self.len..)?.first_chunk()?;
        let number = u64::from_le_bytes(*digits) & self.bits;
        (number & self.sign == 0).then(|| scan.at += self.len + self.digits)?;
        Some(number)
    }
}

/// The lowest bytes of a word, at most eight.
fn low(bytes: usize) -> u64 {
    u64::MAX.checked_shr(64 - 8 * bytes as u32).unwrap_or(0)
}

impl<'a> Scan<'a> {
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    pub(super) fn expect(&mut self, code: u8) -> Option<()> {
        (self.peek()? == code).then(|| self.at += 1)
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*taken)
    }

    /// The next eight bytes, which are not consumed.
    #[inline]
    pub(super) fn word(&self) -> Option<u64> {
        self.bytes.get(self.at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    /// A whole number from 0 to 2^63 - 1.
    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        let [code] = self.take()?;
        match code {
            op::BININT1 => self.take().map(|[byte]| u64::from(byte)),
            op::BININT2 => self.take().map(u16::from_le_bytes).map(u64::from),
            op::BININT => u64::try_from(self.take().map(i32::from_le_bytes)?).ok(),
            op::LONG1 => {
                let [len] = self.take()?;
                let spare = 64_u32.checked_sub(8 * u32::from(len)).filter(|&spare| spare < 64)?;
                let number = (self.word()? as i64) << spare >> spare;
                self.at += usize::from(len);
                u64::try_from(number).ok()
            }
            _ => None,
        }
    }

    /// The number of a value that is fetched from the memo.
    #[inline]
    pub(super) fn reference(&mut self) -> Option<usize> {
        let [code] = self.take()?;
        match code {
            op::BINGET => self.take().map(|[id]| usize::from(id)),
            op::LONG_BINGET => self.take().map(|id| u32::from_le_bytes(id) as usize),
            _ => None,
        }
    }

    /// What is appended to an empty list, as it is written: values from the memo, or nothing.
    #[inline]
    pub(super) fn references(&mut self) -> Option<&'a [u8]> {
        let begin = self.at;
        match self.peek()? {
            op::MARK => {
                self.at += 1;
                let inside = self.at;
                while self.peek()? != op::APPENDS {
                    self.reference()?;
                }
                self.at += 1;
                Some(&self.bytes[inside..self.at - 1])
            }
            // One value, to be appended alone; or the next key, and the list stays empty.
            op::BINGET | op::LONG_BINGET => {
                self.reference()?;
                if self.peek()? == op::APPEND {
                    self.at += 1;
                    return Some(&self.bytes[begin..self.at - 1]);
                }
                self.at = begin;
                Some(&[])
            }
            _ => Some(&[]),
        }
    }

    /// A text that is written out.
    #[inline]
    pub(super) fn text(&mut self) -> Option<Text<'a>> {
        let [code] = self.take()?;
        let len = match code {
            op::SHORT_BINUNICODE => self.take().map(|[len]| usize::from(len))?,
            op::BINUNICODE => u32::from_le_bytes(self.take()?) as usize,
            _ => return None,
        };
        let (at, end) = (self.at, self.at.checked_add(len)?);
        self.at = end;
        self.bytes.get(at..end).map(|text| Text { text, at })
    }

    /// A value that is no container and no text.
    pub(super) fn plain(&mut self) -> Option<()> {
        match self.take()? {
            [op::NONE | op::NEWTRUE | op::NEWFALSE] => Some(()),
            [op::BININT1] => self.take::<1>().map(drop),
            [op::BININT2] => self.take::<2>().map(drop),
            [op::BININT] => self.take::<4>().map(drop),
            [op::BINFLOAT] => self.take::<8>().map(drop),
            [op::LONG1] => {
                let [len] = self.take()?;
                self.at += usize::from(len);
                (self.at <= self.bytes.len()).then_some(())
            }
            _ => None,
        }
    }

    /// Whether the next operation stores the last value in the memo.
    #[inline]
    pub(super) fn is_put(&self) -> Option<bool> {
        self.peek().map(|code| matches!(code, op::MEMOIZE | op::BINPUT | op::LONG_BINPUT))
    }

    /// Reads such an operation, and says whether it stores under the number `next`.
    #[inline]
    pub(super) fn put(&mut self, next: usize) -> Option<bool> {
        let [code] = self.take()?;
        let id = match code {
            op::BINPUT => self.take().map(|[id]| usize::from(id))?,
            op::LONG_BINPUT => u32::from_le_bytes(self.take()?) as usize,
            _ => next,
        };
        Some(id == next)
    }
}
