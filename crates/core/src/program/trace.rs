//! The program: what one job did on one device, ready to be replayed.

use super::{Entry, Event, EventKind, PoolId, StreamId, Warning};
use crate::alloc_conf::{AllocConf, TorchVersion};
use crate::units::Bytes;

/// A block that was live before the first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartBlock {
    /// Its address.
    pub address: u64,
    /// What the program had asked for.
    pub requested: Bytes,
    /// Its stream.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolId,
    /// Freed already, but still in use by another stream.
    pub is_pending: bool,
}

/// What the entries alone do not say; found out by replaying the recording (see `sim::verify`).
#[derive(Debug, Clone, Default)]
pub struct Labels {
    /// Blocks that were live before the first entry.
    pub start: Vec<StartBlock>,
    /// Entries before which the program emptied the cache, ascending, with the private pool that it released.
    pub trims: Vec<(usize, PoolId)>,
    /// Pool of each `alloc` and `oom` entry that was not of the default pool, ascending by entry.
    pub pools: Vec<(usize, PoolId)>,
    /// Private pools whose segments were handed out whole (`no_split` of a `MemPool`).
    pub no_split: Vec<PoolId>,
}

/// One training step: a range of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// First event.
    pub start: usize,
    /// One past the last event.
    pub end: usize,
}

/// What one program did on one device, ready to be replayed.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Index of the device.
    pub device: u32,
    /// All that the program did, in order.
    pub events: Vec<Event>,
    /// The moment of each event in microseconds since the first entry.
    pub times_us: Vec<u64>,
    /// How many of the first events stand for blocks that were live before the recording began.
    pub start_events: usize,
    /// How many allocation ids there are.
    pub allocs: u32,
    /// Handle of each [`StreamId`].
    pub streams: Vec<u64>,
    /// Number of each allocation's call stack (`Records::stacks`), or [`Entry::NO_STACK`];
    /// empty if there are none.
    pub alloc_stacks: Vec<u32>,
    /// Event and stack of each request that failed in the recording and has one, ascending.
    pub attempt_stacks: Vec<(usize, u32)>,
    /// Events before which memory ran out, ascending, where the file does not tell what was requested.
    pub unsized_failures: Vec<usize>,
    /// Training steps in order, if they were found; see [`crate::program`].
    pub steps: Vec<Step>,
    /// The allocator settings that the program ran with, if known.
    pub settings: Option<AllocConf>,
    /// Private pools whose segments PyTorch handed out whole.
    pub no_split: Vec<PoolId>,
    /// The PyTorch that the program ran on, if the file tells.
    pub version: Option<TorchVersion>,
    /// What was assumed, in a fixed order.
    pub warnings: Vec<Warning>,
}

impl Trace {
    /// Requests in the trace, those that failed in the recording included.
    pub fn requests(&self) -> u64 {
        let is_request = |e: &&Event| matches!(e.kind, EventKind::Malloc | EventKind::Attempt);
        self.events.iter().filter(is_request).count() as u64
    }

    /// The first request that failed in the recording.
    pub fn first_failure(&self) -> Option<usize> {
        self.events.iter().position(|event| event.kind == EventKind::Attempt)
    }

    /// Whether anything is requested in another pool than the default one: in a CUDA graph's, or a `MemPool`.
    pub fn has_private_pools(&self) -> bool {
        self.events.iter().any(|event| event.pool != PoolId::DEFAULT)
    }

    /// Number of the call stack of the request that event number `event` is, or is the free of.
    pub fn stack_of(&self, event: usize) -> u32 {
        let Some(&Event { kind, alloc, .. }) = self.events.get(event) else {
            return Entry::NO_STACK;
        };
        let found = match kind {
            EventKind::Attempt => {
                let place = self.attempt_stacks.binary_search_by_key(&event, |&(at, _)| at);
                place.ok().map(|place| self.attempt_stacks[place].1)
            }
            _ => self.alloc_stacks.get(alloc.0 as usize).copied(),
        };
        found.unwrap_or(Entry::NO_STACK)
    }

    /// Number of the step that event number `event` lies in, from 1, and of the unfinished one behind the last.
    pub fn step_at(&self, event: usize) -> usize {
        self.steps.partition_point(|step| step.end <= event) + 1
    }

    /// The first event from `start` on that came at `time_us` or later. It is near `start`: times are read in order,
    /// eight to a cache line, which costs less than a search.
    pub fn first_at(&self, time_us: u64, start: usize) -> usize {
        const LINE: usize = 8;
        let times = &self.times_us[start..];
        let lines = times.chunks_exact(LINE).take_while(|line| line[LINE - 1] < time_us).count();
        let rest = times[lines * LINE..].iter().take_while(|&&time| time < time_us).count();
        start + lines * LINE + rest
    }

    /// Time between the first and the last event in microseconds; 0 if the file has no times.
    pub fn span_us(&self) -> u64 {
        self.times_us.last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_in_order_are_found_as_by_a_search() {
        for events in [0, 1, 7, 8, 9, 40] {
            let times_us: Vec<u64> = (0..events).map(|event| event / 3 * 5).collect();
            let trace = Trace { times_us, ..Trace::default() };
            for start in 0..=events as usize {
                for time in 0..80 {
                    let later = trace.times_us[start..].partition_point(|&at| at < time);
                    assert_eq!(
                        trace.first_at(time, start),
                        start + later,
                        "{events} {start} {time}"
                    );
                }
            }
        }
    }
}
