//! The last users of free memory: which stream may still be working on it.
//!
//! A policy that serves all streams from one pool makes the next stream wait for the last one. The wait is for all that
//! the last stream has queued by then, which is more than need be, and right.
//!
//! ```text
//!   0x1000      0x3000            0x8000              take 0x2000..0x4000 for stream 2:
//!   ├─ stream 1 ─┼──── stream 2 ────┤                 stream 2 waits for stream 1; the rest was its own
//! ```

use crate::device::{Device, DevicePtr};
use gmlake_core::program::StreamId;
use gmlake_core::ranges::Ranges;
use gmlake_core::units::Bytes;

/// Free memory by address, each piece with the stream that freed it.
#[derive(Debug, Clone, Default)]
pub(super) struct LastUsers {
    pieces: Ranges<StreamId>,
    /// Times that one stream was made to wait for another.
    pub(super) waits: u64,
}

impl LastUsers {
    /// Memory was freed, and `stream` used it last.
    pub(super) fn note(&mut self, at: DevicePtr, size: Bytes, stream: StreamId) {
        self.pieces.set(at.0..at.0 + size, stream);
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
        self.pieces.take(at.0..at.0 + size).into_iter().map(|(_, user)| user).collect()
    }
}
