//! Frees that wait for other streams.
//!
//! A stream works in order, so its fences are reached in order: only the first of each stream is asked for.
//!
//! ```text
//!   stream 1   fence of a ─ fence of c ─ ...     a waits for streams 1 and 2, c for 1 only
//!   stream 2   fence of a ─ ...
//! ```

use std::collections::{BTreeMap, VecDeque};

use super::block::Freed;
use gmlake_allocators::device::{Device, Fence};
use gmlake_core::program::StreamId;

#[derive(Debug)]
struct Waiting {
    freed: Freed,
    /// Fences that have not been reached.
    left: usize,
}

/// The frees that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Pending {
    waiting: BTreeMap<u64, Waiting>,
    fences: BTreeMap<StreamId, VecDeque<(Fence, u64)>>,
    next: u64,
    /// Frees that came during a capture, when no fence may be recorded, with the streams that they wait for.
    held_back: Vec<(Freed, Vec<StreamId>)>,
}

impl Pending {
    /// A free that waits for what is queued on these streams now.
    pub(super) fn push(&mut self, device: &mut dyn Device, freed: Freed, streams: &[StreamId]) {
        self.next += 1;
        for &stream in streams {
            let fence = device.fence(stream);
            self.fences.entry(stream).or_default().push_back((fence, self.next));
        }
        self.waiting.insert(self.next, Waiting { freed, left: streams.len() });
    }

    /// A free that will wait for these streams once the capture under way is over.
    pub(super) fn hold_back(&mut self, freed: Freed, streams: Vec<StreamId>) {
        self.held_back.push((freed, streams));
    }

    /// The capture is over: what was held back waits from now on.
    pub(super) fn release_held_back(&mut self, device: &mut dyn Device) {
        for (freed, streams) in std::mem::take(&mut self.held_back) {
            self.push(device, freed, &streams);
        }
    }

    /// The frees that wait no longer, in the order in which that was found out.
    pub(super) fn reached(&mut self, device: &mut dyn Device) -> Vec<Freed> {
        let mut done = Vec::new();
        for queue in self.fences.values_mut() {
            while let Some(&(fence, number)) = queue.front()
                && device.reached(fence)
            {
                queue.pop_front();
                device.drop_fence(fence);
                let Some(waiting) = self.waiting.get_mut(&number) else { continue };
                waiting.left -= 1;
                if waiting.left == 0 {
                    done.extend(self.waiting.remove(&number).map(|waiting| waiting.freed));
                }
            }
        }
        done
    }

    /// All of them, oldest first: the device was synchronised.
    pub(super) fn drain(&mut self, device: &mut dyn Device) -> Vec<Freed> {
        for (fence, _) in std::mem::take(&mut self.fences).into_values().flatten() {
            device.drop_fence(fence);
        }
        std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.freed).collect()
    }

    /// Whether none waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::Owner;
    use super::*;
    use gmlake_allocators::allocator::BlockId;
    use gmlake_allocators::device::SimDevice;
    use gmlake_core::units::MIB;

    fn freed(at: u64) -> Freed {
        let block = BlockId { index: at as u32, generation: 0 };
        Freed { at, size: MIB, held: MIB, stream: StreamId(0), block, owner: Owner::Main }
    }

    fn addresses(freed: Vec<Freed>) -> Vec<u64> {
        freed.into_iter().map(|freed| freed.at).collect()
    }

    #[test]
    fn a_free_is_complete_when_the_last_of_its_streams_got_there() {
        let mut gpu = SimDevice::new(MIB).lagging(10);
        let mut pending = Pending::default();
        pending.push(&mut gpu, freed(1), &[StreamId(1), StreamId(2)]);
        gpu.elapse(5, 0);
        pending.push(&mut gpu, freed(2), &[StreamId(1)]);
        assert!(pending.reached(&mut gpu).is_empty());
        gpu.elapse(5, 0);
        assert_eq!(addresses(pending.reached(&mut gpu)), [1]);
        assert_eq!(pending.len(), 1);
        gpu.elapse(5, 0);
        assert_eq!(addresses(pending.reached(&mut gpu)), [2]);
        assert!(pending.is_empty() && gpu.is_pristine());
    }

    #[test]
    fn after_a_wait_for_everything_all_are_complete() {
        let mut gpu = SimDevice::new(MIB).lagging(10);
        let mut pending = Pending::default();
        pending.push(&mut gpu, freed(1), &[StreamId(2), StreamId(1)]);
        pending.push(&mut gpu, freed(2), &[StreamId(1)]);
        assert_eq!(addresses(pending.drain(&mut gpu)), [1, 2]);
        assert!(pending.is_empty() && gpu.is_pristine());
    }
}
