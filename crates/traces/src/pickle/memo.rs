//! The memo: values that a pickle numbers, to come back to them.
//!
//! Python's pickler numbers every dict, list and string that it writes, so that a snapshot has two to four numbers for
//! each trace entry, and fetches hardly any of them. A slot is therefore four bytes; only what is no container, and has
//! no number in the heap, takes a value of 16 next to it.
//!
//! ```text
//!   0eee...     trace entry e        100d...   dict d     101l...   list l     110t...   tuple t
//!   111o...     another value: number o in a table        1111...   nothing
//! ```

use super::code::Fallible;
use super::room::Room;
use super::value::Value;

/// Values by number.
#[derive(Default)]
pub(super) struct Memo {
    slots: Vec<Slot>,
    others: Vec<Value>,
}

/// One number's value, packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(u32);

const UNSET: Slot = Slot(u32::MAX);
const TAG: u32 = 29;
const DICT: u32 = 0b100;
const LIST: u32 = 0b101;
const TUPLE: u32 = 0b110;
const OTHER: u32 = 0b111;

impl Slot {
    /// Stands for a slot that is not known yet.
    pub(super) const EMPTY: Self = UNSET;

    /// The slot of a trace entry, if its number is small enough.
    #[inline]
    pub(super) fn of_entry(entry: u32) -> Option<Self> {
        (entry >> 31 == 0).then_some(Self(entry))
    }

    #[inline]
    fn packed(value: Value) -> Option<Self> {
        let (tag, number) = match value {
            Value::Entry(entry) => return Self::of_entry(entry),
            Value::Dict(dict) => (DICT, dict),
            Value::List(list) => (LIST, list),
            Value::Tuple(tuple) => (TUPLE, tuple),
            _ => return None,
        };
        (number >> TAG == 0).then_some(Self(tag << TAG | number))
    }
}

impl Memo {
    /// How many numbers there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The value under a number; `Unset` if there is none.
    #[inline]
    pub(super) fn get(&self, id: usize) -> Value {
        let Some(&slot) = self.slots.get(id) else { return Value::Unset };
        let number = slot.0 & ((1 << TAG) - 1);
        match slot.0 >> TAG {
            _ if slot == UNSET => Value::Unset,
            DICT => Value::Dict(number),
            LIST => Value::List(number),
            TUPLE => Value::Tuple(number),
            OTHER => self.others[number as usize],
            _ => Value::Entry(slot.0),
        }
    }

    /// A slot for a value, to be used any number of times.
    #[inline]
    pub(super) fn slot(&mut self, value: Value, room: &mut Room) -> Fallible<Slot> {
        match Slot::packed(value) {
            Some(slot) => Ok(slot),
            None => Ok(Slot(OTHER << TAG | room.push(&mut self.others, value)?)),
        }
    }

    /// Stores a value under the next number.
    #[inline]
    pub(super) fn push(&mut self, slot: Slot, room: &mut Room) -> Fallible<()> {
        room.push(&mut self.slots, slot).map(drop)
    }

    /// Stores a value under a number, at whatever place.
    pub(super) fn set(&mut self, id: usize, value: Value, room: &mut Room) -> Fallible<()> {
        if id >= self.slots.len() {
            let more = id + 1 - self.slots.len();
            room.reserve(&mut self.slots, more)?;
            self.slots.resize(id + 1, UNSET);
        }
        self.slots[id] = self.slot(value, room)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_back() {
        let values = [
            Value::Entry(0),
            Value::Entry(u32::MAX >> 1),
            Value::Entry(u32::MAX),
            Value::Dict(5),
            Value::Dict(1 << 29),
            Value::List((1 << 29) - 1),
            Value::List(u32::MAX),
            Value::Tuple(0),
            Value::Str { len: 3, at: 1 << 40 },
            Value::Int(-1),
            Value::None,
        ];
        let (mut memo, mut room) = (Memo::default(), Room::new(1 << 20));
        for (id, &value) in values.iter().enumerate() {
            memo.set(2 * id + 1, value, &mut room).unwrap();
        }
        for (id, &value) in values.iter().enumerate() {
            assert_eq!((memo.get(2 * id), memo.get(2 * id + 1)), (Value::Unset, value));
        }
        assert_eq!(memo.get(1000), Value::Unset);
    }
}
