//! The run: trace entries one after another, read straight from the bytes.
//!
//! A snapshot is millions of dicts that differ in a few numbers. Whoever wrote it, one dict looks like the last one:
//!
//! ```text
//!   }  MEMOIZE  (   h 7  h 3     h 12  LONG1 ...    h 15  M ...     ...    u
//!   │     │         key "action" key "addr"         key "size"             └─ the dict is complete: 32 bytes,
//!   │     └─ the next number       by its code, which was met before          one slot of the memo, no value
//!   └─ a dict begins
//! ```
//!
//! This reads such dicts without the machine: no stack, no table of dicts, nothing but the entry and the memo's slots.
//! It reads only what it knows, changes nothing until a dict is complete, and finds no fault: at anything else the
//! machine reads the dict from its beginning, and says what is wrong. So the two agree by construction where it gives
//! up, and by the tests where it does not.
//!
//! It takes two things for granted that every pickler keeps to: a number of the memo means the same for
//! ever, and a list that is complete does not grow, so that lists of the same frames can be one. Where the
//! machine finds a pickle that does otherwise, all is read again without runs.

use rustc_hash::FxHashMap;

use super::super::numbers::{LABELLED, NO_LABELS, Numbers};
use super::super::stack_table::NOT_COMPILED;
use super::super::torch::{RawAction, RawEntry};
use super::code::Fallible;
use super::memo::{Memo, Slot};
use super::opcode as op;
use super::scan::{Pattern, Prefix, Scan, Text};
use super::texts::{Known, Texts};
use super::value::{Dict, Heap, Value};

/// What a run reads from, and adds to.
pub(super) struct Ground<'a, 'm> {
    pub(super) bytes: &'a [u8],
    pub(super) memo: &'m mut Memo,
    pub(super) heap: &'m mut Heap,
    pub(super) numbers: &'m mut Numbers,
    pub(super) want_stacks: bool,
}

/// Reads runs of entries, and knows what the last ones looked like.
#[derive(Default)]
pub(super) struct Runs<'a> {
    keys: Vec<Key<'a>>,
    /// Place of the first key of the last entry.
    first_key: usize,
    /// Texts that are values: actions, labels, others.
    actions: Texts<'a>,
    labels: [Texts<'a>; 2],
    others: Texts<'a>,
    /// Lists of frames, by how they are written: the one in the heap that stands for them, and its slot.
    lists: FxHashMap<&'a [u8], (u32, Slot)>,
    /// Pairs that are pool ids: the number of the pool, and the slot of the tuple.
    pools: Vec<((u64, u64), u8, Slot)>,
    /// Slots of the memo that the entry at hand takes.
    puts: Vec<Slot>,
}

/// A key as it is written.
struct Key<'a> {
    known: Known<'a>,
    field: Field,
    /// Place of the key that came after it the last time.
    next: usize,
    /// It with the beginning of its value, the last time.
    met: Prefix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Action,
    Address,
    Size,
    Stream,
    Time,
    Frames,
    Pool,
    Label(usize),
    Other,
}

impl Field {
    fn of(key: &[u8]) -> Self {
        match key {
            b"action" => Self::Action,
            b"addr" | b"device_free" => Self::Address,
            b"size" => Self::Size,
            b"stream" => Self::Stream,
            b"time_us" => Self::Time,
            b"frames" => Self::Frames,
            b"pool_id" => Self::Pool,
            b"compile_context" => Self::Label(0),
            b"user_metadata" => Self::Label(1),
            _ => Self::Other,
        }
    }

    /// Whether its value is a number, or does not count.
    fn is_plain(self, draft: &Draft) -> bool {
        match self {
            Self::Address | Self::Size | Self::Stream | Self::Time | Self::Other => true,
            Self::Label(which) => draft.labels[which] == NO_LABELS[which],
            Self::Action | Self::Frames | Self::Pool => false,
        }
    }
}

/// An entry, as far as it is read.
#[derive(Default)]
struct Draft {
    entry: RawEntry,
    stream: Option<u64>,
    has_pool: bool,
    has: [bool; 3],
    labels: [(u64, u32); 2],
}

/// More kinds of keys than this are no entries' keys.
const MOST_KEYS: usize = 64;
/// Memo numbers of one entry.
const MOST_PUTS: usize = 32;

impl<'a> Runs<'a> {
    /// Reads the dicts from `at` on, just behind the operation that begins the first one, as long as they are plain
    /// entries. Returns what lies on the stack then, and where the last one ends; `None` if the first is none.
    pub(super) fn read(
        &mut self,
        ground: &mut Ground<'a, '_>,
        mut at: usize,
    ) -> Fallible<Option<(Value, usize)>> {
        let first = ground.heap.entries.len();
        let mut end = None;
        while let Some((entry, next)) = self.entry(ground, at) {
            ground.heap.room.push(&mut ground.heap.entries, entry)?;
            for &slot in &self.puts {
                ground.memo.push(slot, &mut ground.heap.room)?;
            }
            end = Some(next);
            if ground.bytes.get(next) != Some(&op::EMPTY_DICT) {
                break;
            }
            at = next + 1;
        }
        let (first, count) = (first as u32, (ground.heap.entries.len() - first) as u32);
        let value = if count == 1 { Value::Entry(first) } else { Value::Run { first, count } };
        Ok(end.map(|end| (value, end)))
    }

    /// One entry, and where it ends. Its slots are in `puts`.
    #[inline]
    fn entry(&mut self, ground: &mut Ground<'a, '_>, at: usize) -> Option<(RawEntry, usize)> {
        self.puts.clear();
        let mut scan = Scan { bytes: ground.bytes, at };
        let own = Slot::of_entry(ground.heap.entries.len() as u32)?;
        self.put(&mut scan, ground.memo, own)?;
        scan.expect(op::MARK)?;
        let mut draft = Draft::default();
        let first_key = self.item(&mut scan, ground, self.first_key, &mut draft)?;
        let mut key = first_key;
        loop {
            let guess = self.keys[key].next;
            if self.met(&mut scan, guess, &mut draft).is_some() {
                key = guess;
                continue;
            }
            if scan.peek()? == op::SETITEMS {
                break;
            }
            let next = self.item(&mut scan, ground, guess, &mut draft)?;
            self.keys[key].next = next;
            key = next;
        }
        self.first_key = first_key;
        let mut entry = draft.entry;
        if draft.has != [true; 3] || entry.action == RawAction::Unknown {
            return None;
        }
        if let Some(handle) = draft.stream {
            entry.stream = ground.numbers.stream(handle).ok()?;
        }
        if ground.want_stacks && draft.labels != NO_LABELS {
            entry.stack = ground.numbers.label(entry.stack, draft.labels).ok()?;
        }
        ground.numbers.entries_have_pools |= draft.has_pool;
        Some((entry, scan.at + 1))
    }

    /// A key and its value. Returns the place of the key: most likely `guess`.
    #[inline(never)]
    fn item(
        &mut self,
        scan: &mut Scan<'a>,
        ground: &mut Ground<'a, '_>,
        guess: usize,
        draft: &mut Draft,
    ) -> Option<usize> {
        let begin = scan.at;
        let place = self.key(scan, ground, guess)?;
        let key = &self.keys[place];
        let (field, value) = (key.field, begin + key.known.pattern.len());
        self.field(scan, ground, field, draft)?;
        if field.is_plain(draft) {
            self.keys[place].met = Prefix::new(scan.bytes, begin, value).unwrap_or_default();
        }
        Some(place)
    }

    /// The same of the key in this place, written as the last time but for the digits of a number; nothing otherwise.
    #[inline(always)]
    fn met(&self, scan: &mut Scan<'a>, place: usize, draft: &mut Draft) -> Option<()> {
        let key = self.keys.get(place)?;
        let number = key.met.number(scan)?;
        match key.field {
            Field::Address => (draft.entry.addr, draft.has[1]) = (number, true),
            Field::Size => (draft.entry.size, draft.has[2]) = (number, true),
            Field::Stream => draft.stream = Some(number),
            Field::Time => draft.entry.time_us = number,
            Field::Label(which) => draft.labels[which] = NO_LABELS[which],
            Field::Action | Field::Frames | Field::Pool | Field::Other => {}
        }
        Some(())
    }

    /// Place of the key at hand: most likely the one at `guess`.
    #[inline]
    fn key(
        &mut self,
        scan: &mut Scan<'a>,
        ground: &mut Ground<'a, '_>,
        guess: usize,
    ) -> Option<usize> {
        let word = scan.word()?;
        let is = |key: &Key| key.known.pattern.is_at(word, scan);
        let place = match self.keys.get(guess) {
            Some(key) if is(key) => guess,
            _ => match self.keys.iter().position(is) {
                Some(place) => place,
                None => self.new_key(*scan, ground)?,
            },
        };
        let Known { pattern, slot, .. } = self.keys[place].known;
        scan.at += pattern.len();
        self.put(scan, ground.memo, slot)?;
        Some(place)
    }

    #[cold]
    fn new_key(&mut self, scan: Scan<'a>, ground: &mut Ground<'a, '_>) -> Option<usize> {
        (self.keys.len() < MOST_KEYS).then_some(())?;
        let known = Self::new_text(scan, ground)?;
        let field = Field::of(known.text.text);
        if let Field::Label(which) = field {
            ground.numbers.entries_have_labels[which] = true;
        }
        self.keys.push(Key { known, field, next: 0, met: Prefix::default() });
        Some(self.keys.len() - 1)
    }

    /// A text, fetched or written out.
    fn any_text(scan: &mut Scan<'a>, memo: &Memo) -> Option<Text<'a>> {
        match scan.peek()? {
            op::BINGET | op::LONG_BINGET => Text::of(scan.bytes, memo.get(scan.reference()?)),
            _ => scan.text(),
        }
    }

    /// The value of a key.
    #[inline]
    fn field(
        &mut self,
        scan: &mut Scan<'a>,
        ground: &mut Ground<'a, '_>,
        field: Field,
        draft: &mut Draft,
    ) -> Option<()> {
        match field {
            Field::Action => {
                draft.entry.action = self.text(scan, ground, |runs| &mut runs.actions)?.action;
                draft.has[0] = true;
            }
            Field::Address => {
                draft.entry.addr = scan.number()?;
                draft.has[1] = true;
            }
            Field::Size => {
                draft.entry.size = scan.number()?;
                draft.has[2] = true;
            }
            Field::Stream => draft.stream = Some(scan.number()?),
            Field::Time => draft.entry.time_us = scan.number()?,
            Field::Frames => {
                if let Some(list) = self.frames(scan, ground)? {
                    draft.entry.stack = list;
                }
            }
            Field::Pool => {
                draft.entry.pool = self.pool(scan, ground)?;
                draft.has_pool = true;
            }
            Field::Label(which) => draft.labels[which] = self.label(scan, ground, which)?,
            Field::Other => drop(self.other(scan, ground, |runs| &mut runs.others)?),
        }
        Some(())
    }

    /// Place and length of a label, if it says something.
    fn label(
        &mut self,
        scan: &mut Scan<'a>,
        ground: &mut Ground<'a, '_>,
        which: usize,
    ) -> Option<(u64, u32)> {
        let nothing = [NOT_COMPILED, ""][which].as_bytes();
        Some(match self.other(scan, ground, |runs| &mut runs.labels[which])? {
            Some(label) if !label.text.is_empty() && label.text != nothing => {
                (label.at as u64, label.text.len() as u32)
            }
            _ => (0, 0),
        })
    }

    /// Any plain value; the text, if it is one.
    #[inline]
    fn other(
        &mut self,
        scan: &mut Scan<'a>,
        ground: &mut Ground<'a, '_>,
        texts: impl Fn(&mut Self) -> &mut Texts<'a>,
    ) -> Option<Option<Text<'a>>> {
        let code = scan.peek()?;
        if let op::BINGET | op::LONG_BINGET = code {
            let mut ahead = *scan;
            let value = ground.memo.get(ahead.reference()?);
            if !matches!(value, Value::Str { .. }) {
                *scan = ahead;
                return (value != Value::Unset).then_some(None);
            }
        }
        match code {
            op::BINGET | op::LONG_BINGET | op::SHORT_BINUNICODE | op::BINUNICODE => {
                self.text(scan, ground, texts).map(|known| Some(known.text))
            }
            _ => scan.plain().map(|()| None),
        }
    }

    /// A text, and the number that it gets, if it gets one.
    #[inline]
    fn text(
        &mut self,
        scan: &mut Scan<'a>,
        ground: &mut Ground<'a, '_>,
        texts: impl Fn(&mut Self) -> &mut Texts<'a>,
    ) -> Option<Known<'a>> {
        let known = match texts(self).find(scan) {
            Some(known) => known,
            None => {
                let new = Self::new_text(*scan, ground)?;
                texts(self).add(new);
                new
            }
        };
        scan.at += known.pattern.len();
        self.put(scan, ground.memo, known.slot)?;
        Some(known)
    }

    #[cold]
    fn new_text(mut scan: Scan<'a>, ground: &mut Ground<'a, '_>) -> Option<Known<'a>> {
        let begin = scan.at;
        let text = Self::any_text(&mut scan, ground.memo)?;
        let pattern = Pattern::new(&scan.bytes[begin..scan.at]);
        let slot = ground.memo.slot(text.value()?, &mut ground.heap.room).ok()?;
        Some(Known { pattern, text, action: RawAction::from_name(text.text), slot })
    }

    /// The number of a list of frames; `None` within, if it is Python's `None`.
    fn frames(&mut self, scan: &mut Scan<'a>, ground: &mut Ground<'a, '_>) -> Option<Option<u32>> {
        match scan.peek()? {
            op::NONE => {
                scan.at += 1;
                Some(None)
            }
            op::BINGET | op::LONG_BINGET => match ground.memo.get(scan.reference()?) {
                Value::List(list) | Value::Tuple(list) => Some(Some(list)),
                Value::None => Some(None),
                _ => None,
            },
            op::EMPTY_LIST => {
                scan.at += 1;
                let place = self.puts.len();
                self.put(scan, ground.memo, Slot::EMPTY)?;
                let is_put = self.puts.len() > place;
                let code = scan.references()?;
                let (list, slot) = match self.lists.get(code) {
                    Some(&known) => known,
                    None => self.new_list(ground, code)?,
                };
                if is_put {
                    self.puts[place] = slot;
                }
                Some(Some(list))
            }
            _ => None,
        }
    }

    #[cold]
    fn new_list(&mut self, ground: &mut Ground<'a, '_>, code: &'a [u8]) -> Option<(u32, Slot)> {
        let mut frames = Vec::new();
        let mut scan = Scan { bytes: code, at: 0 };
        while let Some(op::BINGET | op::LONG_BINGET) = scan.peek() {
            let frame = ground.memo.get(scan.reference()?);
            let Value::Dict(dict) = frame else { return None };
            let is_left_out = matches!(ground.heap.dicts[dict as usize], Dict::Frame);
            (is_left_out != ground.want_stacks).then_some(())?;
            frames.push(frame);
        }
        let is_left_out = !ground.want_stacks && !frames.is_empty();
        let list = ground.heap.sequence(if is_left_out { &[] } else { &frames }).ok()?;
        let sequence = &mut ground.heap.sequences[list as usize];
        (sequence.frames_left_out, sequence.is_shared) = (is_left_out, true);
        let slot = ground.memo.slot(Value::List(list), &mut ground.heap.room).ok()?;
        // The top bit marks a list with labels.
        (list < LABELLED).then_some(())?;
        self.lists.insert(code, (list, slot));
        Some((list, slot))
    }

    fn pool(&mut self, scan: &mut Scan<'a>, ground: &mut Ground<'a, '_>) -> Option<u8> {
        if let op::BINGET | op::LONG_BINGET = scan.peek()? {
            let pair = ground.heap.pair(ground.memo.get(scan.reference()?))?;
            return ground.numbers.pool(pair).ok();
        }
        let pair = (scan.number()?, scan.number()?);
        scan.expect(op::TUPLE2)?;
        let known = self.pools.iter().find(|(known, ..)| *known == pair);
        let &(_, pool, slot) = match known {
            Some(known) => known,
            None => self.new_pool(ground, pair)?,
        };
        self.put(scan, ground.memo, slot)?;
        Some(pool)
    }

    #[cold]
    fn new_pool(
        &mut self,
        ground: &mut Ground<'a, '_>,
        pair: (u64, u64),
    ) -> Option<&((u64, u64), u8, Slot)> {
        let int = |number: u64| i64::try_from(number).ok().map(Value::Int);
        let tuple = ground.heap.sequence(&[int(pair.0)?, int(pair.1)?]).ok()?;
        let slot = ground.memo.slot(Value::Tuple(tuple), &mut ground.heap.room).ok()?;
        self.pools.push((pair, ground.numbers.pool(pair).ok()?, slot));
        self.pools.last()
    }

    /// Takes the next number of the memo for `slot`, if the bytes say so.
    #[inline]
    fn put(&mut self, scan: &mut Scan<'a>, memo: &Memo, slot: Slot) -> Option<()> {
        if scan.is_put()? {
            let next = memo.len() + self.puts.len();
            (scan.put(next)? && self.puts.len() < MOST_PUTS).then_some(())?;
            self.puts.push(slot);
        }
        Some(())
    }
}
