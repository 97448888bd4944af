//! Growing: new memory from the device, and how much of it is allowed before memory has to be stitched.
//!
//! The budget is the most that was ever live, and a little slack. Within it a request that finds no room gets new
//! memory; beyond it, memory that is free must be put together first. So stitching happens only where it saves memory.
//! On the way up to the first peak it saves none in the end, but an allocator cannot know that: who knows about how
//! much a job will need at least can say so (`headstart`).
//!
//! Handles are sized after the request that needs them: a large one is made of `grain` of them or more, between a
//! quarter of `handle` and `handle`. Then a request wastes, and a stitch costs, about the same share at every size.
//! On a device of less than 96 GiB handles are smaller in proportion, and once three fifths of a device are held, or it
//! has refused, they are small: every byte counts then.

use super::Lake;
use super::fit::Reach;
use crate::allocator::{NIL, SlabIndex};
use crate::device::{Device, DeviceError, DevicePtr, GRANULE, HandleId};
use crate::trace::StreamId;
use crate::units::{Bytes, GIB, MIB, round_up};

/// The least growth within the budget: requests of a few MiB come in numbers.
const STEP: Bytes = 32 * MIB;

/// Memory of a device on which handles are as large as the options say; with half of it they are half as large. So a
/// handle that a small tensor keeps from being whole costs the same share of any device.
const FULL_SIZE: Bytes = 128 * GIB;

/// Per cent of the device's memory, held by us, from which on memory is short.
const NEARLY_FULL: Bytes = 60;

/// Largest handle once memory is short.
const SMALL_HANDLE: Bytes = 8 * MIB;

/// The power of two that is nearest to so many bytes.
const fn nearest_power_of_two(bytes: Bytes) -> Bytes {
    let above = bytes.next_power_of_two();
    if bytes < above / 4 * 3 { above / 2 } else { above }
}

impl Lake {
    /// Grows for a request as long as reserved memory stays within the budget; `false` if it would not.
    ///
    /// # Errors
    /// A driver error. Out of memory is none: `false`.
    pub(super) fn grow_within(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
    ) -> Result<bool, DeviceError> {
        let needed = (self.live_peak as f64 * (1.0 + self.options.slack)) as Bytes;
        let budget = needed.max(self.options.headstart);
        let reserved = self.ledger.now().reserved;
        if reserved >= budget {
            return Ok(false);
        }
        let tail = self.tail_free(device, stream, size)?;
        let missing = round_up(size - tail.min(size - 1), GRANULE);
        for amount in [missing.max(STEP.min(self.options.handle)), missing] {
            if reserved + amount <= budget.min(self.limit) {
                return self.grow_at_tail(device, stream, amount, size);
            }
        }
        Ok(false)
    }

    /// Bytes that are free at the end of the arena, and may be used by the stream at once.
    fn tail_free(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
    ) -> Result<Bytes, DeviceError> {
        let at = self.arena.place(device, round_up(size, GRANULE).max(STEP))?;
        let mut handle = self.arena.before(at).unwrap_or(NIL);
        let mut free = 0;
        while handle != NIL && free < size && self.is_allowed(handle, stream, Reach::Own) {
            let entry = &self.pool.handles[handle];
            let last = &self.pool.pieces[entry.last];
            if last.is_free {
                free += last.size;
            }
            if !last.is_free || entry.first != entry.last {
                break;
            }
            handle = entry.left;
        }
        Ok(free)
    }

    fn grow_at_tail(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        amount: Bytes,
        size: Bytes,
    ) -> Result<bool, DeviceError> {
        let new = match self.create(device, stream, (amount, size)) {
            Err(DeviceError::OutOfMemory { .. }) => return Ok(false),
            other => other?,
        };
        let last = *new.last().expect("at least one handle was made");
        let run = self.pool.handles[last].run_to;
        if self.pool.runs[run].size < size {
            return Ok(false);
        }
        self.tally.growths += 1;
        self.route_from_left(run, size);
        Ok(true)
    }

    /// How large the handles for a request should be, if so much memory is free.
    fn handle_size(&self, size: Bytes, free: Bytes) -> Bytes {
        let capacity = (self.ledger.now().reserved + free).min(self.limit);
        let is_short = self.is_short || self.ledger.now().reserved > capacity / 100 * NEARLY_FULL;
        let scale = FULL_SIZE / nearest_power_of_two(capacity.min(FULL_SIZE));
        let scaled = round_up(self.options.handle / scale, GRANULE);
        let small = SMALL_HANDLE.min(self.options.handle);
        let largest = if is_short { small } else { scaled.max(small) };
        let least = round_up(largest / 4, GRANULE);
        round_up(size / self.options.grain.max(1), GRANULE).clamp(least, largest)
    }

    /// New handles of nearly equal sizes, `amount` bytes for a request of `size` bytes, at the end of the arena.
    ///
    /// # Errors
    /// Out of memory, or a driver error; nothing has changed.
    pub(super) fn create(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        (amount, size): (Bytes, Bytes),
    ) -> Result<Vec<SlabIndex>, DeviceError> {
        let reserved = self.ledger.now().reserved;
        if amount > self.limit.saturating_sub(reserved) {
            let free = self.limit.saturating_sub(reserved);
            return Err(DeviceError::OutOfMemory { requested: amount, free });
        }
        let free = device.memory_info().free;
        if amount > free {
            return Err(DeviceError::OutOfMemory { requested: amount, free });
        }
        let count = amount.div_ceil(self.handle_size(size, free));
        let each = round_up(amount.div_ceil(count), GRANULE);
        let at = self.arena.place(device, amount)?;
        let mut made: Vec<(HandleId, Bytes)> = Vec::new();
        let mut left = amount;
        let mut outcome = Ok(());
        while left > 0 && outcome.is_ok() {
            let size = each.min(left);
            outcome = device.create(size).map(|id| made.push((id, size)));
            left -= size;
        }
        let ids: Vec<_> = made.iter().map(|&(id, _)| id).collect();
        let outcome = outcome
            .and_then(|()| device.map(at, &ids))
            .and_then(|()| device.set_access(at, amount).inspect_err(|_| device.unmap(at, amount)));
        if let Err(error) = outcome {
            device.release_each(&ids);
            return Err(error);
        }
        self.ledger.grow(amount);
        Ok(self.adopt(stream, at, &made))
    }

    fn adopt(
        &mut self,
        stream: StreamId,
        mut at: DevicePtr,
        made: &[(HandleId, Bytes)],
    ) -> Vec<SlabIndex> {
        let mut new = Vec::with_capacity(made.len());
        for &(id, size) in made {
            let (left, right) = self.arena.fill(at, size);
            let neighbours = (left.unwrap_or(NIL), right.unwrap_or(NIL));
            let handle = self.pool.add(id, (at, size), stream, neighbours);
            self.arena.note(at, handle);
            new.push(handle);
            at = at.offset(size);
        }
        new
    }
}
