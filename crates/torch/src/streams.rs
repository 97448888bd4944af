//! PyTorch's stream handles, numbered in the order in which they appear.

use rustc_hash::FxHashMap;

use gmlake_core::program::StreamId;

/// Handles and their numbers.
#[derive(Debug, Default)]
pub(super) struct Streams {
    ids: FxHashMap<u64, StreamId>,
    handles: Vec<u64>,
    last: Option<(u64, StreamId)>,
}

impl Streams {
    /// The number of a stream, and whether it is new; `None` if there are more streams than numbers.
    #[inline]
    pub(super) fn number(&mut self, handle: u64) -> Option<(StreamId, bool)> {
        if let Some((last, id)) = self.last
            && last == handle
        {
            return Some((id, false));
        }
        let (id, is_new) = match self.ids.get(&handle) {
            Some(&id) => (id, false),
            None => (self.add(handle)?, true),
        };
        self.last = Some((handle, id));
        Some((id, is_new))
    }

    /// The handle behind a number.
    pub(super) fn handle(&self, id: StreamId) -> u64 {
        self.handles[usize::from(id.0)]
    }

    /// The same, or the default stream for a number that no request came with.
    pub(super) fn handle_or_default(&self, id: StreamId) -> u64 {
        self.handles.get(usize::from(id.0)).copied().unwrap_or(0)
    }

    #[cold]
    fn add(&mut self, handle: u64) -> Option<StreamId> {
        let id = StreamId(u16::try_from(self.handles.len()).ok()?);
        self.ids.insert(handle, id);
        self.handles.push(handle);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stay() {
        let mut streams = Streams::default();
        let handles = [0_u64, 0x7f00_0000_1000, 0, u64::MAX, 0x7f00_0000_1000];
        let numbers = handles.map(|handle| streams.number(handle).unwrap());
        let expected = [(0, true), (1, true), (0, false), (2, true), (1, false)];
        assert_eq!(numbers, expected.map(|(id, is_new)| (StreamId(id), is_new)));
        assert_eq!(streams.handle(StreamId(1)), 0x7f00_0000_1000);
    }

    #[test]
    fn more_streams_than_numbers_are_refused() {
        let mut streams = Streams::default();
        assert!((0..=u64::from(u16::MAX)).all(|handle| streams.number(handle).is_some()));
        assert_eq!(streams.number(1 << 40), None);
        assert_eq!(streams.number(7), Some((StreamId(7), false)));
    }
}
