//! Memory that comes from the driver and goes back, as PyTorch counts and records it.
//!
//! ```text
//!   GpuAllocator ──▶ Sleeper ──▶ Limited ──▶ Watched (Segments, Timed) ──▶ CudaDevice
//!                                               │ counts pieces and bytes; where somebody listens, keeps what
//!                                               └ happened, in order, for the history
//! ```

use gmlake_allocators::device::{Call, DevicePtr, DriverCall, Watch};
use gmlake_core::program::Action;
use gmlake_core::units::Bytes;

/// A segment came or went: what happened, its first byte and its size.
pub(super) type Change = (Action, DevicePtr, Bytes);

/// Counts segments.
#[derive(Debug, Default)]
pub struct Segments {
    /// Sizes that came (positive) and went (negative) since somebody asked.
    changes: Vec<i64>,
    /// What happened, if that is wanted.
    pub(super) story: Option<Vec<Change>>,
    /// Calls that obtained memory, and that gave it back.
    pub(super) calls: (u64, u64),
}

impl Segments {
    /// The sizes that came and went since this was asked last.
    #[inline]
    pub(super) fn take_changes(&mut self) -> Vec<i64> {
        if self.changes.is_empty() { Vec::new() } else { std::mem::take(&mut self.changes) }
    }

    fn came(&mut self, size: Bytes) {
        self.changes.push(size as i64);
        self.calls.0 += 1;
    }

    fn went(&mut self, size: Bytes) {
        self.changes.push(-(size as i64));
        self.calls.1 += 1;
    }
}

impl Watch for Segments {
    fn wants_amounts(&self) -> bool {
        true
    }

    fn after(&mut self, done: &DriverCall<'_>) {
        let size = done.amount.size;
        match done.call {
            _ if !done.is_done() => return,
            Call::MemAlloc | Call::Create => self.came(size),
            Call::MemFree | Call::Release => self.went(size),
            _ => {}
        }
        let action = match done.call {
            Call::MemAlloc => Action::SegmentAlloc,
            Call::MemFree => Action::SegmentFree,
            Call::Map => Action::SegmentMap,
            Call::Unmap => Action::SegmentUnmap,
            _ => return,
        };
        if let Some(story) = &mut self.story {
            story.push((action, done.at, size));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_allocators::device::{Device, SimDevice, Watched};
    use gmlake_core::units::MIB;

    #[test]
    fn what_comes_and_goes_is_counted_and_kept() {
        let mut gpu = Watched::new(SimDevice::new(64 * MIB), Segments::default());
        let at = gpu.malloc(2 * MIB).unwrap();
        gpu.watch.story = Some(Vec::new());
        let range = gpu.reserve(8 * MIB).unwrap();
        let handles = [gpu.create(4 * MIB).unwrap(), gpu.create(4 * MIB).unwrap()];
        gpu.map_for_use(range, &handles, 8 * MIB).unwrap();
        gpu.free(at);
        gpu.unmap(range, 8 * MIB);
        handles.into_iter().for_each(|handle| gpu.release(handle));
        let mib = MIB as i64;
        assert_eq!(
            gpu.watch.take_changes(),
            [2 * mib, 4 * mib, 4 * mib, -2 * mib, -4 * mib, -4 * mib]
        );
        assert!(gpu.watch.take_changes().is_empty());
        assert_eq!(gpu.watch.calls, (3, 3));
        let story = gpu.watch.story.take().unwrap();
        let expected = [
            (Action::SegmentMap, range, 8 * MIB),
            (Action::SegmentFree, at, 2 * MIB),
            (Action::SegmentUnmap, range, 8 * MIB),
        ];
        assert_eq!(story, expected);
    }
}
