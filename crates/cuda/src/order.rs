//! Streams and fences of a real GPU.
//!
//! A trace numbers its streams; here each number has a stream of the driver behind it: one that the owner of the
//! program has registered, or one of our own, made when it is first asked for. Events are kept for the next fence when
//! one is dropped, since making one costs more than recording it.

use std::collections::BTreeMap;

use super::driver::{self, DriverError, Event, Stream};
use gmlake_allocators::device::Fence;
use gmlake_core::program::StreamId;

#[derive(Debug, Clone, Copy)]
struct Known {
    stream: Stream,
    is_ours: bool,
}

/// The streams of one context, and the fences on them.
#[derive(Debug, Default)]
pub(super) struct Order {
    streams: BTreeMap<StreamId, Known>,
    events: Vec<Event>,
    vacant: Vec<Fence>,
}

impl Order {
    /// Lets a number mean a stream that somebody else owns, and keeps for as long as this is used.
    pub(super) fn register(&mut self, id: StreamId, stream: Stream) {
        self.streams.insert(id, Known { stream, is_ours: false });
    }

    pub(super) fn record(&mut self, id: StreamId) -> Result<Fence, DriverError> {
        let stream = self.stream(id)?;
        let fence = match self.vacant.pop() {
            Some(fence) => fence,
            None => {
                self.events.push(driver::event_create()?);
                Fence(self.events.len() as u32 - 1)
            }
        };
        if let Err(error) = driver::event_record(self.event(fence), stream) {
            self.vacant.push(fence);
            return Err(error);
        }
        Ok(fence)
    }

    pub(super) fn reached(&self, fence: Fence) -> Result<bool, DriverError> {
        driver::event_is_reached(self.event(fence))
    }

    pub(super) fn wait(&mut self, id: StreamId, fence: Fence) -> Result<(), DriverError> {
        driver::stream_wait(self.stream(id)?, self.event(fence))
    }

    pub(super) fn forget(&mut self, fence: Fence) {
        self.vacant.push(fence);
    }

    /// Gives back what is ours; every failure is passed on.
    pub(super) fn close(&mut self, mut note: impl FnMut(Result<(), DriverError>)) {
        for event in std::mem::take(&mut self.events) {
            note(driver::event_destroy(event));
        }
        for (_, known) in std::mem::take(&mut self.streams) {
            if known.is_ours {
                note(driver::stream_destroy(known.stream));
            }
        }
        self.vacant.clear();
    }

    fn event(&self, fence: Fence) -> Event {
        self.events[fence.0 as usize]
    }

    fn stream(&mut self, id: StreamId) -> Result<Stream, DriverError> {
        if let Some(known) = self.streams.get(&id) {
            return Ok(known.stream);
        }
        let stream = driver::stream_create()?;
        self.streams.insert(id, Known { stream, is_ours: true });
        Ok(stream)
    }
}
