//! Streams: who may use what another stream freed, and from when on.
//!
//! Memory freed on a stream may be used again on it at once. Another stream may use it once a fence behind the free has
//! been reached, or if that stream waits for the fence (`cuStreamWaitEvent`), which the host never does. A handle notes
//! for each stream how many fences that stream had when it last freed something in it (the *epoch*), and whoever wants
//! the memory waits for the first fence from there on.
//!
//! A fence is made when the program turns to another stream, so that no one waits for more than was queued
//! by then.
//!
//! ```text
//!   stream 1   free a   free b   |fence 0|    free c        a, b: epoch 0 (behind them comes fence 0); c: epoch 1
//!   stream 2                         wait for fence 0       may use a and b, and whatever else has epoch 0 of stream 1
//! ```

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::device::{Device, Fence};
use gmlake_core::program::StreamId;

/// Streams that may be using something, and the numbers of the fences that will be behind that. Rarely more than two.
pub(super) type Users = SmallVec<[(StreamId, u32); 2]>;

/// Notes one more use. Numbers only rise.
#[inline]
pub(super) fn note_use(users: &mut Users, (user, epoch): (StreamId, u32)) {
    match users.iter_mut().find(|(other, _)| *other == user) {
        Some((_, last)) => *last = (*last).max(epoch),
        None => users.push((user, epoch)),
    }
}

/// Which free memory may serve a stream: what others are done with, or all, if it may have to wait for them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gate<'s> {
    streams: &'s Streams,
    stream: StreamId,
    waits: bool,
}

impl Gate<'_> {
    /// Whether it keeps nothing out.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.waits || self.streams.count() < 2
    }

    /// Whether it lets the stream to memory that these freed.
    #[inline]
    pub(super) fn admits(&self, users: &Users) -> bool {
        self.waits || users.iter().all(|&user| self.streams.has_passed(self.stream, user))
    }
}

/// Fences, and which stream has waited for which.
#[derive(Debug, Clone, Default)]
pub(super) struct Streams {
    lanes: Vec<Lane>,
    /// The stream of the last request.
    current: StreamId,
    /// Times that one stream was made to wait for another.
    pub(super) waits: u64,
}

#[derive(Debug, Clone, Default)]
struct Lane {
    /// Fences made on this stream so far.
    epoch: u32,
    /// Whether something was freed since the last one.
    is_open: bool,
    /// Fences that the GPU is known to have reached.
    done: u32,
    /// For each stream, the number of its fences that this one has waited for.
    seen: Vec<u32>,
    /// Fences that are not known to be reached, by their numbers.
    fences: VecDeque<(u32, Fence)>,
}

impl Lane {
    /// Asks which fences were reached meanwhile; the stream works in order.
    fn poll(&mut self, device: &mut dyn Device) {
        while let Some(&(number, fence)) = self.fences.front()
            && device.reached(fence)
        {
            device.drop_fence(fence);
            self.fences.pop_front();
            self.done = number + 1;
        }
    }

    /// Makes a fence behind all that this stream has queued by now. Those that were reached go, so that only as many
    /// are kept as the GPU lags behind.
    fn add_fence(&mut self, device: &mut dyn Device, stream: StreamId) -> (u32, Fence) {
        self.poll(device);
        let made = (self.epoch, device.fence(stream));
        self.fences.push_back(made);
        self.epoch += 1;
        self.is_open = false;
        made
    }
}

impl Streams {
    /// Streams known so far; they have the numbers below.
    #[inline]
    pub(super) fn count(&self) -> u16 {
        self.lanes.len() as u16
    }

    /// What `stream` may use: all if it may wait for others, or else what they are done with.
    #[inline]
    pub(super) fn gate(&self, stream: StreamId, waits: bool) -> Gate<'_> {
        Gate { streams: self, stream, waits }
    }

    /// A request for a stream begins. If the one before was for another one, that one gets a fence behind its frees.
    #[inline]
    pub(super) fn turn_to(&mut self, device: &mut dyn Device, stream: StreamId) {
        if stream == self.current && self.count() > 0 {
            return;
        }
        self.lane(stream);
        let last = std::mem::replace(&mut self.current, stream);
        if self.lane(last).is_open {
            self.lane(last).add_fence(device, last);
        }
    }

    /// Something was freed on a stream: the number of its next fence.
    #[inline]
    pub(super) fn note_free(&mut self, stream: StreamId) -> u32 {
        let lane = self.lane(stream);
        lane.is_open = true;
        lane.epoch
    }

    #[inline]
    fn lane(&mut self, stream: StreamId) -> &mut Lane {
        let place = usize::from(stream.0);
        if place >= self.lanes.len() {
            self.lanes.resize_with(place + 1, Lane::default);
        }
        &mut self.lanes[place]
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
        self.lanes.iter_mut().for_each(|lane| lane.poll(device));
    }

    /// Makes `stream` wait for what `user` freed before its fence number `epoch`.
    fn wait(&mut self, device: &mut dyn Device, stream: StreamId, (user, epoch): (StreamId, u32)) {
        let lane = self.lane(user);
        let first = lane.fences.iter().find(|&&(number, _)| number >= epoch).copied();
        let (number, fence) = first.unwrap_or_else(|| lane.add_fence(device, user));
        device.stream_wait(stream, fence);
        self.waits += 1;
        let seen = &mut self.lane(stream).seen;
        let place = usize::from(user.0);
        seen.resize(seen.len().max(place + 1), 0);
        seen[place] = number + 1;
    }

    /// Makes `stream` wait for all of `users` that may still be at work.
    pub(super) fn wait_for_all(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        users: impl Iterator<Item = (StreamId, u32)>,
    ) {
        for user in users {
            if !self.has_passed(stream, user) {
                self.wait(device, stream, user);
            }
        }
    }

    /// Makes a fence on every stream that needs one for [`Streams::poll`] to tell of all that was freed up to now.
    pub(super) fn mark(&mut self, device: &mut dyn Device) {
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            if lane.fences.is_empty() {
                lane.add_fence(device, StreamId(place as u16));
            }
        }
    }

    /// The device was synchronised: everything was reached.
    pub(super) fn finish(&mut self, device: &mut dyn Device) {
        for lane in &mut self.lanes {
            lane.fences.drain(..).for_each(|(_, fence)| device.drop_fence(fence));
            lane.epoch += 1;
            lane.done = lane.epoch;
            lane.is_open = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SimDevice;
    use gmlake_core::units::MIB;

    const OWN: StreamId = StreamId(0);
    const OTHER: StreamId = StreamId(1);

    #[test]
    fn a_stream_waits_for_the_first_fence_behind_a_free() {
        let mut gpu = SimDevice::new(MIB).lagging(100);
        let mut streams = Streams::default();
        let frees = [(); 3].map(|()| {
            streams.turn_to(&mut gpu, OTHER);
            let free = (OTHER, streams.note_free(OTHER));
            streams.turn_to(&mut gpu, OWN);
            free
        });
        streams.wait(&mut gpu, OWN, frees[1]);
        assert_eq!(frees.map(|free| streams.has_passed(OWN, free)), [true, true, false]);
        assert_eq!(streams.lanes[1].fences.len(), 3, "none twice");
        gpu.elapse(100, 0);
        streams.poll(&mut gpu);
        assert!(frees.iter().all(|&free| streams.is_done(free)));
        assert!(gpu.is_pristine());
    }

    #[test]
    fn fences_do_not_pile_up_without_polling() {
        let mut gpu = SimDevice::new(MIB).lagging(4);
        let mut streams = Streams::default();
        for _ in 0..1000 {
            streams.turn_to(&mut gpu, OTHER);
            let free = (OTHER, streams.note_free(OTHER));
            streams.wait(&mut gpu, OWN, free);
            gpu.elapse(1, 0);
            let count = streams.lanes[1].fences.len();
            assert!(count <= 5, "{count} fences on a GPU that lags by four events");
        }
    }
}
