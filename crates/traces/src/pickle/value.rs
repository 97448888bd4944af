//! Values: what the machine's stack, memo and containers hold.
//!
//! A value is a 16-byte copy. Strings are places in the input; containers are numbers in the tables of a [`Heap`], so
//! that to fetch a memoized list a million times costs 16 bytes each time, whatever the list holds, and a list that
//! contains itself is just a number that occurs in its own items.

use super::super::torch::RawEntry;
use super::super::whole;
use super::code::Fallible;
use super::room::Room;

/// One Python value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// A memo number that nothing was stored under.
    Unset,
    None,
    Bool(bool),
    Int(i64),
    /// A whole number from 2^63 to 2^64 - 1.
    Unsigned(u64),
    /// A whole number beyond 64 bits.
    Huge,
    Float(f64),
    Str {
        len: u32,
        at: u64,
    },
    List(u32),
    Tuple(u32),
    Dict(u32),
    /// A dict that was read as a trace entry at once ([`super::run`]), by its number in [`Heap::entries`].
    Entry(u32),
    /// Several such dicts, one after the other, in the place of one value.
    Run {
        first: u32,
        count: u32,
    },
    /// A class or function of others, which we know, to be called.
    Callable(Callable),
    /// The type of numpy's numbers that follow.
    Dtype(Dtype),
    /// Bytes; `is_latin`: as a text with a character for each, which is how protocol 2 writes them.
    Bytes {
        len: u32,
        is_latin: bool,
        at: u64,
    },
    /// Sets, long bytes: legal, but of no use in a trace.
    Other,
}

const _: () = assert!(size_of::<Value>() == 16);

/// What others define and a pickle may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callable {
    /// A class of dicts, such as `collections.OrderedDict`.
    Dict,
    /// `numpy.dtype`.
    Dtype,
    /// What makes one of numpy's numbers from a dtype and bytes.
    Scalar,
    /// `_codecs.encode`, which makes bytes from a text.
    Encode,
}

/// A type of numpy's numbers, such as `i8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dtype {
    pub(super) kind: u8,
    pub(super) len: u8,
}

impl Value {
    /// The value's kind, in words.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Unset => "nothing",
            Self::None => "None",
            Self::Bool(_) => "a truth value",
            Self::Int(i) if i < 0 => "a negative number",
            Self::Int(_) | Self::Unsigned(_) => "a whole number",
            Self::Huge => "a number beyond 64 bits",
            Self::Float(_) => "a fractional number",
            Self::Str { .. } => "a string",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) | Self::Entry(_) | Self::Run { .. } => "a dict",
            Self::Callable(_) | Self::Dtype(_) => "a class",
            Self::Bytes { .. } | Self::Other => "bytes or a set",
        }
    }

    /// The value as a whole number that is not negative.
    #[inline]
    pub(super) fn as_u64(self) -> Option<u64> {
        match self {
            Self::Int(i) => u64::try_from(i).ok(),
            Self::Unsigned(u) => Some(u),
            _ => None,
        }
    }

    /// The same, also where other tools wrote it as `512.0`, `"512"` or `"0x200"`.
    #[inline]
    pub(super) fn whole(self, bytes: &[u8]) -> Option<u64> {
        self.as_u64().or_else(|| match self {
            Self::Float(number) => whole::of_float(number),
            Self::Str { .. } => whole::of_text(std::str::from_utf8(text(bytes, self)?).ok()?),
            _ => None,
        })
    }

    /// An address, which C may have taken for a negative number.
    #[inline]
    pub(super) fn address(self, bytes: &[u8]) -> Option<u64> {
        match self {
            Self::Int(number) => Some(number as u64),
            _ => self.whole(bytes),
        }
    }

    /// The value itself; each entry, if it is a run of them.
    #[inline]
    pub(super) fn each(self) -> impl Iterator<Item = Self> {
        let (first, count) = match self {
            Self::Run { first, count } => (first, count),
            _ => (0, 1),
        };
        let one = move |number| match self {
            Self::Run { .. } => Self::Entry(number),
            value => value,
        };
        (first..first + count).map(one)
    }
}

/// What a dict turned out to be when its first items were set.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dict {
    Empty,
    /// A trace entry, by its number in [`Heap::entries`].
    Entry(u32),
    /// A stack frame whose content was not asked for.
    Frame,
    /// Anything else, by its number in [`Heap::maps`].
    Map(u32),
}

/// A dict of the general kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    /// Keys and values in turn.
    pub(super) items: Sequence,
    /// Byte at which its first items were complete.
    pub(super) at: u64,
}

/// A growing sequence of values: a chain of spans in [`Heap::pool`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    head: u32,
    tail: u32,
    /// Items were stack frames that were not asked for: they are not here.
    pub(super) frames_left_out: bool,
    /// Stands for several lists of the file, which say the same ([`super::run`]).
    pub(super) is_shared: bool,
}

impl Sequence {
    const EMPTY: Self = Self { head: NIL, tail: NIL, frames_left_out: false, is_shared: false };
}

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
    next: u32,
}

/// All containers of a pickle.
pub(super) struct Heap {
    pub(super) room: Room,
    pub(super) entries: Vec<RawEntry>,
    pub(super) dicts: Vec<Dict>,
    pub(super) maps: Vec<Map>,
    pub(super) sequences: Vec<Sequence>,
    spans: Vec<Span>,
    pool: Vec<Value>,
}

impl Heap {
    pub(super) fn new(room: Room) -> Self {
        Self {
            room,
            entries: Vec::new(),
            dicts: Vec::new(),
            maps: Vec::new(),
            sequences: Vec::new(),
            spans: Vec::new(),
            pool: Vec::new(),
        }
    }

    /// A new, empty dict.
    #[inline]
    pub(super) fn dict(&mut self) -> Fallible<Value> {
        self.room.push(&mut self.dicts, Dict::Empty).map(Value::Dict)
    }

    /// A new list or tuple with these items; its number.
    pub(super) fn sequence(&mut self, items: &[Value]) -> Fallible<u32> {
        let mut sequence = Sequence::EMPTY;
        self.extend(&mut sequence, items)?;
        self.room.push(&mut self.sequences, sequence)
    }

    /// Adds items to a sequence. Often the last span ends where the pool ends, and simply grows.
    pub(super) fn extend(&mut self, sequence: &mut Sequence, items: &[Value]) -> Fallible<()> {
        if items.is_empty() {
            return Ok(());
        }
        let start = self.pool.len();
        self.room.extend(&mut self.pool, items)?;
        let (start, len) = (start as u32, items.len() as u32);
        match self.spans.get_mut(sequence.tail as usize) {
            Some(last) if last.start + last.len == start => {
                last.len += len;
                return Ok(());
            }
            _ => {}
        }
        let new = self.room.push(&mut self.spans, Span { start, len, next: NIL })?;
        match self.spans.get_mut(sequence.tail as usize) {
            Some(last) => last.next = new,
            None => sequence.head = new,
        }
        sequence.tail = new;
        Ok(())
    }

    /// The items of a sequence, span by span.
    pub(super) fn items(&self, sequence: Sequence) -> impl Iterator<Item = Value> {
        self.values(sequence).flat_map(Value::each)
    }

    /// The same, with runs of entries as they are.
    pub(super) fn values(&self, sequence: Sequence) -> impl Iterator<Item = Value> {
        self.slices(sequence).flatten().copied()
    }

    /// A tuple or list of two whole numbers.
    pub(super) fn pair(&self, value: Value) -> Option<(u64, u64)> {
        let (Value::Tuple(id) | Value::List(id)) = value else { return None };
        let mut items = self.items(self.sequences[id as usize]);
        match (items.next()?.as_u64(), items.next()?.as_u64(), items.next()) {
            (Some(first), Some(second), None) => Some((first, second)),
            _ => None,
        }
    }

    /// The item of a dict under `key`; the one set last counts.
    pub(super) fn get(&self, bytes: &[u8], map: Map, key: &[u8]) -> Option<Value> {
        let mut found = None;
        let mut key_matches = None;
        for value in self.items(map.items) {
            match key_matches.take() {
                None => key_matches = Some(text(bytes, value) == Some(key)),
                Some(true) => found = Some(value),
                Some(false) => {}
            }
        }
        found
    }

    /// Adds a trace entry.
    pub(super) fn entry(&mut self, entry: RawEntry) -> Fallible<Dict> {
        self.room.push(&mut self.entries, entry).map(Dict::Entry)
    }

    /// A dict of the general kind with these items.
    pub(super) fn map(&mut self, items: &[Value], at: u64) -> Fallible<Dict> {
        let mut sequence = Sequence::EMPTY;
        self.extend(&mut sequence, items)?;
        self.room.push(&mut self.maps, Map { items: sequence, at }).map(Dict::Map)
    }

    fn slices(&self, sequence: Sequence) -> impl Iterator<Item = &[Value]> {
        let mut next = sequence.head;
        std::iter::from_fn(move || {
            let span = self.spans.get(next as usize)?;
            next = span.next;
            Some(&self.pool[span.start as usize..(span.start + span.len) as usize])
        })
    }
}

/// The characters of a string value.
#[inline]
pub(super) fn text(bytes: &[u8], value: Value) -> Option<&[u8]> {
    match value {
        Value::Str { len, at } => bytes.get(at as usize..at as usize + len as usize),
        _ => None,
    }
}
