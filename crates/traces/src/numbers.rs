//! Numbers: stream handles, pool ids and call stacks, each stored once and known by a small number.
//!
//! While a file is read, things are numbered as they appear; when a device is complete, what it uses is numbered
//! anew in ascending order, because PyTorch orders its pools by stream handle.

use std::borrow::Borrow;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::{Position, Result, TraceError};

/// Distinct values, numbered in order of appearance.
#[derive(Debug, Clone)]
pub(super) struct Interner<T> {
    values: Vec<T>,
    number_of: FxHashMap<T, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: Vec::new(), number_of: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// The value's number.
    pub(super) fn intern(&mut self, value: T) -> u32 {
        let next = self.values.len() as u32;
        match self.number_of.get(&value) {
            Some(&number) => number,
            None => {
                self.values.push(value.clone());
                self.number_of.insert(value, next);
                next
            }
        }
    }

    /// The number of the value that `value` stands for, which is copied only if it is new.
    pub(super) fn intern_ref<Q>(&mut self, value: &Q) -> u32
    where
        T: Borrow<Q> + for<'q> From<&'q Q>,
        Q: Eq + Hash + ?Sized,
    {
        match self.number_of.get(value) {
            Some(&number) => number,
            None => self.intern(value.into()),
        }
    }

    /// All values; each one's place is its number.
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }
}

/// Marks a number of [`Numbers::labelled`].
pub(super) const LABELLED: u32 = 1 << 31;

pub(super) const NO_LABELS: [(u64, u32); 2] = [(0, 0); 2];

/// A list of frames by its number in the pickle, and the places and lengths of `compile_context` and `user_metadata`.
pub(super) type Labelled = (u32, [(u64, u32); 2]);

/// The streams and pools of a file, in order of appearance. Stream 0 and the default pool have number 0, so that it
/// stands for those that are not named.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    streams: Interner<u64>,
    pools: Interner<(u64, u64)>,
    last_stream: Option<(u64, u16)>,
    /// Entries of a pickle that have labels: each one's list of frames, and where its labels lie in the file.
    labelled: Interner<Labelled>,
    /// Whether any trace entry named its pool.
    pub(super) entries_have_pools: bool,
    /// Whether any trace entry had a `compile_context`, and a `user_metadata`.
    pub(super) entries_have_labels: [bool; 2],
}

impl Default for Numbers {
    fn default() -> Self {
        let (mut streams, mut pools) = (Interner::default(), Interner::default());
        streams.intern(0);
        pools.intern((0, 0));
        Self {
            streams,
            pools,
            last_stream: None,
            labelled: Interner::default(),
            entries_have_pools: false,
            entries_have_labels: [false; 2],
        }
    }
}

impl Numbers {
    /// The provisional number of a stream handle.
    #[inline]
    pub(super) fn stream(&mut self, handle: u64) -> Result<u16> {
        match self.last_stream {
            Some((last, number)) if last == handle => Ok(number),
            _ => self.other_stream(handle),
        }
    }

    fn other_stream(&mut self, handle: u64) -> Result<u16> {
        let number = u16::try_from(self.streams.intern(handle))
            .map_err(|_| too_many("more than 65,536 streams"))?;
        self.last_stream = Some((handle, number));
        Ok(number)
    }

    /// The number, in place of a list of frames, of such a list with labels. It has its top bit set, which no list has.
    pub(super) fn label(&mut self, list: u32, labels: [(u64, u32); 2]) -> Result<u32> {
        let number = self.labelled.intern((list, labels));
        if number >= LABELLED - 1 {
            Err(too_many("more than 2^31 labels"))
        } else {
            Ok(LABELLED | number)
        }
    }

    /// The list of frames behind a number, and its labels.
    pub(super) fn parts(&self, number: u32) -> Labelled {
        match number & LABELLED {
            0 => (number, NO_LABELS),
            _ => {
                let labelled = self.labelled.values().get((number ^ LABELLED) as usize);
                labelled.copied().unwrap_or((number, NO_LABELS))
            }
        }
    }

    /// The provisional number of a pool id.
    pub(super) fn pool(&mut self, id: (u64, u64)) -> Result<u8> {
        u8::try_from(self.pools.intern(id)).map_err(|_| too_many("more than 256 memory pools"))
    }

    /// The final order of the streams that `used` names: their handles, ascending, and the place of each number.
    pub(super) fn sort_streams(&self, used: &[bool]) -> (Vec<u64>, Vec<u16>) {
        sort_used(self.streams.values(), used)
    }

    /// The same for pools; the default pool is there in any case.
    pub(super) fn sort_pools(&self, used: &[bool]) -> (Vec<(u64, u64)>, Vec<u16>) {
        let mut used = used.to_vec();
        used.resize(self.pools.values().len(), false);
        used[0] = true;
        sort_used(self.pools.values(), &used)
    }
}

/// The used values in ascending order, and for each number its place among them.
fn sort_used<T: Ord + Copy>(values: &[T], used: &[bool]) -> (Vec<T>, Vec<u16>) {
    let is_used = |number: usize| used.get(number).copied().unwrap_or(false);
    let mut order: Vec<usize> = (0..values.len()).filter(|&number| is_used(number)).collect();
    order.sort_by_key(|&number| values[number]);
    let mut place = vec![0; values.len()];
    for (at, &number) in order.iter().enumerate() {
        place[number] = at as u16;
    }
    (order.into_iter().map(|number| values[number]).collect(), place)
}

fn too_many(problem: &str) -> TraceError {
    TraceError::new(
        Position::File,
        problem,
        "no real recording has this many: is the file damaged?",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbered_by_handle_and_only_those_that_are_used() {
        let mut numbers = Numbers::default();
        let given: Vec<u16> =
            [70, 0, 50, 70, 60].map(|handle| numbers.stream(handle).unwrap()).to_vec();
        assert_eq!(given, [1, 0, 2, 1, 3]);
        let (handles, place) = numbers.sort_streams(&[true, true, true, false]);
        assert_eq!(handles, [0, 50, 70]);
        assert_eq!(place[..3], [0, 2, 1]);
    }

    #[test]
    fn the_default_pool_is_first() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.sort_pools(&[]).0, [(0, 0)]);
        assert_eq!(numbers.pool((0, 7)).unwrap(), 1);
        assert_eq!(numbers.sort_pools(&[false, true]).0, [(0, 0), (0, 7)]);
        assert!((1..=255).map(|id| numbers.pool((id, 0))).any(|given| given.is_err()));
    }
}
