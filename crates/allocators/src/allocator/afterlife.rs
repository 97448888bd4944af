//! Freed memory that a stream may still be using: who may have it, and when it may be taken away.
//!
//! A free is a word of the host; the kernels that use the memory are still in the queue of its stream. The next user on
//! the same stream comes after them. On another stream it has to be made to ([`Order`]), and a mapping may only go when
//! they are known to be done. This is the checker's own book of both, in plain ordered maps:
//!
//! ```text
//!   physical   object 3  ├── freed on stream 1, moment 7 ──┤├─ in use ─┤├── freed on stream 2, moment 9 ──┤
//!   addresses  0x1_0000  ├── last used on stream 1, freed at moment 7 ──┤
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::device::{Extent, Order};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// A stream, and the moment when it was done with something, as far as the host can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastUse {
    pub(super) stream: StreamId,
    pub(super) moment: u64,
}

/// Where freed memory begins, as an object and an offset in it.
type Start = (u64, Bytes);

/// Where it ends, and its last use on each stream.
type Freed = (Bytes, Arc<[LastUse]>);

/// Physical memory and addresses that were freed.
#[derive(Debug, Clone, Default)]
pub(super) struct Afterlife {
    memory: BTreeMap<Start, Freed>,
}

impl Afterlife {
    /// Memory was freed.
    pub(super) fn free(&mut self, extents: impl Iterator<Item = Extent>, uses: &[LastUse]) {
        let uses: Arc<[LastUse]> = uses.into();
        for Extent { object, offset, size } in extents {
            self.memory.insert((object, offset), (offset + size, Arc::clone(&uses)));
        }
    }

    /// Only these physical objects are there still; nobody can be handed the memory of others.
    pub(super) fn keep(&mut self, objects: &BTreeSet<u64>) {
        self.memory.retain(|(object, _), _| objects.contains(object));
    }

    /// Memory is handed out to a stream: the streams that used it last must be done before.
    ///
    /// # Panics
    /// If nothing says that it is.
    pub(super) fn take(&mut self, extent: Extent, stream: StreamId, order: &Order) {
        for ((object, start), (end, uses)) in self.overlapping(extent) {
            self.memory.remove(&(object, start));
            for last in &*uses {
                assert!(
                    order.is_before(last.stream, last.moment, stream),
                    "{extent:?} is handed out to {stream:?}, but {last:?} may still be using it"
                );
            }
            let (from, to) = (extent.offset, extent.offset + extent.size);
            if start < from {
                self.memory.insert((object, start), (from, Arc::clone(&uses)));
            }
            if end > to {
                self.memory.insert((object, to), (end, uses));
            }
        }
    }

    fn overlapping(&self, extent: Extent) -> Vec<(Start, Freed)> {
        let Extent { object, offset, size } = extent;
        let before = self.memory.range(..(object, offset)).next_back();
        let inside = self.memory.range((object, offset)..(object, offset + size));
        let reaches =
            |&(&(other, _), (end, _)): &(&Start, &Freed)| other == object && *end > offset;
        before.into_iter().filter(reaches).chain(inside).map(|(&k, v)| (k, v.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: Bytes, size: Bytes) -> Extent {
        Extent { object: 1, offset, size }
    }

    fn freed(stream: u16) -> Afterlife {
        let mut afterlife = Afterlife::default();
        let last = LastUse { stream: StreamId(stream), moment: 0 };
        afterlife.free([extent(100, 100)].into_iter(), &[last]);
        afterlife
    }

    #[test]
    fn the_same_stream_may_have_it_and_what_it_leaves_is_still_known() {
        let mut afterlife = freed(1);
        afterlife.take(extent(120, 20), StreamId(1), &Order::default());
        let left: Vec<_> = afterlife.memory.iter().map(|(&(_, at), &(end, _))| (at, end)).collect();
        assert_eq!(left, [(100, 120), (140, 200)]);
    }

    #[test]
    #[should_panic(expected = "may still be using it")]
    fn another_stream_may_not() {
        freed(1).take(extent(150, 200), StreamId(2), &Order::default());
    }

    #[test]
    #[should_panic(expected = "StreamId(3)")]
    fn nor_may_the_first_before_all_that_used_it_are_done() {
        let mut afterlife = Afterlife::default();
        let uses = [1, 3].map(|stream| LastUse { stream: StreamId(stream), moment: 0 });
        afterlife.free([extent(100, 100)].into_iter(), &uses);
        afterlife.take(extent(150, 10), StreamId(1), &Order::default());
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut afterlife = freed(1);
        afterlife.keep(&BTreeSet::from([1]));
        assert_eq!(afterlife.memory.len(), 1);
        afterlife.keep(&BTreeSet::from([2]));
        assert!(afterlife.memory.is_empty());
    }

    #[test]
    fn what_was_never_used_belongs_to_nobody() {
        freed(1).take(extent(200, 50), StreamId(2), &Order::default());
    }
}
