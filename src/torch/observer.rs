//! Who listens to what happens: PyTorch's own history, where it asks us in full.

use super::GpuAllocator;
use crate::device::DevicePtr;
use crate::trace::Action;
use crate::units::Bytes;

/// Something happened on a GPU. For [`Action::Oom`], `at` is how many bytes were free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Index of the GPU.
    pub device: u32,
    /// What.
    pub action: Action,
    /// Where it begins.
    pub at: u64,
    /// Bytes asked for, or of the segment.
    pub size: Bytes,
    /// Handle of the stream.
    pub stream: u64,
}

/// Called while the GPU's lock is held, in the order in which things happen: must not ask for memory.
pub type Observer = fn(&Event);

impl GpuAllocator {
    /// Tells of everything from now on, or of nothing.
    pub fn observe(&mut self, observer: Option<Observer>) {
        self.observer = observer;
        self.counted_segments().story = observer.map(|_| Vec::new());
    }

    /// Accounts for segments that came and went, and tells of them.
    #[inline]
    pub(super) fn account(&mut self) {
        for change in self.counted_segments().take_changes() {
            self.sums.segment(change.unsigned_abs(), change.signum());
        }
        let (device, observer) = (self.gpu.index, self.observer);
        let (Some(observe), Some(story)) = (observer, &mut self.counted_segments().story) else {
            return;
        };
        for (action, DevicePtr(at), size) in story.drain(..) {
            observe(&Event { device, action, at, size, stream: 0 });
        }
    }
}
