//! A device that answers as the recording says: the other half of every decision that PyTorch took.
//!
//! The model under test is driven by the requests alone. When it turns to its device, the next entry of the recording
//! tells what the real one did there: at which address a segment came, which segment was given back, where the driver
//! refused. Any other call than the recorded one is a [`Problem`]; the first is kept, and what follows it until the
//! model is put right again means nothing.

use std::collections::BTreeMap;

use crate::device::{Device, DeviceError, DevicePtr, Fence, HandleId, MemoryInfo, Result};
use crate::trace::{Action, Entry, PoolId, StreamId};
use crate::units::Bytes;

/// The first thing in which the model did otherwise than the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Index of the entry that was next.
    pub entry: usize,
    /// What the model did.
    pub model: String,
}

/// The recorded side of a verification.
#[derive(Debug, Clone)]
pub(super) struct RecordedDevice<'a> {
    entries: &'a [Entry],
    /// Requests that another pool served, because the device had no memory.
    elsewhere: &'a BTreeMap<usize, PoolId>,
    /// The next entry that was not accounted for.
    pub next: usize,
    /// The first difference.
    pub problem: Option<Problem>,
    /// Addresses to hand out while a start state is restored.
    pub restoring: Option<std::vec::IntoIter<u64>>,
    /// Frees that were completed by waiting for the GPU.
    pub synchronized: Vec<u64>,
    /// Memory held, as the recording says.
    held: Bytes,
    /// The least memory that would have been held if a request had not been refused by the driver.
    pub least_refused: Option<Bytes>,
    /// The same of pages for an expandable segment, which needed more of them. Which one was refused is unknown.
    pub least_page_refused: Option<Bytes>,
    /// A `segment_unmap` of which some pages were unmapped: the next address.
    unmapping: Option<u64>,
    handles: Vec<Bytes>,
    recycled: Vec<HandleId>,
}

impl<'a> RecordedDevice<'a> {
    pub(super) fn new(entries: &'a [Entry], elsewhere: &'a BTreeMap<usize, PoolId>) -> Self {
        Self {
            entries,
            elsewhere,
            next: 0,
            problem: None,
            restoring: None,
            synchronized: Vec::new(),
            held: 0,
            least_refused: None,
            least_page_refused: None,
            unmapping: None,
            handles: Vec::new(),
            recycled: Vec::new(),
        }
    }

    /// Notes a difference at the next entry, if it is the first.
    #[cold]
    pub(super) fn differ(&mut self, model: String) {
        let entry = self.next;
        self.problem.get_or_insert(Problem { entry, model });
    }

    /// Forgets a difference, to go on at `entry` with `held` bytes.
    pub(super) fn resume(&mut self, entry: usize, held: Bytes) {
        self.next = entry;
        self.held = held;
        self.problem = None;
        self.unmapping = None;
        self.synchronized.clear();
    }

    fn peek(&self) -> Option<&'a Entry> {
        self.entries.get(self.next)
    }

    /// Whether the driver had no memory: it was asked, and the recording goes on with giving something back, with an
    /// `oom`, or with memory of another pool.
    fn was_refused(&self) -> bool {
        let refusal =
            [Action::SegmentFree, Action::SegmentUnmap, Action::FreeCompleted, Action::Oom];
        self.peek().is_some_and(|entry| refusal.contains(&entry.action))
            || self.elsewhere.contains_key(&self.next)
    }

    /// Takes the next entry if it is `action` at `at` (or anywhere) of `size` bytes; otherwise they differ.
    fn take(&mut self, action: Action, at: Option<u64>, size: Bytes) -> Option<&'a Entry> {
        let matches = |entry: &&Entry| {
            entry.action == action && at.is_none_or(|at| at == entry.addr) && entry.size == size
        };
        if let Some(entry) = self.peek().filter(matches).filter(|_| self.problem.is_none()) {
            self.next += 1;
            match action {
                Action::SegmentFree => self.held = self.held.saturating_sub(size),
                _ => self.held += size,
            }
            return Some(entry);
        }
        let place = at.map_or(String::new(), |at| format!(" at {at:#x}"));
        self.differ(format!("{} of {size} bytes{place}", action.name()));
        None
    }
}

fn refused<T>(least: &mut Option<Bytes>, held: Bytes, requested: Bytes) -> Result<T> {
    let wanted = held + requested;
    *least = Some(least.map_or(wanted, |least| least.min(wanted)));
    Err(DeviceError::OutOfMemory { requested, free: 0 })
}

/// Ends an operation of the model that has already gone wrong.
fn aborted<T>() -> Result<T> {
    Err(DeviceError::Driver { call: "recording", reason: "the model differs".to_owned() })
}

impl Device for RecordedDevice<'_> {
    fn memory_info(&self) -> MemoryInfo {
        MemoryInfo { free: 0, total: 0 }
    }

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr> {
        if let Some(at) = self.restoring.as_mut().and_then(Iterator::next) {
            return Ok(DevicePtr(at));
        }
        if self.was_refused() {
            return refused(&mut self.least_refused, self.held, size);
        }
        match self.take(Action::SegmentAlloc, None, size) {
            Some(entry) => Ok(DevicePtr(entry.addr)),
            None => aborted(),
        }
    }

    fn free(&mut self, at: DevicePtr) {
        match self.peek().copied() {
            Some(entry) => drop(self.take(Action::SegmentFree, Some(at.0), entry.size)),
            None => self.differ(format!("segment_free at {at}")),
        }
    }

    fn reserve(&mut self, size: Bytes) -> Result<DevicePtr> {
        if let Some(at) = self.restoring.as_mut().and_then(Iterator::next) {
            return Ok(DevicePtr(at));
        }
        match self.peek() {
            Some(entry) if entry.action == Action::SegmentMap => Ok(DevicePtr(entry.addr)),
            _ if self.was_refused() => refused(&mut self.least_refused, self.held, size),
            _ => {
                self.differ("a new expandable segment".to_owned());
                aborted()
            }
        }
    }

    fn unreserve(&mut self, _at: DevicePtr, _size: Bytes) {}

    fn create(&mut self, size: Bytes) -> Result<HandleId> {
        if self.restoring.is_none() && self.was_refused() {
            return refused(&mut self.least_page_refused, self.held, size);
        }
        Ok(match self.recycled.pop() {
            Some(handle) => {
                self.handles[handle.0 as usize] = size;
                handle
            }
            None => {
                self.handles.push(size);
                HandleId(self.handles.len() as u32 - 1)
            }
        })
    }

    fn release(&mut self, handle: HandleId) {
        self.recycled.push(handle);
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<()> {
        let size = handles.iter().map(|handle| self.handles[handle.0 as usize]).sum();
        if self.restoring.is_some() || self.take(Action::SegmentMap, Some(at.0), size).is_some() {
            return Ok(());
        }
        aborted()
    }

    fn set_access(&mut self, _at: DevicePtr, _size: Bytes) -> Result<()> {
        Ok(())
    }

    /// Pages are unmapped one by one, in ascending order; the recording has one entry for all of them.
    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        let expected = self.peek().filter(|entry| {
            entry.action == Action::SegmentUnmap && at.0 == self.unmapping.unwrap_or(entry.addr)
        });
        let Some(entry) = expected.filter(|entry| at.0 + size <= entry.addr + entry.size) else {
            return self.differ(format!("segment_unmap of {size} bytes at {at}"));
        };
        let end = at.0 + size;
        let is_last = end == entry.addr + entry.size;
        self.unmapping = (!is_last).then_some(end);
        self.held = self.held.saturating_sub(size);
        self.next += usize::from(is_last);
    }

    /// PyTorch completes all frees when it waits for the GPU, in no particular order.
    fn synchronize(&mut self) {
        while let Some(entry) = self.peek().filter(|entry| entry.action == Action::FreeCompleted) {
            self.synchronized.push(entry.addr);
            self.next += 1;
        }
    }

    // PyTorch tells whose memory is free by the entries of the recording; its model asks for no fence.
    fn fence(&mut self, _stream: StreamId) -> Fence {
        Fence(0)
    }

    fn reached(&mut self, _fence: Fence) -> bool {
        false
    }

    fn stream_wait(&mut self, _stream: StreamId, _fence: Fence) {}

    fn drop_fence(&mut self, _fence: Fence) {}
}
