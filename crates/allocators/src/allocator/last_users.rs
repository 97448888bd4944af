//! The last users of free memory: which stream may still be working on it.
//!
//! A policy that serves all streams from one pool makes the next stream wait for the last one. The wait is for all that
//! the last stream has queued by then, which is more than need be, and right.
//!
//! ```text
//!   0x1000      0x3000            0x8000              take 0x2000..0x4000 for stream 2:
//!   ├─ stream 1 ─┼──── stream 2 ────┤                 stream 2 waits for stream 1; the rest was its own
//! ```

use std::collections::BTreeMap;

use crate::device::{Device, DevicePtr};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// Free memory by address, each piece with the stream that freed it.
#[derive(Debug, Clone, Default)]
pub(super) struct LastUsers {
    /// First address to end and stream. Pieces do not overlap; neighbours of one stream are one piece.
    pieces: BTreeMap<u64, (u64, StreamId)>,
    /// Times that one stream was made to wait for another.
    pub(super) waits: u64,
}

impl LastUsers {
    /// Memory was freed, and `stream` used it last.
    pub(super) fn note(&mut self, at: DevicePtr, size: Bytes, stream: StreamId) {
        let (mut start, mut end) = (at.0, at.0 + size);
        if let Some((&before, &(its_end, user))) = self.pieces.range(..start).next_back()
            && its_end == start
            && user == stream
        {
            self.pieces.remove(&before);
            start = before;
        }
        if let Some(&(its_end, user)) = self.pieces.get(&end)
            && user == stream
        {
            self.pieces.remove(&end);
            end = its_end;
        }
        self.pieces.insert(start, (end, stream));
    }

    /// Memory is handed out to `stream`, which waits for all others that used it.
    pub(super) fn take(
        &mut self,
        device: &mut dyn Device,
        (at, size): (DevicePtr, Bytes),
        stream: StreamId,
    ) {
        let mut others = self.forget(at, size);
        others.sort_unstable();
        others.dedup();
        for other in others.into_iter().filter(|&other| other != stream) {
            let fence = device.fence(other);
            device.stream_wait(stream, fence);
            device.drop_fence(fence);
            self.waits += 1;
        }
    }

    /// Forgets a range, and says who used it.
    pub(super) fn forget(&mut self, at: DevicePtr, size: Bytes) -> Vec<StreamId> {
        let (from, to) = (at.0, at.0 + size);
        let before = self.pieces.range(..from).next_back().filter(|(_, (end, _))| *end > from);
        let first = before.map_or(from, |(&start, _)| start);
        let touched: Vec<_> = self.pieces.range(first..to).map(|(&k, &v)| (k, v)).collect();
        for &(start, (end, user)) in &touched {
            self.pieces.remove(&start);
            if start < from {
                self.pieces.insert(start, (from, user));
            }
            if end > to {
                self.pieces.insert(to, (end, user));
            }
        }
        touched.into_iter().map(|(_, (_, user))| user).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The obvious twin: the last user of each byte.
        #[test]
        fn every_byte_has_its_last_user(
            steps in prop::collection::vec((0..60_u64, 1..12_u64, 0..3_u16, any::<bool>()), 1..60),
        ) {
            let mut twin = [None; 80];
            let mut users = LastUsers::default();
            for (at, size, stream, is_free) in steps {
                let range = at as usize..(at + size) as usize;
                let mut expected: Vec<_> = twin[range.clone()].iter().flatten().copied().collect();
                let mut found = users.forget(DevicePtr(at), size);
                expected.sort_unstable();
                expected.dedup();
                found.sort_unstable();
                found.dedup();
                prop_assert_eq!(found, expected);
                twin[range.clone()].fill(None);
                if is_free {
                    users.note(DevicePtr(at), size, StreamId(stream));
                    twin[range].fill(Some(StreamId(stream)));
                }
            }
        }
    }
}
