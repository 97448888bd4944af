//! Freed memory that a stream may still be using: who may have it, and when it may be taken away.
//!
//! A free is a word of the host; the kernels that use the memory are still in the queue of its stream. The next user on
//! the same stream comes after them. On another stream it has to be made to ([`Order`]), and a mapping may only go when
//! they are known to be done. This is the checker's own book of the memory; that of the mappings is its
//! [`Record`](crate::device::Record).
//!
//! ```text
//!   physical   6 MiB     ├── freed on stream 1, moment 7 ──┤├─ in use ─┤├── freed on stream 2, moment 9 ──┤
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::device::{Extent, LastUse, Order};
use gmlake_core::program::StreamId;
use gmlake_core::ranges::Ranges;

/// Physical memory that was freed.
#[derive(Debug, Clone, Default)]
pub(super) struct Afterlife {
    /// The last use of each piece, on each stream.
    memory: Ranges<Arc<[LastUse]>>,
}

impl Afterlife {
    /// Memory was freed.
    pub(super) fn free(&mut self, extents: &[Extent], uses: &[LastUse]) {
        let uses: Arc<[LastUse]> = uses.into();
        for extent in extents {
            self.memory.set(extent.start..extent.end(), Arc::clone(&uses));
        }
    }

    /// Only this memory is there still, from each start to its end; nobody can be handed the rest.
    pub(super) fn keep(&mut self, held: &BTreeMap<u64, u64>) {
        let last = |end: u64| held.range(..end).next_back().map_or(0, |(_, &end)| end);
        self.memory.retain(|piece| last(piece.end) > piece.start);
    }

    /// Memory is handed out to a stream: the streams that used it last must be done before.
    ///
    /// # Panics
    /// If nothing says that it is.
    pub(super) fn take(&mut self, extent: Extent, stream: StreamId, order: &Order) {
        for (_, uses) in self.memory.take(extent.start..extent.end()) {
            for &(user, moment) in &*uses {
                assert!(
                    order.is_before(user, moment, stream),
                    "{} bytes of memory are handed out to stream {}, but stream {} may still be using them",
                    extent.size,
                    stream.0,
                    user.0
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_core::units::Bytes;

    fn extent(start: u64, size: Bytes) -> Extent {
        Extent { start, size }
    }

    fn freed(stream: u16) -> Afterlife {
        let mut afterlife = Afterlife::default();
        afterlife.free(&[extent(100, 100)], &[(StreamId(stream), 0)]);
        afterlife
    }

    #[test]
    fn the_same_stream_may_have_it_and_what_it_leaves_is_still_known() {
        let mut afterlife = freed(1);
        afterlife.take(extent(120, 20), StreamId(1), &Order::default());
        let left: Vec<_> = afterlife.memory.within(0..300).map(|(piece, _)| piece).collect();
        assert_eq!(left, [100..120, 140..200]);
    }

    #[test]
    #[should_panic(expected = "stream 1 may still be using them")]
    fn another_stream_may_not() {
        freed(1).take(extent(150, 200), StreamId(2), &Order::default());
    }

    #[test]
    #[should_panic(expected = "stream 3 may still be using them")]
    fn nor_may_the_first_before_all_that_used_it_are_done() {
        let mut afterlife = Afterlife::default();
        let uses = [1, 3].map(|stream| (StreamId(stream), 0));
        afterlife.free(&[extent(100, 100)], &uses);
        afterlife.take(extent(150, 10), StreamId(1), &Order::default());
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut afterlife = freed(1);
        afterlife.keep(&BTreeMap::from([(0, 50), (150, 160), (200, 300)]));
        assert_eq!(afterlife.memory.within(0..300).count(), 1);
        afterlife.keep(&BTreeMap::from([(0, 100), (200, 300)]));
        assert_eq!(afterlife.memory.within(0..300).count(), 0);
    }

    #[test]
    fn what_was_never_used_belongs_to_nobody() {
        freed(1).take(extent(200, 50), StreamId(2), &Order::default());
    }
}
