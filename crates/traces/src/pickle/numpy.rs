//! Numpy's numbers: `numpy.int64(5)` where a number is expected.
//!
//! ```text
//!   scalar  dtype  ("i8", False, True)  REDUCE  (3, "<", None, ...)  BUILD  b"\5\0\0\0\0\0\0\0"  TUPLE2  REDUCE   = 5
//!           └── the type: a letter and bytes     └ least byte first          └ the number
//! ```
//!
//! Arrays, dates and texts of numpy are refused: a snapshot has none.

use super::super::error::excerpt;
use super::code::Fallible;
use super::machine::Machine;
use super::value::{Dtype, Value, text};

const REMEDY: &str = "write numbers as Python's: int(x), float(x)";

impl Machine<'_> {
    fn arguments(&self, tuple: u32) -> [Option<Value>; 2] {
        let mut items = self.heap.items(self.heap.sequences[tuple as usize]);
        [items.next(), items.next()]
    }

    #[cold]
    fn unknown_number(&self, what: &str) -> Box<super::super::TraceError> {
        let problem = format!("contains numpy's {what}, which is no number that is read");
        self.code.fail(self.code.at.saturating_sub(1), problem, REMEDY)
    }

    /// `numpy.dtype("i8", ...)`.
    pub(super) fn dtype(&mut self, arguments: u32) -> Fallible<Value> {
        let [name, _] = self.arguments(arguments);
        let name = name.and_then(|name| text(self.code.bytes, name)).unwrap_or(b"?");
        match name {
            b"i1" | b"i2" | b"i4" | b"i8" | b"u1" | b"u2" | b"u4" | b"u8" | b"f4" | b"f8"
            | b"b1" => Ok(Value::Dtype(Dtype { kind: name[0], len: name[1] - b'0' })),
            _ => Err(self.unknown_number(&excerpt(name))),
        }
    }

    /// The state of a dtype says in which order its bytes are.
    pub(super) fn check_order(&self, state: u32) -> Fallible<()> {
        let [_, order] = self.arguments(state);
        match order.and_then(|order| text(self.code.bytes, order)) {
            Some(b"<" | b"|" | b"=") => Ok(()),
            _ => Err(self.unknown_number("numbers in big-endian order")),
        }
    }

    /// `_codecs.encode("...", "latin1")`.
    pub(super) fn encoded(&mut self, arguments: u32) -> Fallible<Value> {
        match self.arguments(arguments) {
            [Some(Value::Str { len, at }), Some(codec)]
                if text(self.code.bytes, codec) == Some(b"latin1") =>
            {
                Ok(Value::Bytes { len, is_latin: true, at })
            }
            _ => Err(self.code.damaged("encodes what is no text in latin1")),
        }
    }

    /// The number of a dtype and its bytes.
    pub(super) fn scalar_of(&mut self, arguments: u32) -> Fallible<Value> {
        let [Some(Value::Dtype(dtype)), Some(bytes)] = self.arguments(arguments) else {
            return Err(self.unknown_number("number without a type"));
        };
        let wrong = || self.code.damaged("makes a number of numpy from the wrong bytes");
        number(dtype, &self.few_bytes(bytes).ok_or_else(wrong)?).ok_or_else(wrong)
    }

    /// At most eight bytes.
    fn few_bytes(&self, value: Value) -> Option<Vec<u8>> {
        let Value::Bytes { len, is_latin, at } = value else { return None };
        let raw = self.code.bytes.get(at as usize..)?.get(..len as usize)?;
        if !is_latin {
            return (raw.len() <= 8).then(|| raw.to_vec());
        }
        let letters = std::str::from_utf8(raw).ok()?.chars().take(9);
        let bytes: Option<Vec<u8>> = letters.map(|c| u8::try_from(u32::from(c)).ok()).collect();
        bytes.filter(|bytes| bytes.len() <= 8)
    }
}

/// The number that these bytes are, the least first.
fn number(dtype: Dtype, bytes: &[u8]) -> Option<Value> {
    if bytes.len() != usize::from(dtype.len) {
        return None;
    }
    let is_negative = dtype.kind == b'i' && bytes.last().is_some_and(|top| top & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    Some(match (dtype.kind, dtype.len) {
        (b'i', _) => Value::Int(bits as i64),
        (b'u', _) => i64::try_from(bits).map_or(Value::Unsigned(bits), Value::Int),
        (b'b', _) => Value::Bool(bits != 0),
        (_, 4) => Value::Float(f64::from(f32::from_bits(bits as u32))),
        _ => Value::Float(f64::from_bits(bits)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length() {
        let of = |kind, bytes: &[u8]| number(Dtype { kind, len: bytes.len() as u8 }, bytes);
        assert_eq!(of(b'i', &(-5_i16).to_le_bytes()), Some(Value::Int(-5)));
        assert_eq!(of(b'i', &i64::MIN.to_le_bytes()), Some(Value::Int(i64::MIN)));
        assert_eq!(of(b'u', &[0xff]), Some(Value::Int(255)));
        assert_eq!(of(b'u', &u64::MAX.to_le_bytes()), Some(Value::Unsigned(u64::MAX)));
        assert_eq!(of(b'f', &2.5_f32.to_le_bytes()), Some(Value::Float(2.5)));
        assert_eq!(of(b'f', &2.5_f64.to_le_bytes()), Some(Value::Float(2.5)));
        assert_eq!(of(b'b', &[1]), Some(Value::Bool(true)));
        assert_eq!(number(Dtype { kind: b'i', len: 8 }, &[1]), None);
    }
}
