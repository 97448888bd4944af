//! Order between streams: points in a stream's queue, and the clock of a simulated GPU.
//!
//! The host queues work and runs ahead; a stream works its queue off in order. Memory that was freed on one stream may
//! be used on it again at once, since what comes later also runs later. Another stream may use it when the first has
//! got past the free, which a fence (`cuEventRecord`) tells, or when it is made to wait for that (`cuStreamWaitEvent`):
//!
//! ```text
//!   stream 1   ── kernel A ── kernel B ──▲ fence f ── ...        free(A's memory) was before f
//!   stream 2   ── kernel C ──────────────┴ wait f ── kernel D    kernel D may use that memory; the host never waits
//! ```
//!
//! A fence may be recorded long after the free that it is about: it is then later than need be, and no less right.

use std::collections::VecDeque;

/// A point in a stream's queue. Devices may hand out the number of a fence again once it was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u32);

/// The fences of a GPU that does everything a fixed number of events after the program queued it.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    lag: u64,
    now: u64,
    /// When each fence is reached.
    due: Vec<u64>,
    vacant: Vec<Fence>,
    /// What another device answered to the same questions.
    answers: VecDeque<bool>,
}

impl Queue {
    pub(super) fn lagging(lag: u64) -> Self {
        Self { lag, ..Self::default() }
    }

    pub(super) fn answering(answers: VecDeque<bool>) -> Self {
        Self { answers, ..Self::default() }
    }

    pub(super) fn elapse(&mut self, events: u64) {
        self.now += events;
    }

    pub(super) fn record(&mut self) -> Fence {
        let due = self.now + self.lag;
        if let Some(fence) = self.vacant.pop() {
            self.due[fence.0 as usize] = due;
            return fence;
        }
        self.due.push(due);
        Fence(self.due.len() as u32 - 1)
    }

    pub(super) fn reached(&mut self, fence: Fence) -> bool {
        self.assert_known(fence);
        self.answers.pop_front().unwrap_or(self.due[fence.0 as usize] <= self.now)
    }

    /// The host waits for all that is queued.
    pub(super) fn finish(&mut self) {
        self.due.iter_mut().for_each(|due| *due = (*due).min(self.now));
    }

    pub(super) fn forget(&mut self, fence: Fence) {
        self.assert_known(fence);
        self.vacant.push(fence);
    }

    pub(super) fn assert_known(&self, fence: Fence) {
        let known = (fence.0 as usize) < self.due.len();
        assert!(known, "{fence:?} was never recorded");
        debug_assert!(!self.vacant.contains(&fence), "{fence:?} was dropped");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.vacant.len() == self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_reached_so_many_events_later_or_when_the_host_has_waited() {
        let mut queue = Queue::lagging(100);
        let first = queue.record();
        queue.elapse(60);
        let second = queue.record();
        assert!(!queue.reached(first));
        queue.elapse(40);
        assert!(queue.reached(first) && !queue.reached(second));
        queue.finish();
        assert!(queue.reached(second));
        queue.forget(first);
        assert_eq!(queue.record(), first, "numbers are used again");
        assert!(!queue.reached(first), "and mean the new point");
    }

    #[test]
    fn the_answers_of_another_device_come_first() {
        let mut queue = Queue::answering([false, true].into());
        let fence = queue.record();
        let answers: Vec<_> = (0..3).map(|_| queue.reached(fence)).collect();
        assert_eq!(answers, [false, true, true]);
    }
}
