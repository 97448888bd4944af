//! Streams: who may use what another stream freed, and from when on.
//!
//! Memory freed on a stream may be used again on it at once. Another stream may use it once a fence behind the free has
//! been reached, or if that stream waits for the fence (`cuStreamWaitEvent`), which the host never does. No free makes
//! a fence. A handle notes for each stream how many fences that stream had when it last freed something in it (the
//! *epoch*); the fence is made when another stream wants the memory, and stands for all that was freed before.
//!
//! ```text
//!   stream 1   free a   free b   |fence 0|    free c        a, b: epoch 0 (behind them comes fence 0); c: epoch 1
//!   stream 2                         wait for fence 0       may use a and b, and whatever else has epoch 0 of stream 1
//! ```

use crate::device::{Device, Fence};
use crate::trace::StreamId;

/// Fences, and which stream has waited for which.
#[derive(Debug, Clone, Default)]
pub(super) struct Streams {
    lanes: Vec<Lane>,
    /// Times that one stream was made to wait for another.
    pub(super) waits: u64,
}

#[derive(Debug, Clone, Default)]
struct Lane {
    /// Fences made on this stream so far.
    epoch: u32,
    /// Fences that the GPU is known to have reached.
    done: u32,
    /// For each stream, the number of its fences that this one has waited for.
    seen: Vec<u32>,
    /// The last fence, if it is not known to be reached.
    last: Option<Fence>,
}

impl Streams {
    /// Streams known so far; they have the numbers below.
    #[inline]
    pub(super) fn count(&self) -> u16 {
        self.lanes.len() as u16
    }

    /// The number of the stream's next fence.
    #[inline]
    pub(super) fn epoch(&mut self, stream: StreamId) -> u32 {
        let place = usize::from(stream.0);
        if place >= self.lanes.len() {
            self.lanes.resize_with(place + 1, Lane::default);
        }
        self.lanes[place].epoch
    }

    /// Whether `stream` may use what `user` freed before its fence number `epoch`.
    #[inline]
    pub(super) fn has_passed(&self, stream: StreamId, (user, epoch): (StreamId, u32)) -> bool {
        if stream == user {
            return true;
        }
        let lane = &self.lanes[usize::from(user.0)];
        let seen =
            self.lanes.get(usize::from(stream.0)).and_then(|own| own.seen.get(usize::from(user.0)));
        epoch < lane.done.max(seen.copied().unwrap_or(0))
    }

    /// Whether the GPU is known to be done with what `user` freed before its fence number `epoch`.
    pub(super) fn is_done(&self, (user, epoch): (StreamId, u32)) -> bool {
        epoch < self.lanes[usize::from(user.0)].done
    }

    /// Asks which fences were reached meanwhile.
    pub(super) fn poll(&mut self, device: &mut dyn Device) {
        for lane in &mut self.lanes {
            if let Some(fence) = lane.last
                && device.reached(fence)
            {
                device.drop_fence(fence);
                lane.last = None;
                lane.done = lane.epoch;
            }
        }
    }

    /// Makes `stream` wait for what `user` freed before its fence number `epoch`.
    pub(super) fn wait(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        (user, epoch): (StreamId, u32),
    ) {
        let lane = &mut self.lanes[usize::from(user.0)];
        if epoch == lane.epoch || lane.last.is_none() {
            if let Some(old) = lane.last.take() {
                device.drop_fence(old);
            }
            lane.last = Some(device.fence(user));
            lane.epoch += 1;
        }
        let (fence, reached) = (lane.last.expect("it was made just now"), lane.epoch);
        device.stream_wait(stream, fence);
        self.waits += 1;
        self.epoch(stream);
        let seen = &mut self.lanes[usize::from(stream.0)].seen;
        let place = usize::from(user.0);
        seen.resize(seen.len().max(place + 1), 0);
        seen[place] = reached;
    }

    /// Makes a fence on every stream that needs one for [`Streams::poll`] to tell of all that was freed up to now.
    pub(super) fn mark(&mut self, device: &mut dyn Device) {
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            if lane.last.is_none() {
                lane.last = Some(device.fence(StreamId(place as u16)));
                lane.epoch += 1;
            }
        }
    }

    /// The device was synchronised: everything was reached.
    pub(super) fn finish(&mut self, device: &mut dyn Device) {
        for lane in &mut self.lanes {
            if let Some(fence) = lane.last.take() {
                device.drop_fence(fence);
            }
            lane.epoch += 1;
            lane.done = lane.epoch;
        }
    }
}
