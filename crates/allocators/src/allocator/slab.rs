//! A slab: values in a `Vec`, found by number, with their places used again.
//!
//! Inside an allocator, blocks link to each other by plain index. To the outside a block is a [`BlockId`]: index and
//! generation, where the generation changes each time the place is given up, so that a stale id is noticed.

use std::ops::{Index, IndexMut};

use super::{BlockId, SlabIndex};

/// No value; the end of a list of links.
pub const NIL: SlabIndex = SlabIndex::MAX;

#[derive(Debug, Clone)]
struct Place<T> {
    generation: u32,
    value: T,
}

/// Values by index, with places used again in last-out-first-in order.
#[derive(Debug, Clone)]
pub struct Slab<T> {
    places: Vec<Place<T>>,
    vacant: Vec<SlabIndex>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Stores a value.
    ///
    /// # Panics
    /// With more than 2^32 - 1 values.
    #[inline]
    pub fn insert(&mut self, value: T) -> SlabIndex {
        if let Some(index) = self.vacant.pop() {
            self.places[index as usize].value = value;
            return index;
        }
        let index = SlabIndex::try_from(self.places.len()).expect("fewer than 2^32 blocks");
        assert_ne!(index, NIL, "slab is full");
        self.places.push(Place { generation: 0, value });
        index
    }

    /// Gives up the place of a value, which is left behind until the place is used again.
    #[inline]
    pub fn remove(&mut self, index: SlabIndex) {
        self.retire(index);
        self.vacant.push(index);
    }

    /// Makes all ids of this value stale, and keeps the value.
    #[inline]
    pub fn retire(&mut self, index: SlabIndex) {
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1);
    }

    /// The value's present id.
    #[inline]
    pub fn id(&self, index: SlabIndex) -> BlockId {
        BlockId { index, generation: self.places[index as usize].generation }
    }

    /// The value, with its present id.
    #[inline]
    pub fn with_id(&mut self, index: SlabIndex) -> (&mut T, BlockId) {
        let Place { generation, value } = &mut self.places[index as usize];
        (value, BlockId { index, generation: *generation })
    }

    /// Index of the value with this id, unless the id is stale.
    #[inline]
    pub fn find(&self, id: BlockId) -> Option<SlabIndex> {
        let place = self.places.get(id.index as usize)?;
        (place.generation == id.generation).then_some(id.index)
    }

    /// Index of the value with this id.
    ///
    /// # Panics
    /// If the id is stale: its block was freed before.
    #[inline]
    pub fn expect(&self, id: BlockId) -> SlabIndex {
        self.find(id).unwrap_or_else(|| stale(id))
    }

    /// Every value whose place was not given up, by index.
    pub fn iter(&self) -> impl Iterator<Item = (SlabIndex, &T)> {
        let mut is_vacant = vec![false; self.places.len()];
        self.vacant.iter().for_each(|&index| is_vacant[index as usize] = true);
        let places = (0..).zip(&self.places).zip(is_vacant);
        places.filter(|(_, is_vacant)| !is_vacant).map(|((index, place), _)| (index, &place.value))
    }
}

/// Takes the id by value, so that it stays in registers where it is not stale.
#[cold]
fn stale(id: BlockId) -> ! {
    panic!("{id:?} is stale: the block was freed before")
}

impl<T> Index<SlabIndex> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: SlabIndex) -> &T {
        &self.places[index as usize].value
    }
}

impl<T> IndexMut<SlabIndex> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: SlabIndex) -> &mut T {
        &mut self.places[index as usize].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_is_noticed_although_the_place_is_used_again() {
        let mut slab = Slab::default();
        let first = slab.insert("a");
        let id = slab.id(first);
        slab.remove(first);
        assert_eq!(slab.iter().next(), None);
        assert_eq!(slab.insert("b"), first);
        assert_eq!(slab.find(id), None);
        assert!(slab.iter().eq([(first, &"b")]));
        assert_ne!(slab.id(first), id);
    }
}
