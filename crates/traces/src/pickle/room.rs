//! Room: the memory that reading a pickle may take.
//!
//! One byte of a pickle can make a value of 16, and a few bytes that refer to what is there already can make millions.
//! So what is counted is memory: every table asks for room when it grows, and what it grows by is taken from one sum.
//!
//! ```text
//!   push ──▶ has the table space left?  ──yes──▶ done: nothing is counted
//!                      └─no─▶ grow: twice as long, if there is room for that; else as far as it goes; else an error
//! ```

use super::super::room::no_room;
use super::code::Fallible;
use gmlake_core::units::Bytes;

/// What may still be taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    limit: Bytes,
    left: Bytes,
}

/// Items of a table when it first grows.
const FIRST: usize = 16;

impl Room {
    pub(super) fn new(limit: Bytes) -> Self {
        Self { limit, left: limit }
    }

    /// Bytes that may still be taken.
    pub(super) fn left(self) -> Bytes {
        self.left
    }

    /// Bytes that might be taken in all.
    pub(super) fn limit(self) -> Bytes {
        self.limit
    }

    /// Appends to a table and returns the place as a number.
    #[inline]
    pub(super) fn push<T>(&mut self, table: &mut Vec<T>, item: T) -> Fallible<u32> {
        if table.len() == table.capacity() {
            self.grow(table, 1)?;
        }
        let place = table.len() as u32;
        table.push(item);
        Ok(place)
    }

    /// Appends several to a table.
    #[inline]
    pub(super) fn extend<T: Copy>(&mut self, table: &mut Vec<T>, items: &[T]) -> Fallible<()> {
        self.reserve(table, items.len())?;
        table.extend_from_slice(items);
        Ok(())
    }

    /// Sees to it that a table has space for `more` items.
    #[inline]
    pub(super) fn reserve<T>(&mut self, table: &mut Vec<T>, more: usize) -> Fallible<()> {
        if table.capacity() - table.len() < more { self.grow(table, more) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn grow<T>(&mut self, table: &mut Vec<T>, more: usize) -> Fallible<()> {
        let (item, had) = (size_of::<T>().max(1), table.capacity());
        let affordable = had.saturating_add((self.left / item as u64) as usize);
        // Places are numbers of 32 bits.
        let most = affordable.min(u32::MAX as usize);
        let (needed, twice) = (table.len().saturating_add(more), FIRST.max(2 * had));
        if needed > most {
            return Err(Box::new(no_room(self.limit)));
        }
        let wanted = needed.max(twice.min(most));
        table.reserve_exact(wanted - table.len());
        self.left = self.left.saturating_sub(((table.capacity() - had) * item) as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_stays_within_the_limit() {
        for limit in [0, 8, 100, 1000, 12_345] {
            let (mut room, mut small, mut large) = (Room::new(limit), Vec::new(), Vec::new());
            let error = loop {
                let both = (room.push(&mut small, 7_u32), room.extend(&mut large, &[7_u64; 3]));
                assert!((4 * small.capacity() + 8 * large.capacity()) as u64 <= limit);
                if let (Err(error), _) | (_, Err(error)) = both {
                    break error;
                }
            };
            assert!(error.to_string().contains("memory"), "{error}");
            // What is left is too little for one more.
            assert!(4 * small.len() as u64 + 24 * large.len() as u64 / 3 + 64 + 24 >= limit / 2);
        }
    }
}
